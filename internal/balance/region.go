package balance

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Region is a set of activations whose channels can get factors together. Each activation is divided by the factors.
// The stored tensors that make the activations are divided, too, and those behind are multiplied, so that the outputs
// of the model are the same.
type Region struct {
	Name       string // of the first activation; it names the region in a record
	Channels   int64
	Values     []Activation
	Divided    []Part
	Multiplied []Part
	Makers     []Operand // nodes with a divided tensor
	Readers    []Operand // nodes with a multiplied tensor
}

// Activation is a value with channels along an axis.
type Activation struct {
	Value *graph.Value
	Axis  Axis
	Rank  int // number of axes; 0: unknown
}

// Operand is a stored tensor of a node, and the activation that the node makes or reads.
type Operand struct {
	Node       *onnxpb.NodeProto
	Part       Part
	Activation *graph.Value
}

// Axis says where the channels of a value are.
type Axis struct {
	Back   int  // -1 is the last axis
	Spread bool // each channel has several elements, one after the other; the axis was made of several
}

// Of returns how many elements apart the channels of a value with these dimensions lie; 0 if it has no such axis.
func (a Axis) Of(dims []int64, channels int64) (inner int64) {
	at := len(dims) + a.Back
	if at < 0 || channels == 0 || dims[at]%channels != 0 {
		return 0
	}
	inner = 1
	for _, d := range dims[at+1:] {
		inner *= d
	}
	if a.Spread {
		inner *= dims[at] / channels
	}
	return inner
}

// Regions returns the regions of the main graph, in its order. Factors of one region do not change what the other
// regions are.
func Regions(x *graph.Graph) (all []Region) {
	r := &regions{x: x, stored: finder{x, graph.TrainedNames(x.File.Proto), nil}, shapes: graph.NewShapes(x), seen: map[*graph.Value]bool{}}
	taken := map[*graph.Value]bool{}
	for _, n := range x.File.Proto.Graph.Node {
		v, axis, channels := r.begin(n)
		if v == nil || channels < 2 || r.seen[v] {
			continue
		}
		g := &growing{regions: r, region: &Region{Name: v.Name, Channels: channels}, axes: map[*graph.Value]Axis{}, never: map[*graph.Value]bool{}}
		alone := true // no value is in another region
		grown := g.grow(v, axis)
		for v := range g.axes {
			alone = alone && !taken[v]
			r.seen[v] = true
		}
		if grown && alone {
			all = append(all, *g.region)
			for v := range g.axes {
				taken[v] = true
			}
		}
	}
	return all
}

// regions is what all searches for a region share.
type regions struct {
	x      *graph.Graph
	stored finder
	shapes *graph.Shapes
	seen   map[*graph.Value]bool
	depth  int
}

// begin returns an activation in whose channels a node makes numbers from a stored tensor, or nil.
func (r *regions) begin(n *onnxpb.NodeProto) (v *graph.Value, axis Axis, channels int64) {
	made := r.x.Outputs(n)
	if len(made) == 0 || made[0] == nil {
		return nil, axis, 0
	}
	v = made[0]
	stored := func(input, axis int) int64 {
		w := r.x.Source(n, input)
		if w == nil || w.Tensor == nil {
			return 0
		}
		dims := w.Tensor.GetDims()
		if axis < 0 {
			axis += len(dims)
		}
		if axis < 0 || axis >= len(dims) {
			return 0
		}
		return dims[axis]
	}
	if first, _ := normalization(n); first > 0 {
		return v, Axis{Back: -1}, stored(first, -1)
	}
	if !graph.IsStandard(n.GetDomain()) {
		return nil, axis, 0
	}
	second := Axis{Back: 1 - r.rank(v)} // axis 1
	switch n.GetOpType() {
	case "Conv":
		return v, second, stored(1, 0)
	case "ConvTranspose":
		return v, second, stored(1, 1)
	case "BatchNormalization", "InstanceNormalization":
		return v, second, stored(1, 0)
	case "MatMul":
		return v, Axis{Back: -1}, stored(1, -1)
	case "Gemm":
		if graph.IntAttribute(n, "transB") != 0 {
			return v, Axis{Back: -1}, stored(1, 0)
		}
		return v, Axis{Back: -1}, stored(1, 1)
	case "Mul":
		for i := range min(2, len(n.Input)) {
			if w := r.x.Source(n, i); w != nil && w.Tensor != nil {
				if at := onlyAxis(w.Tensor.GetDims()); at < 0 {
					return v, Axis{Back: at}, stored(i, at)
				}
			}
		}
	}
	return nil, axis, 0
}

