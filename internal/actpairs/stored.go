package actpairs

import (
	"encoding/binary"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/shapes"
)

// Stored is the content of a quantized stored tensor.
type Stored struct {
	Axis int // axis of the per-channel scales; -1: there is one scale

	from     *modelfile.Payload // float32
	codes    Codes
	channels int64 // number of scales
	run      int64 // number of consecutive elements that share a scale
	biases   []*Bias

	Along, Block int        // codes have blocks of Block elements along this axis; Block 0: none
	blocks       *expansion // nil without blocks

	fixed  []float32 // scales from outside, of codes without zero points; or nil
	once   sync.Once
	params []Params
	err    error
	broken atomic.Bool // there is NaN or infinity
}

func (m *marking) newStored(t *Tensor) (*Stored, error) {
	from, err := m.x.File.Payload(t.Value.Tensor)
	if err != nil {
		return nil, err
	}
	dims := t.Value.Tensor.GetDims()
	s := &Stored{Axis: t.axis, from: from, codes: t.Codes, channels: 1, run: shapes.Count(dims)}
	if t.axis != noAxis {
		s.channels, s.run = dims[t.axis], shapes.Count(dims[t.axis+1:])
	}
	if n := t.narrow; n != nil && n.block > 0 {
		s.Along, s.Block = n.along, n.block
		s.blocks = newExpansion(from, dims, n.along, n.block)
	}
	return s, nil
}

// Params returns the scales and zero points, those of channels if there are blocks. The first call reads the tensor.
func (s *Stored) Params() ([]Params, error) {
	s.once.Do(func() {
		for _, scale := range s.fixed {
			s.params = append(s.params, Params{Scale: scale})
		}
		if s.params != nil {
			return
		}
		if s.params, s.err = s.find(); s.err == nil {
			s.err = s.widen()
		}
		if s.err == nil && s.blocks != nil {
			s.err = s.blocks.fit(s.params)
		}
	})
	return s.params, s.err
}

// Fix gives symmetric codes scales that something else has found: one for each channel. No scale is read before.
func (s *Stored) Fix(scales []float32) { s.fixed = scales }

// Fixed reports whether the scales are from outside.
func (s *Stored) Fixed() bool { return s != nil && s.fixed != nil }

// Scales is the number of scales.
func (s *Stored) Scales() int { return int(s.channels) }

// Fits reports whether the codes of the biases fit into 32 bits, if the weight has these scales.
func (s *Stored) Fits(scales []float32) (bool, error) {
	for _, b := range s.biases {
		x, values, err := b.read()
		if err != nil {
			return false, err
		}
		for i, scale := range scales {
			if leastScale(scale, x, slack*2*math.Abs(float64(values[i]))) > scale {
				return false, nil
			}
		}
	}
	return true, nil
}

const chunk = 1 << 16 // elements that are read at once

// find reads the tensor and computes the scale and zero point of each channel.
func (s *Stored) find() ([]Params, error) {
	lo, hi := make([]float32, s.channels), make([]float32, s.channels)
	x := make([]float32, min(chunk, s.from.Size()/4))
	for at, n := int64(0), s.from.Size()/4; at < n; {
		part := x[:min(int64(len(x)), n-at)]
		if err := buffer.ReadFull(s.from, kernels.Bytes(part), 4*at); err != nil {
			return nil, err
		}
		kernels.FromFloat32(part)
		s.observe(lo, hi, part, at)
		at += int64(len(part))
	}
	params := make([]Params, s.channels)
	for i := range params {
		if !kernels.IsFinite(lo[i]) || !kernels.IsFinite(hi[i]) {
			s.broken.Store(true)
			lo[i], hi[i] = 0, 0
		}
		params[i] = s.codes.For(lo[i], hi[i])
		if s.blocks != nil {
			params[i].Scale /= mostSteps
		}
	}
	return params, nil
}

// observe widens the ranges of channels by the elements x, which start with element at.
func (s *Stored) observe(lo, hi, x []float32, at int64) {
	for len(x) > 0 {
		c := at / s.run % s.channels
		if s.run == 1 && c == 0 && int64(len(x)) >= s.channels { // whole rows, one scale per column
			n := int64(len(x)) / s.channels * s.channels
			kernels.RangeColumns(lo, hi, x[:n])
			x, at = x[n:], at+n
			continue
		}
		n := min(s.run-at%s.run, int64(len(x)))
		kernels.RangeBlocks(lo[c:c+1], hi[c:c+1], x[:n], int(n), int(n))
		x, at = x[n:], at+n
	}
}

