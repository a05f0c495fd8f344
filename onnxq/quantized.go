package onnxq

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// QuantizedWeight is a weight that a model holds in codes, whichever tool wrote
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
type QuantizedWeight struct {
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

	value  *value // that is decoded; nil where an operator decodes for itself
	nodes  []*onnxpb.NodeProto
	graph  *onnxpb.GraphProto // that holds the node, or else the codes
	folded *constant
}

// quantizedWeights lists the quantized weights of the main graph and of its
// subgraphs, in the order of the nodes that decode them, and then those of functions.
// A weight that several operators decode for themselves is listed once.
func quantizedWeights(x *graphIndex) []*QuantizedWeight { return newFolder(x).weights() }

func (f *folder) weights() []*QuantizedWeight {
	homes := f.homes()
	var list []*QuantizedWeight
	ties := map[tie]*QuantizedWeight{}
	once := func(key tie, w *QuantizedWeight) {
		first := ties[key]
		if first == nil {
			ties[key] = w
			list = append(list, w)
			return
		}
		first.nodes = append(first.nodes, w.nodes...)
		first.Consumers = append(first.Consumers, w.Consumers...)
		first.Transposed = first.Transposed && w.Transposed
	}
	walkGraphs(f.graph.file.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			for codes, w := range coded(f.graph, n) {
				once(tie{coded: codes}, w)
			}
			w := f.quantized(n)
			if w == nil {
				continue
			}
			w.graph = g
			switch {
			case w.value != nil || w.Obstacle != "":
				list = append(list, w)
			default:
				w.graph = homes[w.folded.tensor.tensor]
				once(w.tie(), w)
			}
		}
	})
	return append(list, inFunctions(f.graph)...)
}

// inFunctions lists the quantized weights of functions. Operators there that decode
// for themselves stay as they are.
func inFunctions(x *graphIndex) (list []*QuantizedWeight) {
	f := newFolder(x)
	f.functions = true
	for _, function := range x.file.Proto.Functions {
		walkBody(function.Node, func(n *onnxpb.NodeProto) {
			for _, w := range coded(x, n) {
				list = append(list, w)
			}
			w := f.quantized(n)
			if w == nil {
				return
			}
			if w.value == nil {
				w.folded, w.Obstacle = nil, cmp.Or(w.Obstacle, "it is in a function")
			}
			list = append(list, w)
		})
	}
	return list
}

// homes tells which graph each tensor of an initializer or Constant lies in.
func (f *folder) homes() map[*onnxpb.TensorProto]*onnxpb.GraphProto {
	homes := map[*onnxpb.TensorProto]*onnxpb.GraphProto{}
	walkGraphs(f.graph.file.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			homes[t] = g
		}
		for _, n := range g.Node {
			homes[constantTensor(n)] = g
		}
	})
	return homes
}

// tie is what weights have in common that are one.
type tie struct {
	coded       *value // codes that operators compute with; otherwise
	codes       io.ReaderAt
	scale, zero *value
	blocking
	pitch int64
	shape string
}

func (w *QuantizedWeight) tie() tie {
	t := tie{scale: w.folded.weight.scale, zero: w.folded.weight.zero, blocking: w.folded.weight.blocking, shape: fmt.Sprint(w.folded.num.shape)}
	if g := w.folded.weight.grid; g != nil {
		t.codes, t.pitch = g.stored, g.pitch
	} else if w.folded.weight.x != nil {
		t.codes = w.folded.weight.x.stored
	}
	return t
}

// quantized tells whether a node decodes a quantized weight at last, by itself or
// for those that read it.
func (f *folder) quantized(n *onnxpb.NodeProto) *QuantizedWeight {
	switch {
	case n.GetDomain() == contribDomain && n.GetOpType() == "MatMulNBits":
		c, obstacle := f.packedMatrix(n)
		return f.selfDecoded(n, 1, c, obstacle)
	case n.GetDomain() == contribDomain && n.GetOpType() == "GatherBlockQuantized":
		c, obstacle := f.packedTable(n)
		return f.selfDecoded(n, 0, c, obstacle)
	}
	v := f.graph.made(n)
	if v == nil {
		return nil
	}
	c := f.fold(v)
	if c == nil || c.weight == nil || !c.num.dtype.Float() || f.absorbed(v) {
		return nil
	}
	w := &QuantizedWeight{Name: v.path, value: v, nodes: []*onnxpb.NodeProto{n}, Consumers: []string{}, folded: c}
	for _, u := range v.uses {
		w.Consumers = append(w.Consumers, u.String())
	}
	w.describe(c.weight)
	return w
}

