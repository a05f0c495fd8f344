package nvfp4

import (
	"errors"
	"fmt"

	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// Tensor is a weight in NVFP4. Its blocks lie along the axis of length K, the reduction axis of the node
// that reads it.
type Tensor struct {
	Rows, K, Block int
	Columns        bool // the weight is [K, Rows], as MatMul has it; otherwise [Rows, K]
	TensorScale    float32
	Scales         []byte // E4M3, [Rows, ceil(K/Block)]; with Columns [ceil(K/Block), Rows]
	Packed         []byte // E2M1, two per byte, ceil(Rows*K/2) of them
}

// Encode quantizes a weight [N, K], rows of k elements, as a Gemm with transB has it. Blocks lie along
// each row, the last one shorter if the block size does not divide k. Encode fails if an element is NaN
// or infinite.
//
// A weight [K, N], as MatMul has it, would get blocks along the wrong axis: see [EncodeColumns].
func Encode(w []float32, k, block int) (*Tensor, error) {
	if k < 1 || block < 1 || len(w)%k != 0 {
		return nil, fmt.Errorf("%d elements in rows of %d and blocks of %d: want whole rows", len(w), k, block)
	}
	return (&Tensor{Rows: len(w) / k, K: k, Block: block}).filled(w)
}

// EncodeColumns is like [Encode] for a weight [K, N], as MatMul has it: blocks lie along its first axis.
// Codes and scales lie as a DequantizeLinear with axis 0 reads them.
func EncodeColumns(w []float32, k, n, block int) (*Tensor, error) {
	if k < 1 || n < 1 || block < 1 || len(w)%k != 0 || len(w)/k != n {
		return nil, fmt.Errorf("%d elements, blocks of %d: want a weight of %d rows of %d", len(w), block, k, n)
	}
	return (&Tensor{Rows: n, K: k, Block: block, Columns: true}).filled(w)
}

// filled quantizes the weight of a tensor whose sizes are known.
func (t *Tensor) filled(w []float32) (*Tensor, error) {
	var err error
	if t.TensorScale, err = TensorScale(kernels.AbsMax(0, w)); err != nil {
		return nil, err
	}
	c := Codec{TensorScale: t.TensorScale}
	s, q := make([]float32, t.blocks()), make([]byte, len(w))
	if !t.Columns {
		c.ObserveBlocks(nil, s, w, t.K, t.Block)
		c.Scales(s, nil, nil, s)
		c.EncodeBlocks(q, w, s, nil, t.K, t.Block)
	} else {
		for e, b := range blocks.Spans(t.K, t.Rows, t.Block) {
			scale, part := blocks.Cut(s, b), blocks.Cut(w, e)
			c.ObserveColumns(nil, scale, part)
			c.Scales(scale, nil, nil, scale)
			c.EncodeColumns(blocks.Cut(q, e), part, scale, nil)
		}
	}
	t.Scales = make([]byte, len(s))
	for i, v := range s {
		t.Scales[i] = ScaleByte(v)
	}
	t.Packed = make([]byte, (len(q)+1)/2)
	kernels.Pack4(t.Packed, q)
	return t, nil
}

// Decode returns the values of the codes, in float32.
func (t *Tensor) Decode() ([]float32, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	s := make([]float32, len(t.Scales))
	for i, b := range t.Scales {
		s[i] = kernels.E4M3FN.Values[b]
	}
	q, w := make([]byte, t.Rows*t.K), make([]float32, t.Rows*t.K)
	kernels.Unpack4(q, t.Packed, false)
	c := Codec{TensorScale: t.TensorScale}
	if !t.Columns {
		c.DecodeBlocks(w, q, s, nil, t.K, t.Block)
		return w, nil
	}
	for e, b := range blocks.Spans(t.K, t.Rows, t.Block) {
		c.DecodeColumns(blocks.Cut(w, e), blocks.Cut(q, e), blocks.Cut(s, b), nil)
	}
	return w, nil
}

// blocks returns the number of blocks.
func (t *Tensor) blocks() int { return t.Rows * ((t.K-1)/t.Block + 1) }

// check reports fields that do not fit together.
func (t *Tensor) check() error {
	if t.Rows < 0 || t.K < 1 || t.Block < 1 || t.Rows > 2*len(t.Packed)/t.K {
		return errors.New("NVFP4 tensor: rows, K and block fit no codes")
	}
	if len(t.Packed) != (t.Rows*t.K+1)/2 || len(t.Scales) != t.blocks() {
		return fmt.Errorf("NVFP4 tensor of %d rows of %d in blocks of %d: %d bytes of codes and %d scales do not fit",
			t.Rows, t.K, t.Block, len(t.Packed), len(t.Scales))
	}
	return nil
}