// widen enlarges the scales of a symmetric weight so that the codes of its biases fit into 32 bits.
func (s *Stored) widen() error {
	if t := s.codes.Type; !s.codes.Symmetric || t != dtype.Int4 && t != dtype.Int8 && t != dtype.Int16 {
		return nil
	}
	for _, b := range s.biases {
		x, values, err := b.read()
		if err != nil {
			return err
		}
		if len(s.params) == 1 {
			amax := 0.0
			for _, v := range values {
				amax = max(amax, math.Abs(float64(v)))
			}
			s.params[0].Scale = leastScale(s.params[0].Scale, x, slack*(2*amax))
			continue
		}
		for i := range s.params {
			amax := max(values[i], -values[i])
			s.params[i].Scale = leastScale(s.params[i].Scale, x, float64(float32(slack)*(2*amax)))
		}
	}
	return nil
}

// scaleCount is the number of stored scales.
func (s *Stored) scaleCount() int64 {
	if s.blocks != nil {
		return int64(len(s.blocks.steps))
	}
	return s.channels
}

// Fill sets scales and zero points, starting with that of block first of the weight. Weights without blocks repeat
// their scales.
func (s *Stored) Fill(scales []float32, zeros []byte, first int64) error {
	params, err := s.Params()
	if err != nil {
		return err
	}
	if s.blocks != nil {
		clear(zeros[:len(scales)])
		s.blocks.scales(scales, first, params)
		return nil
	}
	for i := range scales {
		p := params[(first+int64(i))%int64(len(params))]
		scales[i], zeros[i] = p.Scale, byte(p.Zero)
	}
	return nil
}

// slack keeps the codes of a bias away from the limits of 32 bits. The multiplication is in float64
// for a bias with one scale and in float32 for others, as in ONNX Runtime.
const slack = 1.0001

// leastScale returns the scale of a weight, or a larger one if the codes of a bias would not fit
// into 32 bits. The scale of the bias is that of the weight times x, the scale of the activation.
// width is the difference between the largest and the least value of the bias.
func leastScale(scale, x float32, width float64) float32 {
	const steps = float64(math.MaxInt32) - float64(math.MinInt32+1)
	least := width / steps
	have := float64(x) * float64(scale)
	if have >= least || have <= 0 {
		return scale
	}
	return float32(float64(scale) * (least / have))
}

// ScaleBytes and ZeroBytes are the contents of the tensors of scales and zero points.
func (s *Stored) ScaleBytes() io.ReaderAt {
	return computed(func() (raw []byte, err error) {
		params, err := s.Params()
		if s.blocks != nil && err == nil {
			scales := make([]float32, len(s.blocks.steps))
			s.blocks.scales(scales, 0, params)
			for _, scale := range scales {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(scale))
			}
			return raw, nil
		}
		for _, p := range params {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(p.Scale))
		}
		return raw, err
	})
}

func (s *Stored) ZeroBytes() io.ReaderAt {
	return computed(func() (raw []byte, err error) {
		if s.codes.Type == dtype.Int4 {
			return make([]byte, s.codes.Type.Bytes(s.scaleCount())), nil
		}
		params, err := s.Params()
		for _, p := range params {
			raw = s.codes.Append(raw, p.Zero)
		}
		return raw, err
	})
}

// Append appends a code in the bytes of its type.
func (c Codes) Append(raw []byte, code int32) []byte {
	if c.Type.Bits() == 16 {
		return binary.LittleEndian.AppendUint16(raw, uint16(code))
	}
	return append(raw, byte(code))
}

// Codes16 is the content of the tensor of 16-bit codes.
func (s *Stored) Codes16() io.ReaderAt { return codes16{s} }

type codes16 struct{ *Stored }

// ReadAt implements io.ReaderAt.
func (s codes16) ReadAt(dst []byte, off int64) (int, error) {
	params, err := s.Params()
	if err != nil {
		return 0, err
	}
	coded := modelfile.Elements{From: s.from, In: 4, Out: 2, Make: func(dst, raw []byte, x []float32, first int64) {
		dtype.Float32.Decode(x, raw)
		dst = dst[:0]
		for i, v := range x {
			dst = s.codes.Append(dst, s.codes.code(v, params[(first+int64(i))/s.run%s.channels]))
		}
	}}
	return coded.ReadAt(dst, off)
}

// computed is a content whose bytes are computed when they are read.
type computed func() ([]byte, error)

// ReadAt implements io.ReaderAt.
func (f computed) ReadAt(dst []byte, off int64) (int, error) {
	raw, err := f()
	if err != nil {
		return 0, err
	}
	n := copy(dst, raw[min(off, int64(len(raw))):])
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}
