package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
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
	return c.affineOf(module, words)
}

// affineOf is affine for words of one matrix, or of the matrices of experts [experts, N, words]; n of the codes counts the rows of all.
func (c *checkpoint) affineOf(module string, words tensor) (*codes, error) {
	rows, pitch := words.Shape[:len(words.Shape)-1], words.Shape[len(words.Shape)-1]
	q := &codes{from: "MLX", n: shapes.Count(rows)}
	c.use(q, module+"weight")
	scales, biases := c.use(q, module+"scales"), c.use(q, module+"biases")
	m, err := c.config.mlx(strings.TrimSuffix(module, "."))
	if err != nil {
		return nil, err
	}
	bits, group := int64(m.Bits), int64(m.Group)
	if bits < 2 || bits > 8 || bits == 7 || group < 1 {
		return nil, fmt.Errorf("MLX of %d bits in groups of %d is not known: config.json beside it must say 2, 3, 4, 5, 6 or 8 bits, and a group_size", bits, group)
	}
	q.k, q.block = 32*pitch/bits, group
	stored := slices.Concat(rows, []int64{q.k / group})
	if q.k*bits != 32*pitch || q.k%group != 0 || scales == nil || biases == nil || !slices.Equal(scales.Shape, stored) || !slices.Equal(biases.Shape, stored) {
		return nil, fmt.Errorf("scales and biases must have the shape %v, for codes of %d bits in groups of %d", stored, bits, group)
	}
	want := []int64{q.n, q.k / group}
	middle := 1 << (bits - 1)
	q.format = integersOf(bits)
	q.codes = lazy.Stored(dtype.Int8, []int64{q.n, q.k}, &packed{r: words.content(), bits: bits, rows: q.n, cols: q.k, pitch: 4 * pitch, add: -middle})
	q.scales = scales.lazily().Reshaped(want)
	times := func(t *lazy.Tensor, by float32) *lazy.Tensor {
		return lazy.Dequantized(t, lazy.Constant(by, dtype.Float32), nil, lazy.OneScale, dtype.Float32)
	}
	by, _ := lazy.MapBroadcast(want, want)
	mins := times(biases.lazily().Reshaped(want), -1).Minus(times(q.scales, float32(middle)), by)
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