// absorbed tells whether a weight is only a part of others.
func (f *folder) absorbed(v *value) bool {
	return !v.output && len(v.uses) > 0 && !slices.ContainsFunc(v.uses, func(u use) bool {
		made := f.graph.made(u.node)
		if made == nil {
			return true
		}
		c := f.fold(made)
		return c == nil || c.weight == nil
	})
}

// selfDecoded is the weight of an operator that decodes for itself.
func (f *folder) selfDecoded(n *onnxpb.NodeProto, input int, c *constant, obstacle string) *QuantizedWeight {
	w := &QuantizedWeight{
		Form: n.GetOpType(), Obstacle: obstacle, Transposed: input == 1,
		Consumers: []string{use{n, input}.String()}, nodes: []*onnxpb.NodeProto{n}, folded: c,
		Shape: []int64{}, Bits: int(intAttributeOr(n, "bits", 4)), Block: intAttribute(n, "block_size"),
	}
	if hasInput(n, input) {
		w.Name, w.Codes = n.Input[input], n.Input[input]
	}
	if c != nil {
		w.Name = c.tensor.path
		w.describe(c.weight)
	}
	return w
}

func (w *QuantizedWeight) describe(d *decoder) {
	w.Form = d.form
	w.DType, w.Shape = w.folded.num.dtype.String(), append([]int64{}, w.folded.num.shape...)
	w.CodeType, w.Bits = d.codeType.String(), int(d.codeType.Bits())
	w.PerTensor = d.perTensor
	if !d.perTensor {
		w.Axis, w.Block = int(d.axis), d.block
	}
	for _, part := range []struct {
		name *string
		v    *value
	}{{&w.Codes, d.codes}, {&w.Scale, d.scale}, {&w.ZeroPoint, d.zero}, {&w.TensorScale, d.whole}} {
		if part.v != nil {
			*part.name = part.v.name
			w.Bytes += sizeOf(part.v.tensor)
		}
	}
	for _, v := range []*value{d.least, d.leastWhole} {
		if v != nil {
			w.Bytes += sizeOf(v.tensor)
		}
	}
}

// Elements is the number of elements of the weight.
func (w *QuantizedWeight) Elements() int64 {
	n, _ := dtype.Elements(w.Shape)
	return n
}

var arenas = sync.Pool{New: func() any { return new(arena) }}

// Read decodes elements off, off+1, … of the weight, in the order of Shape, the
// last axis fastest, as many as dst has room for. They are what the graph
// computes, in the arithmetic of its operators: float32, rounded to the types
// that it names. Several goroutines may read at once, as long as the Model is open.
func (w *QuantizedWeight) Read(dst []float32, off int64) error {
	switch n := w.Elements(); {
	case w.folded == nil:
		return fmt.Errorf("%s cannot be decoded: %s", quote(w.Name), w.Obstacle)
	case off < 0 || int64(len(dst)) > n || off > n-int64(len(dst)):
		return fmt.Errorf("%s has %d elements, not %d from %d on", quote(w.Name), n, len(dst), off)
	}
	a := arenas.Get().(*arena)
	defer arenas.Put(a)
	if err := w.folded.num.readAll(a, dst, off); err != nil {
		return fmt.Errorf("%s: %w", quote(w.Name), err)
	}
	return nil
}

// String describes the weight in one line.
func (w *QuantizedWeight) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %s, %s", quote(w.Name), w.Shape, w.Form, w.CodeType)
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

// plainName is a name for the decoded weight of an operator that decodes for
// itself.
func (w *QuantizedWeight) plainName() string {
	if name := codesSuffix.ReplaceAllString(w.Codes, ""); name != "" {
		return name
	}
	return w.Codes
}
