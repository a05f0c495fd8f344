// Package blocks holds what the codecs of the number packages share: passes over
// blocks whose codes stand for the values of a table, and element types and errors
// between package dtype, package errstat and the kernels.
//
// Blocks lie in columns, where each column of a piece is part of one, or in rows of k
// elements that are cut into blocks from their start.
package blocks

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/kernels"
)

// Values are what codes stand for, before their block's scale.
type Values = [256]float32

// Symmetric has the methods that all codecs without zero points share.
type Symmetric struct{}

// HasZeroPoints returns false.
func (Symmetric) HasZeroPoints() bool { return false }

// ObserveColumns raises hi, which starts as 0, to the largest magnitudes of blocks
// that lie in columns, by some of their rows. lo is not used.
func (Symmetric) ObserveColumns(lo, hi, x []float32) {
	kernels.CheckColumns(len(x), len(hi))
	kernels.AbsMaxColumns(hi, x)
}

// ObserveBlocks raises hi, which starts as 0, to the largest magnitudes of blocks
// that lie in rows of k elements. lo is not used.
func (Symmetric) ObserveBlocks(lo, hi, x []float32, k, block int) {
	kernels.AbsMaxBlocks(hi, x, k, block)
}

// DecodeColumns sets x to values·(scale·outer), rounded to t, for codes q in columns.
func DecodeColumns(x []float32, q []byte, scale []float32, outer float32, values *Values, t dtype.DType) {
	kernels.CheckColumns(len(q), len(scale))
	kernels.DecodeColumns(x, q, scale, outer, values)
	t.RoundAll(x[:len(q)])
}

// DecodeBlocks does for blocks of rows what DecodeColumns does for columns.
func DecodeBlocks(x []float32, q []byte, scale []float32, outer float32, k, block int, values *Values, t dtype.DType) {
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DecodeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i]*outer, values)
	}
	t.RoundAll(x[:len(q)])
}

// CheckType reports a type that weights quantized as a stream, in pieces of float32,
// cannot have. They are Float32, which 0 stands for too, Float16 or BFloat16.
func CheckType(t dtype.DType) error {
	switch t {
	case 0, dtype.Float32, dtype.Float16, dtype.BFloat16:
		return nil
	}
	return fmt.Errorf("weights of type %s: want float32, float16 or bfloat16", t)
}

// Type returns the type that decoded values are rounded to, as the kernels call it.
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
