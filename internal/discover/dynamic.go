package discover

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/spec"
)

// Dynamic is the form of a weight whose operators compute with codes. Activations are quantized at
// run time.
type Dynamic struct {
	Kind Kind
	// Transposed: codes are stored with the last two axes swapped. There are two cases: a Gemm
	// without its transB, and DynamicQuantizeLSTM, which reads transposes.
	Transposed bool
}

// Kind is a group of operators that become the same operator on codes.
type Kind int

const (
	Product     Kind = iota + 1 // MatMul and Gemm: MatMulInteger
	Convolution                 // Conv: ConvInteger
	Table                       // Gather, which moves codes; MatMul and Gemm may read the table too
	Recurrent                   // LSTM: DynamicQuantizeLSTM
	Attention                   // com.microsoft's Attention: QAttention
	Embedding                   // its EmbedLayerNormalization: QEmbedLayerNormalization; Gather, MatMul and Gemm may read the table too
)

// String names the operators on codes.
func (k Kind) String() string {
	return [...]string{"", "MatMulInteger", "ConvInteger", "Gather and DequantizeLinear", "DynamicQuantizeLSTM", "QAttention", "QEmbedLayerNormalization"}[k]
}

// isTable reports whether the operators look up rows of a table.
func (k Kind) isTable() bool { return k == Table || k == Embedding }

// canReadTable reports whether the operators can share a table with operators that look up its
// rows.
func (k Kind) canReadTable() bool { return k.isTable() || k == Product }

// FindDynamic returns the form in which the operators of leaves can compute with the codes of a
// weight, or why they cannot.
func FindDynamic(x *graph.Graph, v *graph.Value, typ dtype.DType, shape []int64, r reach.Reach) (f Dynamic, why string) {
	switch {
	case typ != dtype.Float32:
		return f, fmt.Sprintf("DynamicQuantizeLinear does not take %s", typ)
	case v.Body != nil:
		return f, "the weight is in a function"
	case slices.ContainsFunc(r.Unread, func(l reach.Leaf) bool { return l.Call || l.Held }):
		return f, "it goes through a function, a Loop or an If"
	}
	for i, l := range r.Leaves {
		one, why := dynamicOf(l, shape, x)
		switch {
		case why != "":
			return f, why
		case i == 0 || one == f:
			f = one
		case len(shape) == 2 && (one.Kind.isTable() || f.Kind.isTable()) && one.Kind.canReadTable() && f.Kind.canReadTable():
			f = Dynamic{Kind: Table} // embedding and head
			if slices.ContainsFunc(r.Leaves, isEmbedding) {
				f.Kind = Embedding
			}
		case one.Kind != f.Kind:
			return f, fmt.Sprintf("it is read by %s and by %s", r.Leaves[0], l)
		default:
			return f, "its readers take it in two orders"
		}
	}
	return f, ""
}

// Swapped reports whether a MatMul or Gemm multiplies by the transpose of the stored matrix. ok is
// false if nodes other than Transpose and Identity are between them.
func Swapped(l reach.Leaf) (swapped, ok bool) {
	swapped = l.Node.GetOpType() == "Gemm" && graph.IntAttribute(l.Node, "transB") != 0
	for _, n := range l.Via {
		perm := graph.Attribute(n, "perm").GetInts()
		switch graph.Operator(n) {
		case "Identity":
		case "Transpose":
			if len(l.Layout.Axes) != 2 || perm != nil && !slices.Equal(perm, []int64{1, 0}) {
				return false, false
			}
			swapped = !swapped
		default:
			return false, false
		}
	}
	return swapped, true
}

// dynamicOf returns the form that one reader needs.
func dynamicOf(l reach.Leaf, shape []int64, x *graph.Graph) (f Dynamic, why string) {
	n, op := l.Node, graph.Operator(l.Node)
	swapped, ok := Swapped(l)
	product := op == "MatMul" || op == "Gemm"
	switch {
	case l.Call || l.Held || l.Cast || !ok || !product && swapped:
		return f, fmt.Sprintf("other nodes lie between it and %s", l)
	case isEmbedding(l): // segments are optional
	case !graph.HasInput(n, 0) || !graph.HasInput(n, 1):
		return f, fmt.Sprintf("%s lacks an input", graph.Describe(n))
	}
	switch {
	case product && (l.Input != 1 || len(shape) < 2):
		return f, "MatMulInteger takes a matrix as the second factor"
	case op == "MatMul":
		return Dynamic{Product, swapped}, ""
	case op == "Gemm" && x.Opset < 7:
		return f, "Gemm before opset 7 broadcasts differently"
	case op == "Gemm" && (graph.IntAttribute(n, "transA") != 0 || graph.FloatAttributeOr(n, "alpha", 1) != 1 || graph.FloatAttributeOr(n, "beta", 1) != 1):
		return f, "Gemm has transA, alpha or beta"
	case op == "Gemm":
		return Dynamic{Product, swapped}, ""
	case op == "Conv" && len(shape) < 3:
		return f, "a convolution's weight has three dimensions or more"
	case op == "Conv":
		return Dynamic{Kind: Convolution}, ""
	case op == "Gather":
		return Dynamic{Kind: Table}, ""
	case op == "LSTM" && (len(shape) != 3 || graph.IntAttribute(n, "layout") != 0):
		return f, "DynamicQuantizeLSTM has no layout"
	case op == "LSTM":
		return Dynamic{Recurrent, true}, ""
	case isEmbedding(l):
		if why := embeddingLacks(x, n); why != "" {
			return f, why
		}
		return Dynamic{Kind: Embedding}, ""
	case op == graph.Contrib+".Attention" && attentionFits(l, shape):
		return Dynamic{Kind: Attention}, ""
	case op == graph.Contrib+".Attention":
		return f, "QAttention does not have all inputs and attributes of this Attention"
	}
	return f, fmt.Sprintf("no operator on codes replaces %s", op)
}

