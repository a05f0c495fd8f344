package recognize

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Weight is a weight that a model stores in codes, whichever tool wrote it. Its form is the operators
// that decode it. The known forms are
//
//	DequantizeLinear                 of the standard or of com.microsoft: per tensor, per axis, in blocks; scales may be scaled themselves
//	QuantizeLinear+DequantizeLinear  of a float constant: fake quantization
//	Gather, Gather+Mul               codes that are positions in a table of values, and scales
//	Cast+Mul                         codes as floats, zero points as floats that are subtracted from them, and scales
//	…+Sub                            one of these, and mins that are subtracted from the result
//	MatMulNBits                      of com.microsoft; +Sub: of the sums of blocks of the other factor, times mins
//	GatherBlockQuantized             of com.microsoft; +Sub: of mins
//	MatMulBnb4                       of com.microsoft
//	QMoE                             of com.microsoft, with integer codes
//
// with Cast, Reshape and Identity in between. Operators that compute with codes, such as QLinearMatMul
// and MatMulInteger, are forms too, but their weights are not decoded: they have an Obstacle. Package intops first replaces the most common ones by float operators.
type Weight struct {
	// Name is the name of the decoded value, with the path of its subgraph. An operator
	// that decodes internally has no such value: then it is the name of the codes.
	Name string `json:"name"`
	Node string `json:"node,omitempty"` // a node that reads it, if Name is a number that an exporter gave
	Form string `json:"form"`

	DType string  `json:"dtype"` // of the decoded values
	Shape []int64 `json:"shape"`
	// Transposed: the operator multiplies by the transpose of the weight. Shape is then
	// [N, K], as MatMulNBits stores it.
	Transposed bool `json:"transposed,omitempty"`

	CodeType  string `json:"code_type"` // ONNX's name; also UINT4 if two codes are stored in a byte
	Bits      int    `json:"bits"`
	PerTensor bool   `json:"per_tensor,omitempty"` // one scale for the whole tensor
	Axis      int    `json:"axis"`                 // axis of the blocks, or of per-axis scales
	Block     int64  `json:"block"`                // elements along Axis that share a scale; 0: each index of Axis has its own

	Codes       string   `json:"codes"` // names of tensors; empty without
	Scale       string   `json:"scale,omitempty"`
	ZeroPoint   string   `json:"zero_point,omitempty"`
	TensorScale string   `json:"tensor_scale,omitempty"` // scale of the scales
	Bytes       int64    `json:"bytes"`                  // of all these tensors
	Consumers   []string `json:"consumers"`              // as Op:input

	// Obstacle says why the weight cannot be decoded. Then Read fails, and Shape may be the
	// shape of the stored codes.
	Obstacle string `json:"obstacle,omitempty"`

	// Step is the largest scale of a weight that was detached; 0 if blocks have scales.
	Step float64 `json:"-"`

	// Its place in the graph, for packages of this module.
	Value    *graph.Value        `json:"-"` // the decoded value; nil if an operator decodes internally
	Nodes    []*onnxpb.NodeProto `json:"-"` // the nodes that decode it
	Inputs   []int               `json:"-"` // of Nodes that decode internally: where they read the codes
	Ends     []*onnxpb.NodeProto `json:"-"` // the Sub behind each of Nodes that decode internally, if the weight has mins
	Graph    *onnxpb.GraphProto  `json:"-"` // contains the node, or the codes if an operator decodes internally
	Constant *Constant           `json:"-"` // nil if it cannot be decoded
}

// Detached returns the weight without the graph that it is in, whose memory it would hold. It
// cannot be read.
func (w *Weight) Detached() *Weight {
	made := *w
	made.Value, made.Nodes, made.Ends, made.Graph, made.Constant = nil, nil, nil, nil, nil
	if w.Constant == nil || w.Constant.Decoder == nil {
		return &made
	}
	d := *w.Constant.Decoder
	made.Step = w.step()
	for _, v := range []**graph.Value{&d.Codes, &d.Scale, &d.Zero, &d.TensorScale, &d.Mins, &d.MinScale} {
		if *v != nil {
			*v = &graph.Value{Name: (*v).Name, Path: (*v).Path, Tensor: (*v).Tensor}
		}
	}
	if d.X != nil {
		d.X = &lazy.Tensor{DType: d.X.DType, Shape: d.X.Shape}
	}
	d.Z, d.S, d.Scales, d.Step, d.Grid, d.ZeroGrid, d.Floats, d.ScaleMap = nil, nil, nil, nil, nil, nil, nil, lazy.ScaleMap{}
	made.Constant = &Constant{Decoder: &d}
	return &made
}

