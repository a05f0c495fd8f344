package checkpoint

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/lazy"
	"onnxquant/spec"
)

// affine reads a weight as MLX writes it: weight U32 [N, K·bits/32], scales and biases [N, K/group]; a value is
// code · scale + bias. Codes follow each other from the lowest bit on.
//
// Signed codes have the same values, with mins: (code - middle) · scale - min, where min is -(bias + middle · scale). That is exact for
// scales and biases of 16 bits, whose sums float32 has: MLX finds biases of at most 2^bits scales. Both forms are rounded to
// float32 once.
func (c *checkpoint) affine(module string) (*codes, error) {
	words, ok := c.tensors[module+"weight"]
	if !ok || words.Type != "U32" || len(words.Shape) != 2 {
		return nil, nil
	}
	q := &codes{from: "MLX", n: words.Shape[0]}
	c.use(q, module+"weight")
	scales, biases := c.use(q, module+"scales"), c.use(q, module+"biases")
	bits, group := int64(c.config.Bits), int64(c.config.Group)
	if bits < 2 || bits > 8 || bits == 7 || group < 1 {
		return nil, fmt.Errorf("MLX of %d bits in groups of %d is not known: config.json beside it must say 2, 3, 4, 5, 6 or 8 bits, and a group_size", bits, group)
	}
	q.k, q.block = 32*words.Shape[1]/bits, group
	want := []int64{q.n, q.k / group}
	if q.k*bits != 32*words.Shape[1] || q.k%group != 0 || biases == nil || !slices.Equal(scales.Shape, want) || !slices.Equal(biases.Shape, want) {
		return nil, fmt.Errorf("scales and biases must have the shape %v, for codes of %d bits in groups of %d", want, bits, group)
	}
	middle := 1 << (bits - 1)
	q.format = integersOf(bits)
	q.codes = lazy.Stored(dtype.Int8, []int64{q.n, q.k}, &packed{r: words.content(), bits: bits, rows: q.n, cols: q.k, pitch: 4 * words.Shape[1], add: -middle})
	q.scales = scales.lazily()
	times := func(t *lazy.Tensor, by float32) *lazy.Tensor {
		return lazy.Dequantized(t, lazy.Constant(by, dtype.Float32), nil, lazy.OneScale, dtype.Float32)
	}
	by, _ := lazy.MapBroadcast(want, want)
	mins := times(biases.lazily(), -1).Minus(times(scales.lazily(), float32(middle)), by)
	q.mins = lazy.Stored(dtype.Float32, want, &encoded{x: mins, typ: dtype.Float32, name: biases.Name})
	return q, nil
}

// integersOf is the format of the least signed integers that have codes of so many bits.
func integersOf(bits int64) spec.Format {
	for _, f := range []spec.Format{spec.Int2, spec.Int4} {
		if int64(f.Bits()) >= bits {
			return f
		}
	}
	return spec.Int8
}
