package actpairs

import (
	"encoding/binary"
	"io"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// widthFactor is the quotient of the scales of 8 and 16 bits of a value. A power of two makes the conversion exact.
const widthFactor = 256

// wideCodes returns codes of 16 bits in place of those of 8 bits. ok is false if there are none.
func wideCodes(c Codes) (wide Codes, ok bool) {
	wide = c
	switch c.Type {
	case dtype.Uint8:
		wide.Type = dtype.Uint16
	case dtype.Int8:
		wide.Type = dtype.Int16
	default:
		return c, false
	}
	return wide, true
}

// widening gives some activations codes of 16 bits, after all have scales of 8 bits.
type widening struct {
	*marking
	plan   *Plan
	codes  Codes
	chosen map[*Tensor]bool // activations with a scale of their own
	wide   []bool           // by number of the node: it computes with 16 bits
}

// widen gives the activations that the options choose codes of 16 bits. The nodes that read or make them compute with 16 bits.
// Where nodes of 8 bits are next to these, values have a second pair, which converts.
func (m *marking) widen(p *Plan) {
	codes, ok := wideCodes(m.opts.Activations)
	if !ok || m.opts.Wide == nil {
		return
	}
	w := &widening{m, p, codes, map[*Tensor]bool{}, make([]bool, m.x.Nodes()+1)}
	for _, t := range p.Tensors {
		if root := t.root(); root.Stored == nil && m.opts.Wide(t.Value) {
			w.chosen[root] = true
		}
	}
	if len(w.chosen) == 0 {
		return
	}
	for _, t := range p.Tensors {
		if t.Stored != nil || !w.chosen[t.root()] {
			continue
		}
		if n := t.Made.Node; n != nil && w.computes(n) {
			w.wide[m.x.Number(n)] = true
		}
		for _, u := range t.Value.Uses {
			if w.computes(u.Node) {
				w.wide[m.x.Number(u.Node)] = true
			}
		}
	}
	for _, t := range p.Tensors {
		w.convert(t)
	}
	for _, t := range p.Tensors {
		if like := t.Like; like != nil && like.Codes.Type != t.Codes.Type && like.Read != nil {
			t.Like = like.Read
		}
	}
}

// computes reports whether a node is quantized.
func (w *widening) computes(n *onnxpb.NodeProto) bool {
	return w.selected(n) && !slices.Contains(w.removed, n)
}

// convert gives a tensor codes of 16 bits, or a second pair for nodes of the other width, or neither.
func (w *widening) convert(t *Tensor) {
	if t.Stored != nil && t.weight {
		return // has the codes of weights beside both widths
	}
	narrow, wide := w.readers(t)
	made := t.Made.Node
	switch {
	case t.Stored != nil:
		t.Wide = len(narrow) == 0 && len(wide) > 0
	case t.Like == nil || w.chosen[t.root()]:
		t.Wide = w.chosen[t.root()] || made != nil && w.wide[w.x.Number(made)]
	}
	other := &Tensor{Value: t.Value, Made: t.Made, axis: noAxis}
	switch {
	case t.Wide && t.Stored != nil:
		t.Codes.Type = w.codes.Type
		t.codes.Type = w.codes.Type
	case t.Wide:
		other.Codes, other.Own, other.Range = t.Codes, t.Own, t.Range
		if t.Codes = w.codes; t.Like == nil {
			w.settleWide(t)
		}
		if len(narrow) > 0 {
			t.Read, t.others = other, narrow
		}
	case len(wide) > 0:
		other.Codes, other.Wide, other.coarser = w.codes, true, t
		t.Read, t.others = other, wide
	}
}

// splitSiLU gives a Mul that multiplies what a Conv makes by its Sigmoid another scale than the Sigmoid reads, in 16 bits. With one
// scale for both, QNN fuses them and computes wrongly.
func (m *marking) splitSiLU(t *Tensor) {
	if t.Read != nil {
		return
	}
	for _, n := range t.SiLU(m.x) {
		t.others = append(t.others, m.x.Number(n))
	}
	if len(t.others) > 0 {
		own := t.root().Own
		t.Read = &Tensor{Value: t.Value, Made: t.Made, Codes: t.Codes, Wide: t.Wide, axis: noAxis, Own: Params{own.Scale * apart, own.Zero}}
	}
}

// SiLU lists the nodes that multiply a tensor, which a Conv makes in 16 bits, by its Sigmoid.
func (t *Tensor) SiLU(x *graph.Graph) (nodes []*onnxpb.NodeProto) {
	if t.Stored != nil || t.Codes.Type.Bits() != 16 || t.Made.Node == nil || !graph.IsOperator(t.Made.Node, "Conv") {
		return nil
	}
	for _, u := range t.Value.Uses {
		if !graph.IsOperator(u.Node, "Mul") || t.Read != nil && slices.Contains(t.others, x.Number(u.Node)) {
			continue
		}
		if other := x.Source(u.Node, 1-u.Input); other != nil && other.Node != nil && graph.IsOperator(other.Node, "Sigmoid") && x.Source(other.Node, 0) == t.Value {
			nodes = append(nodes, u.Node)
		}
	}
	return nodes
}

// apart is the quotient of two scales that QNN takes for different ones.
const apart = 1.01

// readers lists the numbers of the nodes that read a tensor, by their width.
func (w *widening) readers(t *Tensor) (narrow, wide []int) {
	for _, u := range t.Value.Uses {
		switch number := w.x.Number(u.Node); {
		case !w.computes(u.Node):
		case w.wide[number]:
			wide = append(wide, number)
		default:
			narrow = append(narrow, number)
		}
	}
	return narrow, wide
}

// settleWide sets the scale and zero point of an activation of 16 bits. Its range is known.
func (w *widening) settleWide(t *Tensor) {
	if own, ok := fixed(t.Value, t.Codes.Type); ok && w.opts.Placement.FixedScales {
		t.Own, t.Range = own, nil
		return
	}
	lo, hi, _ := w.rangeOf(t.Value)
	t.Own = t.Codes.For(lo, hi)
}

// root returns the tensor whose scale a tensor has.
func (t *Tensor) root() *Tensor {
	for t.Like != nil {
		t = t.Like
	}
	return t
}

// Plain returns the form of a tensor with the codes that most activations have, nil if it has none.
func (t *Tensor) Plain() *Tensor {
	switch {
	case !t.Wide:
		return t
	case t.Read != nil && !t.Read.Wide:
		return t.Read
	}
	return nil
}

// ReadBy returns what a node reads: the tensor, or its second form.
func (p *Plan) ReadBy(t *Tensor, number int) *Tensor {
	if t != nil && t.Read != nil && slices.Contains(t.others, number) {
		return t.Read
	}
	return t
}

// finer returns the scale and zero point of 16 bits that exactly represent codes of 8 bits.
func finer(p Params) Params { return Params{p.Scale / widthFactor, p.Zero * widthFactor} }

// Derived reports whether a tensor has the values of codes of 8 bits. Its scale and zero point are known when they are read.
func (t *Tensor) Derived() bool { return t.coarser != nil }

// DerivedScale and DerivedZero are the contents of the scale and the zero point then.
func (t *Tensor) DerivedScale() io.ReaderAt {
	return t.derived(func(p Params) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(p.Scale)) })
}

// DerivedZero: see DerivedScale.
func (t *Tensor) DerivedZero() io.ReaderAt {
	return t.derived(func(p Params) []byte { return t.Codes.Append(nil, p.Zero) })
}

func (t *Tensor) derived(raw func(p Params) []byte) io.ReaderAt {
	return computed(func() ([]byte, error) {
		params, err := t.Params()
		if err != nil {
			return nil, err
		}
		return raw(params[0]), nil
	})
}