// step returns the largest scale, of the tensor or of the indices of an axis; 0 if it cannot be read.
func (w *Weight) step() float64 {
	d := w.Constant.Decoder
	if d.Block != 0 || d.S == nil || d.S.Size() > mostScales {
		return 0
	}
	scales := make([]float32, d.S.Size())
	if len(scales) == 0 || d.S.ReadAll(&lazy.Arena{}, scales, 0) != nil {
		return 0
	}
	return float64(slices.Max(scales))
}

// Weights lists the quantized weights of the main graph and its subgraphs, in the order of the nodes
// that decode them, and then the weights of functions. A weight that several operators decode
// internally is listed once.
func Weights(x *graph.Graph) []*Weight { return New(x).Weights() }

// Weights is like the function Weights and keeps the folded constants in f.
func (f *Recognizer) Weights() []*Weight {
	var list []*Weight
	seen := map[weightKey]*Weight{}
	once := func(key weightKey, w *Weight) {
		first := seen[key]
		if first == nil {
			seen[key] = w
			list = append(list, w)
			return
		}
		first.Nodes, first.Inputs, first.Ends = append(first.Nodes, w.Nodes...), append(first.Inputs, w.Inputs...), append(first.Ends, w.Ends...)
		first.Consumers = append(first.Consumers, w.Consumers...)
		first.Transposed = first.Transposed && w.Transposed
	}
	graph.WalkGraphs(f.Graph.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			experts, obstacle := f.expertsOf(n)
			for _, w := range experts {
				w.Graph = w.Constant.Source.Graph
				once(w.key(), w)
			}
			for codes, w := range coded(f.Graph, n) {
				if len(experts) == 0 {
					w.Obstacle = cmp.Or(obstacle, w.Obstacle)
					once(weightKey{coded: codes}, w)
				}
			}
			w := f.quantized(n)
			if w == nil {
				continue
			}
			w.Graph = g
			switch {
			case w.Value != nil || w.Obstacle != "":
				list = append(list, w)
			default:
				w.Graph = w.Constant.Source.Graph
				once(w.key(), w)
			}
		}
	})
	return append(list, inFunctions(f.Graph)...)
}

// inFunctions lists the quantized weights of functions. Weights that an operator decodes internally
// get an Obstacle.
func inFunctions(x *graph.Graph) (list []*Weight) {
	f := New(x)
	f.Functions = true
	for _, function := range x.File.Proto.Functions {
		graph.WalkBody(function.Node, func(n *onnxpb.NodeProto) {
			for _, w := range coded(x, n) {
				list = append(list, w)
			}
			w := f.quantized(n)
			if w == nil {
				return
			}
			if w.Value == nil {
				w.Constant, w.Obstacle = nil, cmp.Or(w.Obstacle, "it is in a function")
			}
			list = append(list, w)
		})
	}
	return list
}

// weightKey identifies a weight: several operators may decode the same one.
type weightKey struct {
	coded       *graph.Value // codes that an operator computes with; if nil, the fields below are set
	codes       io.ReaderAt
	scale, zero *graph.Value
	mins        *graph.Value
	blocking
	pitch int64
	shape string
}

func (w *Weight) key() weightKey {
	d := w.Constant.Decoder
	k := weightKey{scale: d.Scale, zero: d.Zero, mins: d.Mins, blocking: d.blocking, shape: fmt.Sprint(w.Constant.Values.Shape)}
	if d.Grid != nil {
		k.codes, k.pitch = d.Grid.Stored, d.Grid.Pitch
	} else if d.X != nil && d.X.Stored != nil {
		k.codes = d.X.Stored
	} else {
		k.coded = d.Codes // looked up
	}
	return k
}

// quantized returns the weight that a node decodes, internally or as its output, or nil. It
// must be the last node that decodes it.
func (f *Recognizer) quantized(n *onnxpb.NodeProto) *Weight {
	switch {
	case n.GetDomain() == graph.Contrib && n.GetOpType() == "MatMulNBits":
		c, obstacle := f.packedMatrix(n)
		return f.withMins(f.selfDecoded(n, 1, c, obstacle), n)
	case n.GetDomain() == graph.Contrib && n.GetOpType() == "MatMulBnb4":
		c, obstacle := f.bnb4Matrix(n)
		return f.selfDecoded(n, 1, c, obstacle)
	case n.GetDomain() == graph.Contrib && n.GetOpType() == "GatherBlockQuantized":
		c, obstacle := f.packedTable(n)
		return f.withMins(f.selfDecoded(n, 0, c, obstacle), n)
	}
	v := f.Graph.Made(n)
	if v == nil {
		return nil
	}
	c := f.Fold(v)
	if c == nil || c.Decoder == nil || !c.Values.DType.Float() || f.absorbed(v) {
		return nil
	}
	w := &Weight{Name: v.Path, Node: v.Reader(), Value: v, Nodes: []*onnxpb.NodeProto{n}, Consumers: []string{}, Constant: c}
	for _, u := range v.Uses {
		w.Consumers = append(w.Consumers, u.String())
	}
	w.describe(c.Decoder)
	return w
}

