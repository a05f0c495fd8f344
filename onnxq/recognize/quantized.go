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

// Weight is a weight that a model holds in codes, whichever tool wrote
// them, with what decodes it. The forms are
//
//	DequantizeLinear                 of the standard or of com.microsoft: per tensor, per axis, in blocks; scales may be scaled themselves
//	QuantizeLinear+DequantizeLinear  of a float constant: fake quantization
//	Gather, Gather+Mul               codes that are positions in a table of values, and scales
//	…+Sub                            mins that are taken off what one of these decodes
//	MatMulNBits                      of com.microsoft
//	GatherBlockQuantized             of com.microsoft
//
// with Cast, Reshape and Identity in between. Operators that compute with codes, such
// as QLinearMatMul, MatMulInteger and com.microsoft's MatMulBnb4 and QMoE, are forms
// too; what they hold is not decoded, and they have an Obstacle.
type Weight struct {
	// Name is that of the value that is decoded, with the subgraphs it lies in.
	// Operators that decode for themselves have none: there, it is that of the codes.
	Name string `json:"name"`
	Form string `json:"form"`

	DType string  `json:"dtype"` // of the decoded values
	Shape []int64 `json:"shape"`
	// Transposed: the operator multiplies by the transpose of the weight, which
	// Shape gives as [N, K], as MatMulNBits stores it.
	Transposed bool `json:"transposed,omitempty"`

	CodeType  string `json:"code_type"` // as ONNX calls it; UINT4 too where bytes of two codes are stored
	Bits      int    `json:"bits"`
	PerTensor bool   `json:"per_tensor,omitempty"` // one scale for all
	Axis      int    `json:"axis"`                 // that blocks run along, or whose indices have a scale each
	Block     int64  `json:"block"`                // elements along Axis that share a scale; 0: each index of Axis has its own

	Codes       string   `json:"codes"` // names of tensors; empty without
	Scale       string   `json:"scale,omitempty"`
	ZeroPoint   string   `json:"zero_point,omitempty"`
	TensorScale string   `json:"tensor_scale,omitempty"` // one number that the scales are scaled by
	Bytes       int64    `json:"bytes"`                  // of all these
	Consumers   []string `json:"consumers"`              // as Op:input

	// Obstacle says why the weight is not decoded; then there is nothing to read, and
	// Shape may be that of the codes as they are stored.
	Obstacle string `json:"obstacle,omitempty"`

	// Where it is in the graph, for the packages of this module.
	Value    *graph.Value        `json:"-"` // that is decoded; nil where an operator decodes for itself
	Nodes    []*onnxpb.NodeProto `json:"-"`
	Graph    *onnxpb.GraphProto  `json:"-"` // that holds the node, or else the codes
	Constant *Constant           `json:"-"` // nil if it cannot be decoded
}

// Weights lists the quantized weights of the main graph and of its
// subgraphs, in the order of the nodes that decode them, and then those of functions.
// A weight that several operators decode for themselves is listed once.
func Weights(x *graph.Graph) []*Weight { return New(x).Weights() }

func (f *Recognizer) Weights() []*Weight {
	homes := f.homes()
	var list []*Weight
	ties := map[tie]*Weight{}
	once := func(key tie, w *Weight) {
		first := ties[key]
		if first == nil {
			ties[key] = w
			list = append(list, w)
			return
		}
		first.Nodes = append(first.Nodes, w.Nodes...)
		first.Consumers = append(first.Consumers, w.Consumers...)
		first.Transposed = first.Transposed && w.Transposed
	}
	graph.WalkGraphs(f.Graph.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			for codes, w := range coded(f.Graph, n) {
				once(tie{coded: codes}, w)
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
				w.Graph = homes[w.Constant.Source.Tensor]
				once(w.tie(), w)
			}
		}
	})
	return append(list, inFunctions(f.Graph)...)
}

// inFunctions lists the quantized weights of functions. Operators there that decode
// for themselves stay as they are.
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

