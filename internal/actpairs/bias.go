package actpairs

import (
	"encoding/binary"
	"io"
	"math"
	"sync/atomic"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Bias is the third input of a node, quantized to int32. Its scale is the scale of the first input
// times that of the second, so that its codes can be added to products of codes.
type Bias struct {
	Node  *onnxpb.NodeProto
	Value *graph.Value
	X, W  *Tensor

	// Shift is added to the elements, to correct the mean of the product; or nil.
	Shift []float32

	x, w   *graph.Value
	reader int // number of Node
	file   *modelfile.Model
	from   *modelfile.Payload
	broken atomic.Bool
}

// maxBias is the largest number of elements of a bias in memory.
const maxBias = 1 << 20

// settle reports whether a bias can be quantized: both scales are known, and there is one element
// for each scale.
func (b *Bias) settle(p *Plan) bool {
	b.X, b.W = p.ReadBy(p.found[b.x], b.reader), p.found[b.w]
	if b.X == nil || b.W == nil || b.X.scales() != 1 || p.found[b.Value] != nil {
		return false
	}
	dims := b.Value.Tensor.GetDims()
	n, err := dtype.Elements(dims)
	if err != nil || n > maxBias || b.W.scales() != 1 && (len(dims) != 1 || n != b.W.scales()) {
		return false
	}
	if b.from, err = b.file.Payload(b.Value.Tensor); err != nil {
		return false
	}
	if s := b.W.Stored; s != nil {
		s.biases = append(s.biases, b)
	}
	return true
}

// scales is the number of scales of a tensor.
func (t *Tensor) scales() int64 {
	switch {
	case t.Like != nil:
		return t.Like.scales()
	case t.Stored != nil:
		return t.channels
	}
	return 1
}

// Params returns the scales and zero points of a tensor.
func (t *Tensor) Params() ([]Params, error) {
	switch {
	case t.Like != nil:
		return t.Like.Params()
	case t.Stored != nil:
		return t.Stored.Params()
	case t.coarser != nil:
		params, err := t.coarser.Params()
		if err != nil {
			return nil, err
		}
		return []Params{finer(params[0])}, nil
	}
	return []Params{t.Own}, nil
}

// Channels reports whether the bias has a scale for each element.
func (b *Bias) Channels() bool { return b.W.scales() != 1 }

// Shifted returns the elements of the bias plus other numbers.
func (b *Bias) Shifted(by []float32) ([]float32, error) {
	_, values, err := b.read()
	if err != nil {
		return nil, err
	}
	for i, v := range by {
		values[i] += v
	}
	return values, nil
}

// read returns the scale of the activation and the elements of the bias.
func (b *Bias) read() (x float32, values []float32, err error) {
	params, err := b.X.Params()
	if err != nil {
		return 0, nil, err
	}
	values = make([]float32, b.from.Size()/4)
	if err := buffer.ReadFull(b.from, kernels.Bytes(values), 0); err != nil {
		return 0, nil, err
	}
	kernels.FromFloat32(values)
	for i, v := range values {
		if !kernels.IsFinite(v) {
			b.broken.Store(true)
			values[i] = 0
		}
	}
	for i, v := range b.Shift {
		values[i] += v
	}
	return params[0].Scale, values, nil
}

// scalesOf returns the scales of the bias.
func (b *Bias) scalesOf(x float32) ([]float32, error) {
	weights, err := b.W.Params()
	scales := make([]float32, len(weights))
	for i, w := range weights {
		scales[i] = x * w.Scale
	}
	return scales, err
}

// ScaleBytes and CodeBytes are the contents of the tensors of scales and codes.
func (b *Bias) ScaleBytes() io.ReaderAt {
	return computed(func() (raw []byte, err error) {
		x, err := b.X.Params()
		if err != nil {
			return nil, err
		}
		scales, err := b.scalesOf(x[0].Scale)
		for _, s := range scales {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(s))
		}
		return raw, err
	})
}

func (b *Bias) CodeBytes() io.ReaderAt {
	return computed(func() (raw []byte, err error) {
		x, values, err := b.read()
		if err != nil {
			return nil, err
		}
		scales, err := b.scalesOf(x)
		if err != nil {
			return nil, err
		}
		for i, v := range values {
			q := math.RoundToEven(float64(v) / float64(scales[i%len(scales)]))
			q = min(max(q, math.MinInt32), math.MaxInt32)
			raw = binary.LittleEndian.AppendUint32(raw, uint32(int32(q)))
		}
		return raw, nil
	})
}
