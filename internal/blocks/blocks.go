// Package blocks has the code that the codecs of number packages share. That is: loops over blocks
// whose codes represent the values of a table, searches for single blocks ([Fitter], [Search]), and
// conversions of types and errors between dtype, errstat and the kernels.
//
// Blocks lie in columns, where each column of a piece is part of one, or in rows of k elements that
// are cut into blocks from their start. The caller owns all slices.
package blocks

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/kernels"
)

// Values are the values of codes, before scaling.
type Values = [256]float32

// Symmetric has the methods that all codecs without zero points share.
type Symmetric struct{}

// HasZeroPoints returns false.
func (Symmetric) HasZeroPoints() bool { return false }

// ObserveColumns raises hi, the amax of blocks that lie in columns, by the elements of some
// rows. hi starts as 0; lo is ignored.
func (Symmetric) ObserveColumns(lo, hi, x []float32) {
	kernels.CheckColumns(len(x), len(hi))
	kernels.AbsMaxColumns(hi, x)
}

// ObserveBlocks raises hi, the amax of blocks that lie in rows of k elements. hi starts as
// 0; lo is ignored.
func (Symmetric) ObserveBlocks(lo, hi, x []float32, k, block int) {
	kernels.AbsMaxBlocks(hi, x, k, block)
}

// Scales sets the scale of each block of finite amax, and reports whether all are finite.
func Scales(scale, amax []float32, of func(amax float32) float32) (finite bool) {
	finite = true
	for i, a := range amax {
		if !kernels.IsFinite(a) {
			finite = false
			continue
		}
		scale[i] = of(a)
	}
	return finite
}

// QuantizeColumns sets q to the codes of x, rows of len(scale) finite elements, and returns the errors of
// the decoded codes. outer is a scale of the whole tensor.
func QuantizeColumns(q []byte, x, scale []float32, outer float32, kind *kernels.MiniFloat, t dtype.DType) errstat.Stats {
	var s kernels.ErrorSums
	kernels.QuantizeFloatColumns(q, x, scale, outer, kind, Type(t), &s)
	return Stats(len(x), &s)
}

// QuantizeBlocks is QuantizeColumns for rows of k elements cut into blocks.
func QuantizeBlocks(q []byte, x, scale []float32, outer float32, k, block int, kind *kernels.MiniFloat, t dtype.DType) errstat.Stats {
	var s kernels.ErrorSums
	kernels.QuantizeFloatBlocks(q, x, scale, outer, k, block, kind, Type(t), &s)
	return Stats(len(x), &s)
}

// DecodeColumns sets x to values·(scale·outer), rounded to t, for codes q in columns.
func DecodeColumns(x []float32, q []byte, scale []float32, outer float32, values *Values, t dtype.DType) {
	kernels.CheckColumns(len(q), len(scale))
	kernels.DecodeColumns(x, q, scale, outer, values)
	t.RoundAll(x[:len(q)])
}

// DecodeBlocks is DecodeColumns for blocks that lie in rows.
func DecodeBlocks(x []float32, q []byte, scale []float32, outer float32, k, block int, values *Values, t dtype.DType) {
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DecodeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i]*outer, values)
	}
	t.RoundAll(x[:len(q)])
}

// CheckType returns an error for a type of weights that cannot be quantized in pieces of float32: any
// but Float32 (or 0), Float16 and BFloat16.
func CheckType(t dtype.DType) error {
	switch t {
	case 0, dtype.Float32, dtype.Float16, dtype.BFloat16:
		return nil
	}
	return fmt.Errorf("weights of type %s: want float32, float16 or bfloat16", t)
}

// Type returns the type that decoded values are rounded to, for package kernels.
func Type(t dtype.DType) kernels.Type {
	switch t {
	case dtype.Float16:
		return kernels.Float16
	case dtype.BFloat16:
		return kernels.BFloat16
	}
	return kernels.Float32
}

// Stats returns the errors of n elements.
func Stats(n int, s *kernels.ErrorSums) errstat.Stats {
	sqErr, sq, maxAbs := s.Totals()
	return errstat.Stats{N: int64(n), MaxAbs: maxAbs, SumSqErr: sqErr, SumSq: sq}
}
