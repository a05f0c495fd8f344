package int4

import (
	"errors"
	"fmt"

	"onnxquant/internal/blocks"
)

// Tensor is a weight in codes of a Codec. Its blocks lie along the axis of length K, the reduction axis
// of the node that reads it.
type Tensor struct {
	Codec          Codec
	Rows, K, Block int
	Columns        bool      // the weight is [K, Rows], as MatMul has it; otherwise [Rows, K]
	Scales         []float32 // [Rows, ceil(K/Block)]; with Columns [ceil(K/Block), Rows]
	Zeros          []byte    // like Scales, one byte each; nil if the format stores none
	Packed         []byte    // PackedLen(Rows*K, Codec.Bits) bytes
}

// Encode quantizes a weight [N, K], rows of k elements, as a Gemm with transB has it. Blocks lie along
// each row, the last one shorter if the block size does not divide k. Encode fails if an element is NaN
// or infinite.
//
// A weight [K, N], as MatMul has it, would get blocks along the wrong axis: see [EncodeColumns].
func Encode(w []float32, k, block int, c Codec) (*Tensor, error) {
	if k < 1 || block < 1 || len(w)%k != 0 {
		return nil, fmt.Errorf("%d elements in rows of %d and blocks of %d: want whole rows", len(w), k, block)
	}
	return (&Tensor{Codec: c, Rows: len(w) / k, K: k, Block: block}).filled(w)
}

// EncodeColumns is like [Encode] for a weight [K, N], as MatMul has it: blocks lie along its first axis.
// Codes and scales lie as a DequantizeLinear with axis 0 reads them.
func EncodeColumns(w []float32, k, n, block int, c Codec) (*Tensor, error) {
	if k < 1 || n < 1 || block < 1 || len(w)%k != 0 || len(w)/k != n {
		return nil, fmt.Errorf("%d elements, blocks of %d: want a weight of %d rows of %d", len(w), block, k, n)
	}
	return (&Tensor{Codec: c, Rows: n, K: k, Block: block, Columns: true}).filled(w)
}

// filled quantizes the weight of a tensor whose sizes are known.
func (t *Tensor) filled(w []float32) (*Tensor, error) {
	c := t.Codec
	if err := c.Validate(); err != nil {
		return nil, err
	}
	lo, hi := make([]float32, t.blocks()), make([]float32, t.blocks())
	if !t.Columns {
		c.ObserveBlocks(lo, hi, w, t.K, t.Block)
	} else {
		for e, b := range blocks.Spans(t.K, t.Rows, t.Block) {
			c.ObserveColumns(blocks.Cut(lo, b), blocks.Cut(hi, b), blocks.Cut(w, e))
		}
	}
	t.Scales = make([]float32, t.blocks())
	if c.HasZeroPoints() {
		t.Zeros = make([]byte, t.blocks())
	}
	if !c.Scales(t.Scales, t.Zeros, lo, hi) {
		return nil, errors.New("an element is NaN or infinite")
	}
	q := make([]byte, len(w))
	if !t.Columns {
		c.EncodeBlocks(q, w, t.Scales, t.Zeros, t.K, t.Block)
	} else {
		for e, b := range blocks.Spans(t.K, t.Rows, t.Block) {
			c.EncodeColumns(blocks.Cut(q, e), blocks.Cut(w, e), blocks.Cut(t.Scales, b), blocks.Cut(t.Zeros, b))
		}
	}
	t.Packed = make([]byte, PackedLen(len(q), c.Bits))
	Pack(t.Packed, q, c.Bits)
	return t, nil
}

// Decode returns the values of the codes, rounded to the type of the codec.
func (t *Tensor) Decode() ([]float32, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	q, w := make([]byte, t.Rows*t.K), make([]float32, t.Rows*t.K)
	Unpack(q, t.Packed, t.Codec.Bits, t.Codec.Signed)
	if !t.Columns {
		t.Codec.DecodeBlocks(w, q, t.Scales, t.Zeros, t.K, t.Block)
		return w, nil
	}
	for e, b := range blocks.Spans(t.K, t.Rows, t.Block) {
		t.Codec.DecodeColumns(blocks.Cut(w, e), blocks.Cut(q, e), blocks.Cut(t.Scales, b), blocks.Cut(t.Zeros, b))
	}
	return w, nil
}

// blocks returns the number of blocks.
func (t *Tensor) blocks() int { return t.Rows * ((t.K-1)/t.Block + 1) }

// check reports fields that do not fit together.
func (t *Tensor) check() error {
	if err := t.Codec.Validate(); err != nil {
		return err
	}
	if t.Rows < 0 || t.K < 1 || t.Block < 1 || t.Rows > len(t.Packed)*8/t.Codec.Bits/t.K {
		return errors.New("rows, K and block fit no codes")
	}
	zeros := 0
	if t.Codec.HasZeroPoints() {
		zeros = t.blocks()
	}
	if len(t.Packed) != PackedLen(t.Rows*t.K, t.Codec.Bits) || len(t.Scales) != t.blocks() || len(t.Zeros) != zeros {
		return fmt.Errorf("a tensor of %d rows of %d in blocks of %d: %d bytes of codes, %d scales and %d zero points do not fit",
			t.Rows, t.K, t.Block, len(t.Packed), len(t.Scales), len(t.Zeros))
	}
	return nil
}
