package checkpoint

import (
	"errors"
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// AWQ packs the codes of eight columns into a word in this order.
var interleaved = []int64{0, 2, 4, 6, 1, 3, 5, 7}

// packedDown reads a weight as AutoGPTQ, GPTQModel and AutoAWQ write it:
//
//	qweight  I32 [K·bits/32, N]  GPTQ: words hold codes of one column, along K
//	         I32 [K, N/8]        AWQ: words hold codes of eight columns, interleaved
//	qzeros   I32 [K/group, N·bits/32]; GPTQ's first format has zero points minus 1
//	scales   F16 [K/group, N]
//	g_idx    I32 [K]             GPTQ: group of each index of K
func (c *checkpoint) packedDown(module string) (*codes, error) {
	q := &codes{from: "GPTQ", down: true}
	words, scales, zeros := c.use(q, module+"qweight"), c.use(q, module+"scales"), c.use(q, module+"qzeros")
	if scales == nil || zeros == nil || len(scales.Shape) != 2 || len(words.Shape) != 2 || words.Type != "I32" || zeros.Type != "I32" {
		return nil, fmt.Errorf("it needs qzeros and scales beside it, as GPTQ and AWQ write them: I32 matrices, and floats")
	}
	groups := scales.Shape[0]
	q.n, q.scales = scales.Shape[1], scales.lazily()
	bits, order, plus := int64(c.config.Bits), []int64(nil), 0
	var err error
	index := c.use(q, module+"g_idx")
	if words.Shape[1] == q.n { // GPTQ
		if bits == 0 && index != nil && index.elements() > 0 {
			bits = 32 * words.Shape[0] / index.elements()
		}
		if bits == 0 {
			bits = 4
		}
		if bits != 2 && bits != 3 && bits != 4 && bits != 8 {
			return nil, fmt.Errorf("GPTQ of %d bits is not known: want 2, 3, 4 or 8", bits)
		}
		q.k = 32 * words.Shape[0] / bits
		if err := fits(zeros, groups, q.n, bits); err != nil {
			return nil, err
		}
		if plus, err = c.lessOne(q, zeros, bits, groups); err != nil {
			return nil, err
		}
		q.codes = lazy.Stored(dtype.Uint8, []int64{q.k, q.n}, &packed{r: words.content(), bits: bits, rows: q.k, cols: q.n, pitch: 4 * q.n, down: true})
	} else {
		q.from, bits, order = "AWQ", 4, inverse(interleaved)
		if q.k = words.Shape[0]; words.Shape[1]*8 != q.n || c.config.Bits != 0 && c.config.Bits != 4 {
			return nil, fmt.Errorf("its shape %v beside scales of %v is neither GPTQ's nor AWQ's gemm format of 4 bits", words.Shape, scales.Shape)
		}
		q.codes = lazy.Stored(dtype.Uint8, words8(words.Shape), &packed{r: words.content(), bits: 4, rows: q.k, cols: q.n, pitch: 4 * words.Shape[1], order: order})
	}
	if err := fits(zeros, groups, q.n, bits); err != nil {
		return nil, err
	}
	q.block = c.config.blockOf(q.k, groups)
	grid := &packed{r: zeros.content(), bits: bits, rows: groups, cols: q.n, pitch: bytesIn(q.n, bits), order: order, add: plus}
	q.zeros = lazy.Stored(dtype.Uint8, scales.Shape, grid)
	if err := q.settle(bits); err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	return q, q.ordered(index)
}

// lessOne returns what is missing from stored zero points: 1 in GPTQ's first format, 0 in the second one. Where no
// configuration tells the format, zero points that are all the middle do.
func (c *checkpoint) lessOne(q *codes, zeros *tensor, bits, groups int64) (int, error) {
	switch {
	case c.config.Format == "gptq_v2":
		return 0, nil
	case c.config.told:
		return 1, nil
	}
	stored := &codes{zeros: lazy.Stored(dtype.Uint8, []int64{groups, q.n}, &packed{r: zeros.content(), bits: bits, rows: groups, cols: q.n, pitch: bytesIn(q.n, bits)})}
	for less := range 2 {
		if _, middle, err := stored.zeroPoints(float32(int64(1)<<(bits-1) - int64(less))); middle || err != nil {
			return less, err
		}
	}
	return 0, errors.New("is it GPTQ's format 1 or 2? Zero points differ by 1: put config.json beside the file, whose checkpoint_format says it")
}

// fits returns an error unless zero points are those of groups and columns.
func fits(zeros *tensor, groups, columns, bits int64) error {
	if groups < 1 || zeros.elements()*4 != groups*bytesIn(columns, bits) {
		return fmt.Errorf("qzeros of shape %v do not fit %d groups of %d columns", zeros.Shape, groups, columns)
	}
	return nil
}

func words8(shape []int64) []int64 { return []int64{shape[0], 8 * shape[1]} }

// settle chooses the format of unsigned codes: signed ones where all zero points are in the middle.
func (q *codes) settle(bits int64) error {
	most, middle, err := q.zeroPoints(float32(int64(1) << (bits - 1)))
	if err != nil {
		return err
	}
	stored := bits
	for stored != 2 && stored != 4 && stored != 8 || stored < 8 && most >= float32(int64(1)<<stored) {
		stored++ // a type of integers that has these codes and zero points
	}
	q.format = spec.Format(fmt.Sprintf("uint%d", stored))
	if middle && stored == bits {
		half := 1 << (bits - 1)
		q.format, q.zeros = spec.Format(fmt.Sprintf("int%d", bits)), nil
		q.codes = lazy.Stored(dtype.Int8, q.codes.Shape, &shifted{q.codes.Stored, -half})
	}
	return nil
}

// zeroPoints returns the largest zero point, and whether all are the middle one.
func (q *codes) zeroPoints(middle float32) (most float32, all bool, err error) {
	all = true
	x := make([]float32, lazy.MaxRead)
	a := new(lazy.Arena)
	for at, n := int64(0), q.zeros.Size(); at < n; at += lazy.MaxRead {
		part := x[:min(lazy.MaxRead, n-at)]
		if err := q.zeros.Read(a, part, at); err != nil {
			return 0, false, err
		}
		for _, v := range part {
			most, all = max(most, v), all && v == middle
		}
	}
	return most, all, nil
}

// ordered takes account of the groups of GPTQ's act-order: indices of K of one group need not follow each other.
func (q *codes) ordered(index *tensor) error {
	if index == nil {
		return nil
	}
	if t := index.Type.DType(); index.elements() != q.k || t != dtype.Int32 && t != dtype.Int64 {
		return fmt.Errorf("g_idx of type %s and shape %v: want %d integers, a group for each input", index.Type, index.Shape, q.k)
	}
	groups := make([]float32, q.k)
	if err := index.lazily().ReadAll(new(lazy.Arena), groups, 0); err != nil {
		return err
	}
	straight, count := true, float32(shapes.DivideUp(q.k, q.block))
	for i, g := range groups {
		if g < 0 || g >= count {
			return fmt.Errorf("g_idx has group %v of %v", g, count)
		}
		straight = straight && g == float32(int64(i)/q.block)
	}
	if straight {
		return nil
	}
	q.order = byGroup(groups, q.block)
	of, scales, zeros, n := q.codes, q.scales, q.zeros, q.n
	q.why = "act-order (g_idx), read by more than products"
	q.loose = &lazy.Tensor{DType: dtype.Float32, Shape: of.Shape, Read: func(a *lazy.Arena, dst []float32, off int64) error {
		if err := of.Read(a, dst, off); err != nil {
			return err
		}
		scale, release := a.Float32s(len(dst))
		defer release()
		for from := int64(0); from < int64(len(dst)); {
			row, col := (off+from)/n, (off+from)%n
			run := dst[from:min(int64(len(dst)), from+n-col)]
			at := int64(groups[row])*n + col
			if zeros != nil {
				if err := zeros.Read(a, scale[:len(run)], at); err != nil {
					return err
				}
				for i := range run {
					run[i] -= scale[i]
				}
			}
			if err := scales.Read(a, scale[:len(run)], at); err != nil {
				return err
			}
			for i := range run {
				run[i] *= scale[i]
			}
			from += int64(len(run))
		}
		return nil
	}}
	return nil
}
