package observe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
)

// Channels says where the channels of a value are.
type Channels struct {
	Name   string
	N      int64 // how many
	Back   int   // their axis, -1 is the last one
	Rank   int   // the number of axes; 0: unknown, and Back is -1
	Spread bool  // each channel has several elements of the axis, one after the other; then it is the last of two axes
}

// Extent is what the channels of a value had in all samples.
type Extent struct {
	Low, High []float32
	Square    []float64 // mean of the squares
}

// Extents runs the model at path on all samples, and returns what the channels of values have there. ONNX Runtime computes
// it, so that the values themselves are not handed on. opset is that of the model.
func (e *Engine) Extents(ctx context.Context, path string, opset int64, data *samples.Samples, list []Channels, progress func(done, total int)) ([]Extent, error) {
	all := make([]Extent, len(list))
	for i, c := range list {
		all[i] = Extent{make([]float32, c.N), make([]float32, c.N), make([]float64, c.N)}
		for j := range c.N {
			all[i].Low[j], all[i].High[j] = float32(math.Inf(1)), float32(math.Inf(-1))
		}
	}
	count := 0
	counted := func() {
		if count++; progress != nil {
			progress(count, data.Len())
		}
	}
	var err error
	if e.IsGo() {
		names := make([]string, len(list))
		for i, c := range list {
			names[i] = c.Name
		}
		err = e.Each(ctx, path, data, names, func(values []*execute.Tensor) error {
			for i, v := range values {
				if err := all[i].observe(list[i], v); err != nil {
					return err
				}
			}
			counted()
			return nil
		})
	} else {
		err = e.extents(ctx, path, opset, data, list, func(values []*execute.Tensor) error {
			for i := range list {
				all[i].add(values[3*i].Float32s(), values[3*i+1].Float32s(), values[3*i+2].Float32s())
			}
			counted()
			return nil
		})
	}
	for i := range all {
		for j := range all[i].Square {
			all[i].Square[j] /= float64(max(count, 1))
		}
	}
	return all, err
}

// extents lets ONNX Runtime compute three values for each of list.
func (e *Engine) extents(ctx context.Context, path string, opset int64, data *samples.Samples, list []Channels, do func([]*execute.Tensor) error) error {
	more := &onnxpb.GraphProto{}
	var names []string
	for i, c := range list {
		names = append(names, c.reduce(more, opset, fmt.Sprintf("%s/onnxquant_channels/%d", c.Name, i))...)
	}
	s, err := e.Plain().OpenWith(ctx, path, more)
	if err != nil {
		return err
	}
	defer s.Close()
	return Run(ctx, s, data, names, do)
}

// reduce adds nodes that compute the least and the greatest element and the mean square of each channel. Names of their
// values begin with of.
func (c Channels) reduce(g *onnxpb.GraphProto, opset int64, of string) (names []string) {
	const axesAreInputs = 18 // since this opset
	node := func(op, suffix string, inputs []string, attributes ...*onnxpb.AttributeProto) string {
		out := of + suffix
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: &op, Input: inputs, Output: []string{out}, Attribute: attributes})
		return out
	}
	integers := func(suffix string, v ...int64) string {
		t := &onnxpb.TensorProto{DataType: new(int32(dtype.Int64)), Dims: []int64{int64(len(v))}}
		for _, x := range v {
			t.RawData = binary.LittleEndian.AppendUint64(t.RawData, uint64(x))
		}
		// In IR 3 an initializer must also be an input.
		return node("Constant", suffix, nil, &onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
	}
	attribute := func(name string, v ...int64) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
	}
	from, shape, axes := c.Name, []int64{-1, c.N}, []int64{0}
	switch {
	case c.Spread:
		shape, axes = []int64{0, c.N, -1}, []int64{0, 2}
	case c.Rank > 0:
		perm := []int64{int64(c.Rank + c.Back)}
		for i := range int64(c.Rank) {
			if i != perm[0] {
				perm = append(perm, i)
			}
		}
		if c.Back != -1 { // otherwise the channels may repeat
			from = node("Transpose", "/moved", []string{from}, attribute("perm", perm...))
			shape, axes = []int64{c.N, -1}, []int64{1}
		}
	}
	rows := node("Reshape", "/rows", []string{from, integers("/shape", shape...)})
	squares := node("Mul", "/squares", []string{rows, rows})
	flat := &onnxpb.AttributeProto{Name: new("keepdims"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(0))}
	along := integers("/axes", axes...)
	for _, r := range []struct{ op, of string }{{"ReduceMin", rows}, {"ReduceMax", rows}, {"ReduceMean", squares}} {
		inputs, attributes := []string{r.of, along}, []*onnxpb.AttributeProto{flat}
		if opset < axesAreInputs {
			inputs, attributes = inputs[:1], append(attributes, attribute("axes", axes...))
		}
		out := node(r.op, "/"+r.op, inputs, attributes...)
		g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: &out})
		names = append(names, out)
	}
	return names
}

// add adds what a sample has.
func (x *Extent) add(low, high, square []float32) {
	for j := range min(len(low), len(x.Low)) {
		x.Low[j], x.High[j] = min(x.Low[j], low[j]), max(x.High[j], high[j])
		x.Square[j] += float64(square[j])
	}
}

// observe adds the value of a sample.
func (x *Extent) observe(c Channels, v *execute.Tensor) error {
	at := len(v.Dims) + c.Back
	if at < 0 || v.Dims[at]%c.N != 0 {
		return fmt.Errorf("value %q has no %d channels", c.Name, c.N)
	}
	inner := int64(1)
	for _, d := range v.Dims[at+1:] {
		inner *= d
	}
	if c.Spread {
		inner *= v.Dims[at] / c.N
	}
	sums, counts := make([]float64, c.N), make([]float64, c.N)
	for i, f := range v.Float32s() {
		j := int64(i) / inner % c.N
		x.Low[j], x.High[j] = min(x.Low[j], f), max(x.High[j], f)
		sums[j] += float64(f) * float64(f)
		counts[j]++
	}
	for j := range sums {
		if counts[j] > 0 {
			x.Square[j] += sums[j] / counts[j]
		}
	}
	return nil
}
