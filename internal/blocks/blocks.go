// Package blocks holds what the codecs of the number packages share: passes over
// blocks whose codes stand for the values of a table, and the types and errors of
// package quantutil as the kernels have them.
//
// Blocks lie in columns, where each column of a piece is part of one, or in rows of k
// elements that are cut into blocks from their start.
package blocks

import (
	"onnxquant/internal/kernels"
	"onnxquant/quantutil"
)

// Values are what codes stand for, before their block's scale.
type Values = [256]float32

// ObserveColumns raises amax to the largest magnitudes of the columns of x.
func ObserveColumns(amax, x []float32) {
	kernels.CheckColumns(len(x), len(amax))
	kernels.AbsMaxColumns(amax, x)
}

// ObserveBlocks raises amax to the largest magnitudes of the blocks of rows.
func ObserveBlocks(amax, x []float32, k, block int) {
	kernels.AbsMaxBlocks(amax, x, k, block)
}

// DecodeColumns sets x to values·(scale·outer), rounded to t, for codes q in columns.
func DecodeColumns(x []float32, q []byte, scale []float32, outer float32, values *Values, t quantutil.DType) {
	kernels.CheckColumns(len(q), len(scale))
	kernels.DecodeColumns(x, q, scale, outer, values)
	t.RoundAll(x[:len(q)])
}

// DecodeBlocks does for blocks of rows what DecodeColumns does for columns.
func DecodeBlocks(x []float32, q []byte, scale []float32, outer float32, k, block int, values *Values, t quantutil.DType) {
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DecodeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i]*outer, values)
	}
	t.RoundAll(x[:len(q)])
}

// Type returns the type that decoded values are rounded to, as the kernels call it.
func Type(t quantutil.DType) kernels.Type {
	switch t {
	case quantutil.Float16:
		return kernels.Float16
	case quantutil.BFloat16:
		return kernels.BFloat16
	}
	return kernels.Float32
}

// Stats returns the errors of n elements.
func Stats(n int, s *kernels.ErrorSums) quantutil.ErrorStats {
	sqErr, sq, maxAbs := s.Totals()
	return quantutil.ErrorStats{N: int64(n), MaxAbs: maxAbs, SumSqErr: sqErr, SumSq: sq}
}
