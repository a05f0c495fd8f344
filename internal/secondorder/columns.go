// Package secondorder finds the codes of the columns of a weight whose error e has a small eᵀHe:
// the error of a layer's output, if H is the second moment of the layer's inputs. H is called
// Hessian here, as elsewhere.
//
// [Factor.Round] rounds one element after another and lets those that follow make up for the
// error, which is known as GPTQ. [Descent] then changes single codes and scales. Columns do not
// depend on each other: many are computed side by side, and results are the same whatever they
// are beside.
package secondorder

import (
	"onnxquant/int4"
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

// FitBlocks sets the codes, scales and zero points to those of a fitter, block by block.
func (c *Columns) FitBlocks(f Format, fitter int4.Fitter) {
	all, ok := fitter.(int4.ColumnFitter)
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
func (c *Columns) fitBlocks(f Format, fitter int4.Fitter, begin func(from, n int)) {
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
