package balance

import (
	"io"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Scale returns a graph in which groups are scaled by factors above 0, one for each channel; nil
// leaves a group unchanged. Factors are rounded to few bits, so that Like can read them off the
// result. A factor becomes 1 where the number that it divides is too small or too large.
func Scale(x *graph.Graph, groups []Group, factors [][]float32) (*graph.Graph, error) {
	contents := map[string]*content{} // by name of an initializer, or of a Constant
	for i, g := range groups {
		if factors[i] == nil {
			continue
		}
		divided, err := read(x, g.Divided[0].Value, g.Channels)
		if err != nil {
			return nil, err
		}
		of := make([]float32, g.Channels)
		for j := range of {
			of[j] = usable(factors[i][j], divided[j])
		}
		for _, p := range g.Weights {
			contents[p.Value.Name] = &content{of: p.Value, by: []scaling{{p, of, false}}}
		}
		for _, p := range g.Divided {
			contents[p.Value.Name] = &content{of: p.Value, by: []scaling{{p, of, true}}}
		}
	}
	return withContents(x, contents)
}

// withContents returns a graph in which some stored tensors of the main graph have factors.
func withContents(x *graph.Graph, contents map[string]*content) (*graph.Graph, error) {
	c := x.Copy()
	c.Own()
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		old := c.OriginalTensor(t)
		from, err := x.File.Payload(old)
		if err != nil {
			return nil, err
		}
		v := c.Value(t)
		if v == nil || contents[v.Name] == nil || contents[v.Name].of != v {
			return from, nil
		}
		made := contents[v.Name]
		made.dtype = dtype.DType(t.GetDataType())
		size := made.dtype.Bits() / 8
		t.RawData = nil
		return (&modelfile.Elements{From: from, In: size, Out: size, Make: made.make}).Payload(), nil
	})
	if err != nil {
		return nil, err
	}
	return graph.New(view)
}

// bits is the number of significant bits of a factor. A factor this short follows exactly from the
// quotient of the original and the divided number, even in bfloat16.
const bits = 6

// rounded rounds a factor.
func rounded(f float64) float64 {
	fraction, exponent := math.Frexp(f)
	return math.Ldexp(math.RoundToEven(fraction*(1<<bits)), exponent-bits)
}

// usable returns the rounded factor, or 1 if number divided by it would leave the safe range.
func usable(factor, number float32) float32 {
	f := rounded(float64(factor))
	left := math.Abs(float64(number) / f)
	if f > 0 && left >= 0x1p-13 && left <= 0x1p13 {
		return float32(f)
	}
	return 1
}

// read returns the n elements of a tensor; nil if it has another number of elements.
func read(x *graph.Graph, v *graph.Value, n int64) ([]float32, error) {
	p, err := x.File.Payload(v.Tensor)
	typ := dtype.DType(v.Tensor.GetDataType())
	if err != nil || p.Size() != typ.Bytes(n) {
		return nil, err
	}
	raw, numbers := make([]byte, p.Size()), make([]float32, n)
	if _, err := p.ReadAt(raw, 0); err != nil && err != io.EOF {
		return nil, err
	}
	typ.Decode(numbers, raw)
	return numbers, nil
}

// content makes the content of a tensor with factors.
type content struct {
	of    *graph.Value
	by    []scaling
	dtype dtype.DType
}

// scaling multiplies, or divides, the channels of a tensor by factors.
type scaling struct {
	Part
	factors []float32
	divide  bool
}

// make makes elements with factors.
func (c *content) make(dst, raw []byte, x []float32, first int64) {
	c.dtype.Decode(x, raw)
	for _, s := range c.by {
		s.apply(x, first)
	}
	c.dtype.Encode(dst, x)
}

// apply scales the elements from first on.
func (s scaling) apply(x []float32, first int64) {
	for at := first; len(x) > 0; {
		n := min(s.Inner-at%s.Inner, int64(len(x)))
		f := s.factors[s.Channel(at, int64(len(s.factors)))]
		for i := range x[:n] {
			if s.divide {
				x[i] /= f
			} else {
				x[i] *= f
			}
		}
		x, at = x[n:], at+n
	}
}
