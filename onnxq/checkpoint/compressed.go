package checkpoint

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
	"onnxquant/nvfp4"
	"onnxquant/spec"
)

// compressed reads a weight as compressed-tensors writes it:
//
//	weight_packed      I32 [N, K·bits/32]   codes plus 2^(bits-1), along K; U8 [N, K/2]: E2M1
//	weight_shape       I64 [2]
//	weight_scale       [N, K/group]
//	weight_zero_point  I32 [N·bits/32, K/group], packed along N, plus 2^(bits-1); may be missing
//	weight_g_idx       I32 [K]; may be missing
//
// With E2M1, weight_scale is F8_E4M3 for 16 elements each, and is divided by weight_global_scale.
func (c *checkpoint) compressed(module string) (*codes, error) {
	q := &codes{from: "compressed-tensors"}
	words, scales := c.use(q, module+"weight_packed"), c.use(q, module+"weight_scale")
	if scales == nil || len(words.Shape) != 2 || len(scales.Shape) != 2 {
		return nil, fmt.Errorf("it needs weight_scale beside it, both matrices")
	}
	if words.Type == "U8" {
		return q, c.e2m1(q, words, scales, module+"weight_global_scale", true)
	}
	shape := c.use(q, module+"weight_shape")
	if words.Type != "I32" || shape == nil || shape.elements() != 2 || shape.Type.DType() != dtype.Int64 && shape.Type.DType() != dtype.Int32 {
		return nil, fmt.Errorf("want words of type I32, and their weight_shape of two integers")
	}
	size := make([]float32, 2)
	if err := shape.lazily().ReadAll(new(lazy.Arena), size, 0); err != nil {
		return nil, err
	}
	q.n, q.k, q.scales = int64(size[0]), int64(size[1]), scales.lazily()
	bits := int64(4)
	if 4*words.Shape[1] == bytesIn(q.k, 8) {
		bits = 8
	}
	if q.n != words.Shape[0] || q.k < 1 || 4*words.Shape[1] != bytesIn(q.k, bits) {
		return nil, fmt.Errorf("its shape %v does not fit %d × %d of 4 or 8 bits", words.Shape, q.n, q.k)
	}
	groups := scales.Shape[1]
	q.block = c.config.blockOf(q.k, groups)
	q.codes = lazy.Stored(dtype.Uint8, []int64{q.n, q.k}, &packed{r: words.content(), bits: bits, rows: q.n, cols: q.k, pitch: 4 * words.Shape[1]})
	if zeros := c.use(q, module+"weight_zero_point"); zeros == nil {
		half := 1 << (bits - 1)
		q.format = spec.Format(fmt.Sprintf("int%d", bits))
		q.codes = lazy.Stored(dtype.Int8, q.codes.Shape, &shifted{q.codes.Stored, -half})
	} else {
		if zeros.Type != "I32" || zeros.elements()*4 != bytesIn(q.n, bits)*groups {
			return nil, fmt.Errorf("weight_zero_point of type %s and shape %v does not fit %d × %d groups", zeros.Type, zeros.Shape, q.n, groups)
		}
		q.zeros = lazy.Stored(dtype.Uint8, scales.Shape, &packed{r: zeros.content(), bits: bits, rows: q.n, cols: groups, pitch: 4 * groups, down: true})
		if err := q.settle(bits); err != nil {
			return nil, err
		}
	}
	index := c.use(q, module+"weight_g_idx")
	if err := q.check(); err != nil || index == nil {
		return q, err
	}
	down := q.laid(true)
	if err := down.ordered(index); err != nil || down.loose != nil {
		return down, err
	}
	return q, nil
}