// attentionFits reports whether a QAttention can replace an Attention.
func attentionFits(l reach.Leaf, shape []int64) bool {
	n := l.Node
	if len(shape) != 2 || !graph.HasInput(n, 2) || graph.HasInput(n, 5) || graph.HasInput(n, 6) {
		return false
	}
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "num_heads", "unidirectional", "mask_filter_value", "scale":
		case "do_rotary", "past_present_share_buffer": // QAttention takes and ignores them
			if a.GetI() != 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// dynamic makes the choice dynamic if the options ask for it and it is possible.
// otherwise is a reason against it, or "".
func (d *Decision) dynamic(c Choice, x *graph.Graph, opts Options, otherwise string) Choice {
	if opts.Activations != spec.Dynamic || c.Format != spec.Int8 && c.Format != spec.Uint8 || c.Block > 0 {
		return c
	}
	f, why := FindDynamic(x, d.Value, d.DType, d.Shape, d.Reach)
	if why = cmp.Or(otherwise, why); why != "" {
		d.miss(opts.Asked.Activations && otherwise == "", Unmet{Setting: "activations", Asked: "dynamic", Got: "weights only", Why: why})
		return d.decode(c, why)
	}
	if f.Kind == Convolution && !d.asksOneScale(opts) {
		if d.Shape[1] <= fewChannels {
			return d.decode(c, fmt.Sprintf("a convolution of %s", english.Plural(int(d.Shape[1]), "channel", "")))
		}
		c.Block = spec.PerChannel
	}
	if o := d.Override; f.Kind == Convolution && opts.Format == "" && opts.ConvFormat == "" && o.Format == nil && o.Bits == nil {
		c.Format = spec.Uint8 // ONNX Runtime's int8 convolutions are slow
	}
	c.ReduceRange = opts.ReduceRange
	switch f.Kind {
	case Table, Embedding: // as in quantize_dynamic
		c.Format, c.ReduceRange, c.Block = spec.Uint8, false, spec.PerTensor
	case Recurrent:
		c.Format = spec.Int8
	}
	c.Style, c.Dynamic, c.ZeroPoint = spec.StyleDynamic, f, !c.Format.Signed()
	if c.Algorithm != spec.RTN {
		d.remark(fmt.Sprintf("rounded to nearest: operators compute with its codes, for which there is no %s", c.Algorithm))
		d.missAlgorithm(opts, spec.RTN, "operators compute with its codes")
		c.Algorithm = spec.RTN
	}
	return c
}

// asksOneScale reports whether a weight gets one scale because the caller wants it, and not by default.
func (d *Decision) asksOneScale(opts Options) bool {
	if b := d.Override.Block; b != nil {
		return *b == spec.PerTensor
	}
	return opts.Asked.Block && opts.Block == spec.PerTensor
}

// fewChannels is the most channels whose products a convolution sums up while it is faster with floats than
// with codes: depthwise ones, and those of images and sound. Their activations are sensitive, too.
const fewChannels = 4

// fewElements is the most elements of a weight of a convolution of few channels that stays in float.
const fewElements = 1024

// betterFloat returns why a weight stays in float although operators compute with codes elsewhere: a convolution of few channels,
// which is not faster with codes, and whose weight is small. Such layers are near the inputs, and what they lose all layers
// behind them lose. It returns "" for others, and where the caller asks for codes.
func (d *Decision) betterFloat(c Choice, x *graph.Graph, opts Options) string {
	if opts.Activations != spec.Dynamic || opts.Strict || c.Block > 0 || d.asksOneScale(opts) || *d.Override != *noOverride {
		return ""
	}
	n, _ := dtype.Elements(d.Shape)
	f, why := FindDynamic(x, d.Value, d.DType, d.Shape, d.Reach)
	if why != "" || f.Kind != Convolution || d.Shape[1] > fewChannels || n > fewElements {
		return ""
	}
	return fmt.Sprintf("a small convolution of %s", english.Plural(int(d.Shape[1]), "channel", ""))
}

// decode settles a choice for a weight that is decoded before operators read it.
func (d *Decision) decode(c Choice, why string) Choice {
	c.Style, c.Dynamic, c.Block = spec.DQ, Dynamic{}, spec.PerChannel
	d.remark("weights only, one scale per channel: " + why)
	return c
}

// undynamic replaces a dynamic choice by decoding. why goes to the note.
func (d *Decision) undynamic(why string) {
	c := d.decode(*d.Choice, why)
	d.Choice = &c
}

// pairLSTMs makes either both weights of an LSTM dynamic or none.
func pairLSTMs(x *graph.Graph, all []*Decision) {
	of := map[*graph.Value]*Decision{}
	for _, d := range all {
		if d.Quantize && d.Choice.Dynamic.Kind == Recurrent {
			of[d.Value] = d
		}
	}
	for again := true; again; {
		again = false
		for _, d := range all {
			if of[d.Value] != d {
				continue
			}
			lone := slices.IndexFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return of[x.Source(l.Node, 3-l.Input)] == nil })
			if lone >= 0 {
				d.undynamic(fmt.Sprintf("the other weight of %s is not quantized alike", graph.Describe(d.Reach.Leaves[lone].Node)))
				delete(of, d.Value)
				again = true
			}
		}
	}
}
