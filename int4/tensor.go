package int4

import (
	"errors"
	"fmt"
)

// Tensor is a weight of rows of k elements, in codes of a Codec.
type Tensor struct {
	Codec          Codec
	Rows, K, Block int
	Scales         []float32 // [Rows, ceil(K/Block)]
	Zeros          []byte    // like Scales, one byte each; nil if the format stores none
	Packed         []byte    // PackedLen(Rows*K, Codec.Bits) bytes
}

// Encode quantizes a weight, rows of k elements, in blocks along each row, the last one shorter if the
// block size does not divide k. It fails if an element is NaN or infinite.
func Encode(w []float32, k, block int, c Codec) (*Tensor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if k < 1 || block < 1 || len(w)%k != 0 {
		return nil, fmt.Errorf("%d elements in rows of %d and blocks of %d: want whole rows", len(w), k, block)
	}
	t := &Tensor{Codec: c, Rows: len(w) / k, K: k, Block: block}
	lo, hi := make([]float32, t.blocks()), make([]float32, t.blocks())
	c.ObserveBlocks(lo, hi, w, k, block)
	t.Scales = make([]float32, t.blocks())
	if c.HasZeroPoints() {
		t.Zeros = make([]byte, t.blocks())
	}
	if !c.Scales(t.Scales, t.Zeros, lo, hi) {
		return nil, errors.New("an element is NaN or infinite")
	}
	q := make([]byte, len(w))
	c.EncodeBlocks(q, w, t.Scales, t.Zeros, k, block)
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
	t.Codec.DecodeBlocks(w, q, t.Scales, t.Zeros, t.K, t.Block)
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
