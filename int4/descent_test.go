package int4

import (
	"math/rand/v2"
	"testing"
)

// The error of a column, measured with the Hessian, is below that of the codes it begins with.
func TestDescent(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const k, block = 70, 16
	for c := range codecs {
		w := randomBlock(r, k*k, 0)
		h := make([]float32, k*k)
		for i := range k {
			for j := range k {
				for n := range k {
					h[i*k+j] += w[i*k+n] * w[j*k+n] / k
				}
			}
			h[i*k+i] += 0.1
		}
		for _, x := range [][]float32{randomBlock(r, k, c.Type), make([]float32, k), edgeColumn(k)} {
			c.Type.RoundAll(x)
			begun, reached := c.LeastAngle(false), c.Descent(h, k, block, false)
			q, scale, zero := make([]byte, k), make([]float32, 5), make([]byte, 5)
			for i := range scale {
				from, to := i*block, min((i+1)*block, k)
				scale[i], zero[i] = begun.Fit(q[from:to], x[from:to])
			}
			before := c.measured(h, q, x, scale, zero, block)
			reached.Fit(q, x, scale, zero)
			if after := c.measured(h, q, x, scale, zero, block); !(after <= before*1.001+1e-9*sumOfSquares(x)) {
				t.Errorf("%v: error %v, at first %v", c, after, before)
			}
		}
	}
}

// edgeColumn has blocks of zeros, of one value and of small ones.
func edgeColumn(k int) []float32 {
	x := make([]float32, k)
	for i := range x[:k/2] {
		x[i] = 0.3
	}
	x[k-1], x[k-2] = 1e-6, -1000
	return x
}

// measured is eᵀHe of decoded codes.
func (c Codec) measured(h []float32, q []byte, x, scale []float32, zero []byte, block int) (sum float64) {
	y := make([]float32, len(x))
	c.DecodeBlocks(y, q, scale, zero, len(x), block)
	for i := range x {
		for j := range x {
			sum += float64(y[i]-x[i]) * float64(h[i*len(x)+j]) * float64(y[j]-x[j])
		}
	}
	return sum
}