// onlyAxis returns the only axis with several elements, -1 for the last one; 0 if there is another number of them.
func onlyAxis(dims []int64) (at int) {
	for i, d := range dims {
		if d > 1 {
			if at != 0 {
				return 0
			}
			at = i - len(dims)
		}
	}
	return at
}

// mostValues bounds the activations of a region.
const mostValues = 1 << 14

// growing is a search for the activations that must have the factors of a first one.
type growing struct {
	*regions
	region *Region
	axes   map[*graph.Value]Axis
	never  map[*graph.Value]bool // values that must not have factors
	todo   []*graph.Value
}

// grow finds the region of an activation. It returns false if the region has none that compensates its factors.
func (g *growing) grow(v *graph.Value, axis Axis) bool {
	if !g.join(v, axis) {
		return false
	}
	for len(g.todo) > 0 {
		v, g.todo = g.todo[0], g.todo[1:]
		axis := g.axes[v]
		if !g.made(v, axis) {
			return false
		}
		for _, u := range v.Uses {
			if !g.read(v, axis, u) {
				return false
			}
		}
	}
	for v := range g.never {
		if _, has := g.axes[v]; has {
			return false
		}
	}
	return len(g.region.Multiplied) > 0 && len(g.region.Divided) > 0
}

// join adds an activation to the region. It returns false if that cannot have factors along the axis.
func (g *growing) join(v *graph.Value, axis Axis) bool {
	if v == nil {
		return false
	}
	if known, has := g.axes[v]; has {
		return known == axis
	}
	if axis.Back >= 0 || v.Tensor != nil || v.Input || len(g.axes) >= mostValues || !g.stored.inside(v) {
		return false
	}
	g.axes[v] = axis
	g.todo = append(g.todo, v)
	g.region.Values = append(g.region.Values, Activation{v, axis, g.rank(v)})
	return true
}

// keep notes that a value must not have factors.
func (g *growing) keep(v *graph.Value) bool {
	if v != nil {
		g.never[v] = true
	}
	return true
}

// isPart reports whether the elements of a stored tensor can get factors.
func (g *growing) isPart(v *graph.Value) bool {
	return g.stored.readOnce(v) && dtype.DType(v.Tensor.GetDataType()) == dtype.Float32
}

// part describes a stored tensor with channels along an axis, -1 is the last one. Spread channels have several
// elements there.
func (g *growing) part(v *graph.Value, axis Axis) (Part, bool) {
	if !g.isPart(v) {
		return Part{}, false
	}
	dims := v.Tensor.GetDims()
	inner := axis.Of(dims, g.region.Channels)
	if at := len(dims) + axis.Back; inner == 0 || !axis.Spread && dims[at] != g.region.Channels {
		return Part{}, false
	}
	return Part{Value: v, Inner: inner}, true
}

// divide adds a stored tensor of a node that makes an activation.
func (g *growing) divide(n *onnxpb.NodeProto, v *graph.Value, axis Axis, makes *graph.Value) bool {
	p, ok := g.part(v, axis)
	if !ok {
		return false
	}
	g.region.Divided = append(g.region.Divided, p)
	g.region.Makers = append(g.region.Makers, Operand{n, p, makes})
	return true
}

// multiply adds a stored tensor of a node that reads an activation.
func (g *growing) multiply(n *onnxpb.NodeProto, p Part, reads *graph.Value) bool {
	g.region.Multiplied = append(g.region.Multiplied, p)
	g.region.Readers = append(g.region.Readers, Operand{n, p, reads})
	return true
}

// added adds a term of a sum: a stored one is divided, a computed one joins the region.
func (g *growing) added(n *onnxpb.NodeProto, v *graph.Value, axis Axis, makes *graph.Value) bool {
	if v != nil && v.Tensor != nil {
		return g.divide(n, v, axis, makes)
	}
	return g.join(v, axis)
}

// summed adds the inputs of a node from one on, of which each is divided.
func (g *growing) summed(n *onnxpb.NodeProto, from int, axis Axis, makes *graph.Value) bool {
	return !slices.ContainsFunc(g.x.Inputs(n)[from:], func(v *graph.Value) bool { return !g.added(n, v, axis, makes) })
}
