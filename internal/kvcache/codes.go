package kvcache

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
)

// scaleOf returns a function with the scale of each element of a cache with a shape.
func scaleOf(scales []float32, dims []int64) (func(i int) float32, error) {
	n := len(scales)
	if n == 1 {
		return func(int) float32 { return scales[0] }, nil
	}
	if len(dims) == 4 {
		heads, tokens, size := int(dims[1]), int(dims[2]), int(dims[3])
		switch n {
		case heads:
			return func(i int) float32 { return scales[i/max(tokens*size, 1)%heads] }, nil
		case heads * size:
			return func(i int) float32 { return scales[i/max(tokens*size, 1)%heads*size+i%size] }, nil
		}
	}
	return nil, fmt.Errorf("%d scales do not fit a cache of shape %d", n, dims)
}

// Encode returns the codes of floats.
func (c *Codes) Encode(dims []int64, x []float32) ([]byte, error) {
	scale, err := scaleOf(c.Scales, dims)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCache, c.Input, err)
	}
	codes := make([]byte, len(x))
	for i, v := range x {
		q := math.RoundToEven(float64(v / scale(i)))
		codes[i] = byte(int8(max(min(q, 127), -128)))
	}
	return codes, nil
}

// Decode returns the floats of codes.
func (c *Codes) Decode(dims []int64, codes []byte) ([]float32, error) {
	scale, err := scaleOf(c.Scales, dims)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCache, c.Output, err)
	}
	x := make([]float32, len(codes))
	for i, q := range codes {
		x[i] = float32(int8(q)) * scale(i)
	}
	return x, nil
}

// Codes is a cache of a model that is int8.
type Codes struct {
	Input, Output string
	Scales        []float32   // one, one per head, or one per channel of each head
	Was           dtype.DType // the type of floats

	inner        dtype.DType // the type of floats at the operator
	node, in     int         // GroupQueryAttention, in the main graph; -1: QuantizeLinear and DequantizeLinear
	decode       []int       // DequantizeLinear and Mul, in the main graph
	encode       []int       // Div and QuantizeLinear
	scale, zeros string
}
