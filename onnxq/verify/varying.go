package verify

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/run/execute"
)

// varyingSQNR is the SQNR, in dB, of output i relative to what differs between rows: Σ(float - mean)² /
// Σerror². The mean is that of a column over the rows along the last axis, or of all elements if there is one row
// or one column. What all inputs give says nothing about an input. It is -999 if nothing differs.
func varyingSQNR(a, b [][]*execute.Tensor, i int) float64 {
	if first := a[0][i]; first.DType == dtype.String || first.List != nil {
		return -errstat.Exact
	}
	columns := 1
	if dims := a[0][i].Dims; len(dims) > 0 {
		columns = int(dims[len(dims)-1])
	}
	var x, y []float64
	for run := range a {
		p, q := a[run][i].Float64s(), b[run][i].Float64s()
		if len(p) != len(q) || columns == 0 || len(p)%columns != 0 {
			return -errstat.Exact
		}
		x, y = append(x, p...), append(y, q...)
	}
	if len(x) == columns {
		columns = 1
	}
	sums, counts, squares := make([]float64, columns), make([]float64, columns), make([]float64, columns)
	signal, noise := 0.0, 0.0
	for k, v := range x {
		e := y[k] - v
		if math.IsNaN(e) || math.IsInf(e, 0) {
			continue
		}
		c := k % columns
		sums[c], counts[c], squares[c] = sums[c]+v, counts[c]+1, squares[c]+v*v
		noise += e * e
	}
	for c := range sums {
		if counts[c] > 0 {
			signal += max(squares[c]-sums[c]*sums[c]/counts[c], 0)
		}
	}
	switch {
	case noise == 0:
		return errstat.Exact
	case signal == 0:
		return -errstat.Exact
	}
	return min(max(10*math.Log10(signal/noise), -errstat.Exact), errstat.Exact)
}

// rowsOf counts the rows of output i along its last axis, in all runs.
func rowsOf(a [][]*execute.Tensor, i int) (rows int) {
	for _, run := range a {
		n := 1
		if dims := run[i].Dims; len(dims) > 0 {
			for _, d := range dims[:len(dims)-1] {
				n *= int(d)
			}
		}
		rows += n
	}
	return rows
}
