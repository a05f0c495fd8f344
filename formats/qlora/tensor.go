package qlora

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// Kind is a way to turn the elements of a block into codes of four bits.
type Kind uint8

// The kinds of codes.
const (
	KindNF4    Kind = iota
	KindFP4         // of bitsandbytes
	KindLinear      // of the Rust crate entrenar
)

// String returns the kind's name: nf4, fp4 or linear.
func (k Kind) String() string {
	if k == KindLinear {
		return "linear"
	}
	return Table(k).String()
}

// Tensor is a flat tensor in blocks of BlockSize elements, in the order of memory, as QLoRA stores
// weights. The last block may be shorter. The package comment describes the two tables, used here in
// float32. A linear code q represents q·s, where
//
//	s = max|x| / 7
//	q = clamp(x/s, -7, 7) rounded, ties away from 0; in two's complement
//
// A block of zeros has s = 0 and codes 0. That is the crate's definition.
type Tensor struct {
	Kind   Kind
	N      int    // elements
	Codes  []byte // two per byte, the first in the high half; unused bits are 0
	Scales Scales // of blocks
}

// Scales are the scales of blocks, in one of several storage formats.
type Scales interface {
	Decode() []float32
	Bytes() int // that they take
}

// Plain are scales as float32.
type Plain []float32

// Decode returns a copy of the scales.
func (p Plain) Decode() []float32 { return slices.Clone(p) }

// Bytes returns 4 for each scale.
func (p Plain) Bytes() int { return 4 * len(p) }

// Quantize quantizes x, whose elements are finite.
func Quantize(k Kind, x []float32) (*Tensor, error) {
	if k > KindLinear {
		return nil, fmt.Errorf("kind %d of codes: want nf4, fp4 or linear", k)
	}
	if !kernels.IsFinite(kernels.AbsMax(0, x)) {
		return nil, fmt.Errorf("an element is NaN or infinite")
	}
	scales := make(Plain, (len(x)+BlockSize-1)/BlockSize)
	kernels.AbsMaxBlocks(scales, x, max(len(x), 1), BlockSize)
	q := make([]byte, len(x), len(x)+1)
	if k == KindLinear {
		for i := range scales {
			scales[i] /= 7
		}
		for i, v := range x {
			q[i] = linear(v, scales[i/BlockSize])
		}
	} else if len(x) > 0 {
		Codec{Table: Table(k), Type: dtype.Float32}.EncodeBlocks(q, x, scales, nil, len(x), BlockSize)
	}
	t := &Tensor{Kind: k, N: len(x), Codes: make([]byte, (len(x)+1)/2), Scales: scales}
	for i, c := range q {
		t.Codes[i/2] |= c << (4 * (1 - i%2))
	}
	return t, nil
}

// linear returns the linear code of v.
func linear(v, scale float32) byte {
	if scale == 0 {
		return 0 // a block of zeros, or of numbers too small for any scale
	}
	return byte(int(math.Round(float64(min(max(v/scale, -7), 7))))) & 15
}

// Decode returns the values of the codes.
func (t *Tensor) Decode() []float32 {
	scales := t.Scales.Decode()
	var values [16]float32
	if t.Kind == KindLinear {
		for c := range values {
			values[c] = float32(int8(c<<4) >> 4)
		}
	} else {
		values = Table(t.Kind).Values()
	}
	x := make([]float32, t.N)
	for i := range x {
		x[i] = values[t.Codes[i/2]>>(4*(1-i%2))&15] * scales[i/BlockSize]
	}
	return x
}

// Bytes returns the bytes of codes and scales.
func (t *Tensor) Bytes() int { return len(t.Codes) + t.Scales.Bytes() }

// Compression returns how many times fewer bytes that is than as float32, 1 for none.
func (t *Tensor) Compression() float64 {
	if t.N == 0 {
		return 1
	}
	return 4 * float64(t.N) / float64(t.Bytes())
}