// bytesScaled reads a weight of 8-bit integers as compressed-tensors writes it:
//
//	weight             I8 [N,K]
//	weight_scale       [N,1], or one for all
//	weight_zero_point  I8 [N,1]; may be missing
func (c *checkpoint) bytesScaled(module string) (*codes, error) {
	t, ok := c.tensors[module+"weight"]
	if !ok || t.Type != "I8" || len(t.Shape) != 2 {
		return nil, nil // float8: see floats
	}
	q := &codes{from: "compressed-tensors", format: spec.Int8, n: t.Shape[0], k: t.Shape[1], block: t.Shape[1]}
	q.codes = c.use(q, module+"weight").lazily()
	scales, zeros := c.use(q, module+"weight_scale"), c.use(q, module+"weight_zero_point")
	switch n := scales.elements(); {
	case n == q.n:
		q.scales = scales.lazily().Reshaped([]int64{q.n, 1})
	case n == 1:
		q.scales = repeated(scales.lazily(), q.n)
	case len(scales.Shape) == 2 && scales.Shape[0] == q.n:
		q.scales, q.block = scales.lazily(), c.config.blockOf(q.k, scales.Shape[1])
	default:
		return nil, fmt.Errorf("scales of shape %v do not fit %v", scales.Shape, t.Shape)
	}
	if zeros == nil {
		return q, nil
	}
	if zeros.Type != "I8" || zeros.elements() != q.scales.Size() {
		return nil, fmt.Errorf("weight_zero_point of type %s and shape %v does not fit scales of %v", zeros.Type, zeros.Shape, q.scales.Shape)
	}
	q.format = spec.Uint8
	q.codes = lazy.Stored(dtype.Uint8, q.codes.Shape, &shifted{q.codes.Stored, 128})
	q.zeros = lazy.Stored(dtype.Uint8, q.scales.Shape, &shifted{zeros.content(), 128})
	return q, q.settle(8)
}

// twoLevels reads NVFP4 as ModelOpt writes it: weight U8 [N,K/2], weight_scale F8_E4M3 [N,K/16], and weight_scale_2, which
// multiplies these scales.
func (c *checkpoint) twoLevels(module string) (*codes, error) {
	words, ok := c.tensors[module+"weight"]
	scales, scaled := c.tensors[module+"weight_scale"]
	if !ok || words.Type != "U8" || !scaled || len(words.Shape) != 2 || len(scales.Shape) != 2 {
		return nil, nil
	}
	q := &codes{from: "ModelOpt"}
	return q, c.e2m1(q, c.use(q, module+"weight"), c.use(q, module+"weight_scale"), module+"weight_scale_2", false)
}

// e2m1 reads codes of E2M1, two in a byte, with scales that the tensor called by has in common: it multiplies them, or
// divides them.
func (c *checkpoint) e2m1(q *codes, words, scales *tensor, by string, divides bool) error {
	common := c.use(q, by)
	if common == nil || common.elements() != 1 || !common.Type.DType().Float() {
		return fmt.Errorf("it needs one number, %s", by)
	}
	one := make([]float32, 1)
	if err := common.lazily().ReadAll(new(lazy.Arena), one, 0); err != nil {
		return err
	}
	if divides {
		one[0] = 1 / one[0]
	}
	q.format, q.n, q.k, q.block = spec.NVFP4, words.Shape[0], 2*words.Shape[1], nvfp4.BlockSize
	q.codes = lazy.Stored(dtype.Uint8, []int64{q.n, q.k}, &packed{r: words.content(), bits: 4, rows: q.n, cols: q.k, pitch: words.Shape[1]})
	q.table = make([]float32, 16)
	for i := range q.table {
		q.table[i] = nvfp4.DecodeE2M1(byte(i))
	}
	if q.whole = one[0]; !(q.whole > 0) || !kernels.IsFinite(q.whole) || scales.Type != "F8_E4M3" {
		return fmt.Errorf("want scales of type F8_E4M3 with a positive scale, not %s with %v", scales.Type, one[0])
	}
	q.scales = scales.lazily()
	if want := shapes.DivideUp(q.k, q.block); scales.Shape[1] != want {
		return fmt.Errorf("scales of shape %v: want %d for each row", scales.Shape, want)
	}
	return nil
}

// repeated repeats one number n times, as a column.
func repeated(x *lazy.Tensor, n int64) *lazy.Tensor {
	all := x.Reshaped(nil).Spread(lazy.OneScale, []int64{n, 1})
	return lazy.Stored(dtype.Float32, all.Shape, &encoded{x: all, typ: dtype.Float32})
}