// absorbed reports whether a decoded weight is only a part of other weights, such as scaled scales.
func (f *Recognizer) absorbed(v *graph.Value) bool {
	return !v.Output && len(v.Uses) > 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		if readsScales(u) {
			return false
		}
		made := f.Graph.Made(u.Node)
		if made == nil {
			return true
		}
		c := f.Fold(made)
		return c == nil || c.Decoder == nil && !f.absorbed(made)
	})
}

// selfDecoded describes the weight of an operator that decodes internally.
func (f *Recognizer) selfDecoded(n *onnxpb.NodeProto, input int, c *Constant, obstacle string) *Weight {
	w := &Weight{
		Form: n.GetOpType(), Obstacle: obstacle, Transposed: input == 1,
		Consumers: []string{graph.Use{Node: n, Input: input}.String()}, Nodes: []*onnxpb.NodeProto{n}, Inputs: []int{input}, Constant: c,
		Shape: []int64{}, Bits: int(graph.IntAttributeOr(n, "bits", 4)), Block: graph.IntAttribute(n, "block_size"),
	}
	if graph.HasInput(n, input) {
		w.Name, w.Codes = n.Input[input], n.Input[input]
		if i := strings.LastIndexByte(w.Name, '_'); i > 0 && (graph.Numbered(w.Name) || graph.Numbered(w.Name[:i])) { // onnx::MatMul_540_i4
			w.Node = n.GetName()
		}
	}
	if c != nil {
		w.Name = c.Source.Path
		w.describe(c.Decoder)
	}
	return w
}

// describe copies the fields that the decoder knows.
func (w *Weight) describe(d *Decoder) {
	w.Form = d.Form
	w.DType, w.Shape = w.Constant.Values.DType.String(), append([]int64{}, w.Constant.Values.Shape...)
	w.CodeType, w.Bits = d.CodeType.String(), int(d.CodeType.Bits())
	w.PerTensor = d.PerTensor
	if !d.PerTensor {
		w.Axis, w.Block = int(d.Axis), d.Block
	}
	for _, part := range []struct {
		name *string
		v    *graph.Value
	}{{&w.Codes, d.Codes}, {&w.Scale, d.Scale}, {&w.ZeroPoint, d.Zero}, {&w.TensorScale, d.TensorScale}} {
		if part.v != nil {
			*part.name = part.v.Name
			w.Bytes += graph.SizeOf(part.v.Tensor)
		}
	}
	for _, v := range []*graph.Value{d.Mins, d.MinScale} {
		if v != nil {
			w.Bytes += graph.SizeOf(v.Tensor)
		}
	}
}

// Elements is the number of elements of the weight.
func (w *Weight) Elements() int64 {
	n, _ := dtype.Elements(w.Shape)
	return n
}

var arenas = sync.Pool{New: func() any { return new(lazy.Arena) }}

// Read decodes elements off, off+1, …, off+len(dst)-1 of the weight, in row-major order of Shape. The
// results are those of the graph: float32, rounded to the types in the graph. Several goroutines may
// read at once, as long as the Model is open.
func (w *Weight) Read(dst []float32, off int64) error {
	switch n := w.Elements(); {
	case w.Constant == nil:
		return fmt.Errorf("%s cannot be decoded: %s", msg.Quote(w.Name), w.Obstacle)
	case off < 0 || int64(len(dst)) > n || off > n-int64(len(dst)):
		return fmt.Errorf("%s has %d elements, not %d from %d on", msg.Quote(w.Name), n, len(dst), off)
	}
	a := arenas.Get().(*lazy.Arena)
	defer arenas.Put(a)
	if err := w.Constant.Values.ReadAll(a, dst, off); err != nil {
		return fmt.Errorf("%s: %w", msg.Quote(w.Name), err)
	}
	return nil
}

// String describes the weight in one line.
func (w *Weight) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %s, %s", msg.Quote(w.Name), w.Shape, w.Form, w.CodeType)
	switch {
	case w.Obstacle != "":
		fmt.Fprintf(&b, ": %s", w.Obstacle)
	case w.PerTensor:
		b.WriteString(" per tensor")
	case w.Block == 0:
		fmt.Fprintf(&b, " per index of axis %d", w.Axis)
	default:
		fmt.Fprintf(&b, " in blocks of %d along axis %d", w.Block, w.Axis)
	}
	return b.String()
}

// codesSuffix matches the suffixes that quantizers add to the name of a weight for its codes.
var codesSuffix = regexp.MustCompile(`_(Q|i|u)[248]$|_(nf|fp|Bnb)4$|_quant$|_quantized$|_QuantizedWeight$`)

// PlainName returns a name for the decoded weight of an operator that decodes internally.
func (w *Weight) PlainName() string {
	if name := codesSuffix.ReplaceAllString(w.Codes, ""); name != "" {
		return name
	}
	return w.Codes
}