// homes tells which graph each tensor of an initializer or Constant lies in.
func (f *Recognizer) homes() map[*onnxpb.TensorProto]*onnxpb.GraphProto {
	homes := map[*onnxpb.TensorProto]*onnxpb.GraphProto{}
	graph.WalkGraphs(f.Graph.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			homes[t] = g
		}
		for _, n := range g.Node {
			homes[graph.ConstantTensor(n)] = g
		}
	})
	return homes
}

// tie is what weights have in common that are one.
type tie struct {
	coded       *graph.Value // codes that operators compute with; otherwise
	codes       io.ReaderAt
	scale, zero *graph.Value
	blocking
	pitch int64
	shape string
}

func (w *Weight) tie() tie {
	t := tie{scale: w.Constant.Decoder.Scale, zero: w.Constant.Decoder.Zero, blocking: w.Constant.Decoder.blocking, shape: fmt.Sprint(w.Constant.Values.Shape)}
	if g := w.Constant.Decoder.Grid; g != nil {
		t.codes, t.pitch = g.Stored, g.Pitch
	} else if w.Constant.Decoder.X != nil {
		t.codes = w.Constant.Decoder.X.Stored
	}
	return t
}

// quantized tells whether a node decodes a quantized weight at last, by itself or
// for those that read it.
func (f *Recognizer) quantized(n *onnxpb.NodeProto) *Weight {
	switch {
	case n.GetDomain() == graph.Contrib && n.GetOpType() == "MatMulNBits":
		c, obstacle := f.packedMatrix(n)
		return f.selfDecoded(n, 1, c, obstacle)
	case n.GetDomain() == graph.Contrib && n.GetOpType() == "GatherBlockQuantized":
		c, obstacle := f.packedTable(n)
		return f.selfDecoded(n, 0, c, obstacle)
	}
	v := f.Graph.Made(n)
	if v == nil {
		return nil
	}
	c := f.Fold(v)
	if c == nil || c.Decoder == nil || !c.Values.DType.Float() || f.absorbed(v) {
		return nil
	}
	w := &Weight{Name: v.Path, Value: v, Nodes: []*onnxpb.NodeProto{n}, Consumers: []string{}, Constant: c}
	for _, u := range v.Uses {
		w.Consumers = append(w.Consumers, u.String())
	}
	w.describe(c.Decoder)
	return w
}

// absorbed tells whether a weight is only a part of others.
func (f *Recognizer) absorbed(v *graph.Value) bool {
	return !v.Output && len(v.Uses) > 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		made := f.Graph.Made(u.Node)
		if made == nil {
			return true
		}
		c := f.Fold(made)
		return c == nil || c.Decoder == nil
	})
}

// selfDecoded is the weight of an operator that decodes for itself.
func (f *Recognizer) selfDecoded(n *onnxpb.NodeProto, input int, c *Constant, obstacle string) *Weight {
	w := &Weight{
		Form: n.GetOpType(), Obstacle: obstacle, Transposed: input == 1,
		Consumers: []string{graph.Use{Node: n, Input: input}.String()}, Nodes: []*onnxpb.NodeProto{n}, Constant: c,
		Shape: []int64{}, Bits: int(graph.IntAttributeOr(n, "bits", 4)), Block: graph.IntAttribute(n, "block_size"),
	}
	if graph.HasInput(n, input) {
		w.Name, w.Codes = n.Input[input], n.Input[input]
	}
	if c != nil {
		w.Name = c.Source.Path
		w.describe(c.Decoder)
	}
	return w
}

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

// Read decodes elements off, off+1, … of the weight, in the order of Shape, the
// last axis fastest, as many as dst has room for. They are what the graph
// computes, in the arithmetic of its operators: float32, rounded to the types
// that it names. Several goroutines may read at once, as long as the Model is open.
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

// codesSuffix is what quantizers put behind the name of a weight for its codes.
var codesSuffix = regexp.MustCompile(`_(Q|i|u)[248]$|_quant$|_quantized$|_QuantizedWeight$`)

// PlainName is a name for the decoded weight of an operator that decodes for
// itself.
func (w *Weight) PlainName() string {
	if name := codesSuffix.ReplaceAllString(w.Codes, ""); name != "" {
		return name
	}
	return w.Codes
}
