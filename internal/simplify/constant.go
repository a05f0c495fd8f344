package simplify

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// finder finds what can be simplified in a graph.
type finder struct {
	*graph.Graph
	recognizer *recognize.Recognizer
	shapes     *graph.Shapes
	trained    map[string]bool
	taken      []bool // nodes that a site has, by number
}

func newFinder(x *graph.Graph) *finder {
	r := recognize.New(x)
	r.Functions, r.Rearrange = true, true
	return &finder{x, r, graph.NewShapes(x), graph.TrainedNames(x.File.Proto), make([]bool, x.Nodes()+1)}
}

// stored is a tensor whose elements are those of a stored one, perhaps transposed.
type stored struct {
	root  *graph.Value // the stored tensor
	chain []*onnxpb.NodeProto
	dtype dtype.DType
	dims  []int64
	from  *modelfile.Payload
	sole  bool // one node reads it, and nothing reads root otherwise
}

// deepest bounds the nodes between a stored tensor and its reader, against hostile models.
const deepest = 64

// foldable reports whether float32 holds all values of a type.
func foldable(t dtype.DType) bool {
	return t == dtype.Float32 || t == dtype.Float16 || t == dtype.BFloat16
}

// stored follows a value to a stored tensor of floats, through Identity and Transpose; nil if it is not one.
func (f *finder) stored(v *graph.Value) *stored {
	s := &stored{sole: true}
	var turns [][]int64
	for len(s.chain) <= deepest {
		if v == nil {
			return nil
		}
		s.sole = s.sole && f.readOnce(v)
		n := v.Node
		if v.Tensor != nil || n == nil || !graph.IsStandard(n.GetDomain()) || len(n.Output) != 1 {
			break
		}
		switch n.GetOpType() {
		case "Identity":
		case "Transpose":
			if graph.Parameter(n, "perm") != "" {
				return nil
			}
			turns = append(turns, graph.Attribute(n, "perm").GetInts())
		default:
			return nil
		}
		s.chain = append(s.chain, n)
		v = f.Source(n, 0)
	}
	if v == nil || v.Tensor == nil || v.Input && !v.MustBeInput || f.trained[v.Name] {
		return nil
	}
	s.root, s.dtype, s.dims = v, dtype.DType(v.Tensor.GetDataType()), v.Tensor.GetDims()
	p, err := f.File.Payload(v.Tensor)
	if err != nil || p == nil || !foldable(s.dtype) {
		return nil
	}
	s.from = p
	t := lazy.Stored(s.dtype, s.dims, p)
	for _, perm := range slices.Backward(turns) {
		if perm == nil {
			for i := range t.Shape {
				perm = append(perm, int64(len(t.Shape)-1-i))
			}
		}
		sorted := slices.Sorted(slices.Values(perm))
		for i, p := range sorted {
			if p != int64(i) {
				return nil
			}
		}
		if len(perm) != len(t.Shape) {
			return nil
		}
		t = t.Transposed(perm)
	}
	if len(turns) > 0 {
		s.dims, s.from = t.Shape, modelfile.Computed(t.Stored, s.from.Size())
	}
	return s
}

// readOnce reports whether one input of one node reads a value, and nothing returns it.
func (f *finder) readOnce(v *graph.Value) bool {
	return len(v.Uses) == 1 && !v.Output && len(v.Yields()) == 0 && len(v.Returned()) == 0
}

// passed reports whether a value goes from one node to one other, in the same graph.
func (f *finder) passed(v *graph.Value) bool {
	return v != nil && v.Node != nil && f.readOnce(v) && f.Home(v.Uses[0].Node) == f.Home(v.Node) && !f.taken[f.Number(v.Uses[0].Node)]
}

// numbers are the elements of a small constant.
type numbers struct {
	values []float64
	dims   []int64
	root   *graph.Value // that stores it; nil if a Constant has it as an attribute
	sole   bool         // as in stored
}

// numbers reads a constant of at most most finite floats; nil if the value is not one.
func (f *finder) numbers(v *graph.Value, most int64) *numbers {
	if v == nil {
		return nil
	}
	c := f.recognizer.Fold(v)
	if c == nil || c.Decoder != nil || !c.Values.DType.Float() || c.Values.Size() > most || c.Values.Size() < 1 {
		return nil
	}
	if c.Source != nil && f.trained[c.Source.Name] {
		return nil
	}
	x := make([]float32, c.Values.Size())
	if c.Values.ReadAll(&lazy.Arena{}, x, 0) != nil {
		return nil
	}
	n := &numbers{dims: c.Values.Shape, values: make([]float64, len(x))}
	for i, v := range x {
		n.values[i] = float64(v)
	}
	if !within(n.values, math.MaxFloat32) {
		return nil
	}
	if v.Tensor != nil {
		n.root, n.sole = v, f.readOnce(v)
	}
	return n
}

// vector reads a constant of n numbers along one axis.
func (f *finder) vector(v *graph.Value, n int64) []float64 {
	c := f.numbers(v, n)
	if c == nil || len(c.dims) != 1 || int64(len(c.values)) != n {
		return nil
	}
	return c.values
}
