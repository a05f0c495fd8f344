// Package fixdim gives dimensions of a model fixed sizes. NPUs take no dynamic shapes.
//
// [Fix] gets a graph, which it only reads, and returns a new graph that declares the sizes: in inputs and outputs of
// the model and of bodies, and in the types of values. The caller owns the new graph and must keep the original open.
// [Adopt] changes inputs in place.
package fixdim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Fix returns the graph with sizes of dimensions. A key of sizes is the symbolic name of a dimension, or INPUT:AXIS for a
// dimension of an input. Sizes are 1 or more.
func Fix(x *graph.Graph, sizes map[string]int64) (*graph.Graph, error) {
	f, err := newFixer(x.File.Proto, sizes)
	if err != nil {
		return nil, err
	}
	c := x.Copy()
	f.values(c.Proto.Graph.Input, f.axes)
	graph.WalkAllGraphs(c.Proto, func(g *onnxpb.GraphProto) {
		for _, list := range [][]*onnxpb.ValueInfoProto{g.Input, g.Output, g.ValueInfo} {
			f.values(list, nil)
		}
	})
	for _, fn := range c.Proto.Functions {
		f.values(fn.ValueInfo, nil)
	}
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) { return x.File.Payload(c.OriginalTensor(t)) })
	if err != nil {
		return nil, err
	}
	return graph.New(view)
}

// Check refuses sizes that Fix refuses.
func Check(m *onnxpb.ModelProto, sizes map[string]int64) error {
	_, err := newFixer(m, sizes)
	return err
}

func newFixer(m *onnxpb.ModelProto, sizes map[string]int64) (fixer, error) {
	f := fixer{symbols: map[string]int64{}, axes: map[string]map[int]int64{}}
	inputs := graph.RuntimeInputs(m.GetGraph())
	for _, key := range slices.Sorted(maps.Keys(sizes)) {
		if err := f.add(inputs, key, sizes[key]); err != nil {
			return f, err
		}
	}
	return f, nil
}

type fixer struct {
	symbols map[string]int64         // by symbolic name
	axes    map[string]map[int]int64 // by input and axis, of dimensions without a name
}

// add adds a size.
func (f fixer) add(inputs []*onnxpb.ValueInfoProto, key string, size int64) error {
	if size < 1 {
		return fmt.Errorf("dimension %s: size %d, want 1 or more", msg.Quote(key), size)
	}
	if slices.Contains(symbolsOf(inputs), key) {
		return f.name(key, size)
	}
	at := strings.LastIndexByte(key, ':')
	if at < 0 {
		return f.unknown(inputs, key)
	}
	axis, err := strconv.Atoi(key[at+1:])
	i := slices.IndexFunc(inputs, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == key[:at] })
	if err != nil || i < 0 {
		return f.unknown(inputs, key)
	}
	dims := dimsOf(inputs[i])
	if axis < 0 || axis >= len(dims) {
		return fmt.Errorf("input %s has %d axes, counted from 0: no axis %d", msg.Quote(key[:at]), len(dims), axis)
	}
	switch d := dims[axis]; {
	case d.GetDimParam() != "":
		return f.name(d.GetDimParam(), size)
	case d.GetDimValue() > 0 && d.GetDimValue() != size:
		return fmt.Errorf("axis %d of input %s has the size %d: it cannot become %d", axis, msg.Quote(key[:at]), d.GetDimValue(), size)
	default:
		if f.axes[key[:at]] == nil {
			f.axes[key[:at]] = map[int]int64{}
		}
		f.axes[key[:at]][axis] = size
	}
	return nil
}

// name gives a symbolic dimension its size.
func (f fixer) name(symbol string, size int64) error {
	if given := f.symbols[symbol]; given > 0 && given != size {
		return fmt.Errorf("dimension %s: it cannot be both %d and %d", msg.Quote(symbol), given, size)
	}
	f.symbols[symbol] = size
	return nil
}

func (f fixer) unknown(inputs []*onnxpb.ValueInfoProto, key string) error {
	names := Varying(inputs)
	if len(names) == 0 {
		return fmt.Errorf("no dimension is called %s: all sizes of inputs are fixed", msg.Quote(key))
	}
	return fmt.Errorf("no dimension of an input is called %s; there are %s", msg.Quote(key), msg.Names(names))
}

// Varying lists the dimensions of inputs without a size, as keys of Fix.
func Varying(inputs []*onnxpb.ValueInfoProto) []string {
	names := symbolsOf(inputs)
	for _, v := range inputs {
		for i, d := range dimsOf(v) {
			if d.GetDimParam() == "" && d.GetDimValue() < 1 {
				names = append(names, v.GetName()+":"+strconv.Itoa(i))
			}
		}
	}
	return names
}

// values replaces the value infos whose dimensions change; the original shares them.
func (f fixer) values(list []*onnxpb.ValueInfoProto, axes map[string]map[int]int64) {
	for i, v := range list {
		if !slices.ContainsFunc(dimsOf(v), func(d *onnxpb.TensorShapeProto_Dimension) bool { return f.symbols[d.GetDimParam()] > 0 }) && axes[v.GetName()] == nil {
			continue
		}
		v = proto.CloneOf(v)
		list[i] = v
		for axis, d := range dimsOf(v) {
			size := f.symbols[d.GetDimParam()]
			if own := axes[v.GetName()][axis]; own > 0 {
				size = own
			}
			if size > 0 {
				d.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}
			}
		}
	}
}

// Adopt gives inputs the sizes that inputs of another model with the same names fix. It returns these as INPUT:AXIS=SIZE.
func Adopt(inputs, fixed []*onnxpb.ValueInfoProto) (adopted []string) {
	for _, v := range inputs {
		i := slices.IndexFunc(fixed, func(w *onnxpb.ValueInfoProto) bool { return w.GetName() == v.GetName() })
		if i < 0 || len(dimsOf(fixed[i])) != len(dimsOf(v)) {
			continue
		}
		for axis, d := range dimsOf(v) {
			if size := dimsOf(fixed[i])[axis].GetDimValue(); size > 0 && d.GetDimValue() < 1 {
				adopted = append(adopted, fmt.Sprintf("%s:%d=%d", v.GetName(), axis, size))
				d.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}
			}
		}
	}
	return adopted
}

// symbolsOf lists the names of dimensions of inputs, each once.
func symbolsOf(inputs []*onnxpb.ValueInfoProto) (names []string) {
	for _, v := range inputs {
		for _, d := range dimsOf(v) {
			if name := d.GetDimParam(); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func dimsOf(v *onnxpb.ValueInfoProto) []*onnxpb.TensorShapeProto_Dimension {
	return v.GetType().GetTensorType().GetShape().GetDim()
}
