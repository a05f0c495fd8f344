package nvfp4

import (
	"errors"
	"fmt"

	"onnxquant/internal/kernels"
)

// Tensor is a weight of rows of k elements, in NVFP4.
type Tensor struct {
	Rows, K, Block int
	TensorScale    float32
	Scales         []byte // E4M3, [Rows, ceil(K/Block)]
	Packed         []byte // E2M1, two per byte, ceil(Rows*K/2) of them
}

// Encode quantizes a weight, rows of k elements, in blocks along each row, the last one shorter if the
// block size does not divide k. It fails if an element is NaN or infinite.
func Encode(w []float32, k, block int) (*Tensor, error) {
	if k < 1 || block < 1 || len(w)%k != 0 {
		return nil, fmt.Errorf("%d elements in rows of %d and blocks of %d: want whole rows", len(w), k, block)
	}
	scale, err := TensorScale(kernels.AbsMax(0, w))
	if err != nil {
		return nil, err
	}
	t := &Tensor{Rows: len(w) / k, K: k, Block: block, TensorScale: scale}
	c := Codec{TensorScale: scale}
	s := make([]float32, t.blocks())
	c.ObserveBlocks(nil, s, w, k, block)
	c.Scales(s, nil, nil, s)
	q := make([]byte, len(w))
	c.EncodeBlocks(q, w, s, nil, k, block)
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
	Codec{TensorScale: t.TensorScale}.DecodeBlocks(w, q, s, nil, t.K, t.Block)
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
