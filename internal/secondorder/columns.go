// Package secondorder finds codes for the columns of a weight so that eᵀHe is small for the error e.
// That is the error of a layer's output if H, the Hessian, is the second moment of the layer's inputs.
//
// [Factor.Round] rounds one element after another and compensates each error in the elements that
// follow: this is GPTQ. [Descent] then changes single codes and scales. [Search] combines the two,
// [Clip] searches clipping ranges. The codes are written into [Columns], which the caller owns.
// Columns are independent: many are computed side by side, with the same results in any grouping.
package secondorder

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
)

// Columns are some columns of a weight side by side: row i of a matrix has element i of each.
type Columns struct {
	K, N    int
	Weights []float32 // K rows
	Codes   []byte    // K rows
	Scales  []float32 // a row for each block
	Zeros   []byte    // a row for each block
}

// Resize makes room for n columns of k elements.
func (c *Columns) Resize(k, n int, f Format) {
	c.K, c.N = k, n
	blocks := (k-1)/f.Block + 1
	buffer.Grow(&c.Weights, int64(k*n))
	buffer.Grow(&c.Codes, int64(k*n))
	buffer.Grow(&c.Scales, int64(blocks*n))
	buffer.Grow(&c.Zeros, int64(blocks*n))
}

// Take copies the codes, scales and zero points of other columns, of the same format.
func (c *Columns) Take(from *Columns, f Format) {
	c.Resize(from.K, from.N, f)
	copy(c.Codes, from.Codes)
	copy(c.Scales, from.Scales)
	copy(c.Zeros, from.Zeros)
}

// FitBlocks sets codes, scales and zero points by a Fitter, block by block.
func (c *Columns) FitBlocks(f Format, fitter blocks.Fitter) {
	all, ok := fitter.(blocks.ColumnFitter)
	if !ok {
		c.fitBlocks(f, fitter, func(int, int) {})
		return
	}
	for from := 0; from < c.K; from += f.Block {
		to, b := min(from+f.Block, c.K), from/f.Block
		all.FitColumns(c.Codes[from*c.N:to*c.N], c.Weights[from*c.N:to*c.N], c.Scales[b*c.N:][:c.N], c.Zeros[b*c.N:][:c.N])
	}
}

// fitBlocks is FitBlocks. It calls begin for the rows of each block.
func (c *Columns) fitBlocks(f Format, fitter blocks.Fitter, begin func(from, n int)) {
	q, x := make([]byte, min(f.Block, c.K)), make([]float32, min(f.Block, c.K))
	for from := 0; from < c.K; from += f.Block {
		n := min(f.Block, c.K-from)
		begin(from, n)
		scales, zeros := c.Scales[from/f.Block*c.N:][:c.N], c.Zeros[from/f.Block*c.N:][:c.N]
		for j := range c.N {
			for i := range n {
				x[i] = c.Weights[(from+i)*c.N+j]
			}
			scales[j], zeros[j] = fitter.Fit(q[:n], x[:n])
			for i := range n {
				c.Codes[(from+i)*c.N+j] = q[i]
			}
		}
	}
}

// matrix is a matrix of k rows and N columns.
func (c *Columns) matrix(data []float32) linalg.Matrix {
	return linalg.Of(data, len(data)/c.N, c.N)
}

// Decode sets x to the decoded codes, K rows.
func (c *Columns) Decode(f Format, x []float32) {
	for i := range c.K {
		b := i / f.Block * c.N
		if f.Levels != nil {
			for j, q := range c.Codes[i*c.N:][:c.N] {
				x[i*c.N+j] = f.value(f.Levels.Values[q], c.Scales[b+j])
			}
			continue
		}
		f.Codec.DecodeColumns(x[i*c.N:][:c.N], c.Codes[i*c.N:][:c.N], c.Scales[b:][:c.N], c.Zeros[b:][:c.N])
	}
}
