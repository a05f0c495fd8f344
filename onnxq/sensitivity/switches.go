package sensitivity

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/work"
)

// A group is an activation with a range of its own, and the values that share its scale.
type group struct {
	own   *actpairs.Tensor
	all   []*actpairs.Tensor
	codes actpairs.Params // in runs with switches
}

// groupsOf lists the groups of a plan.
func groupsOf(p *actpairs.Plan) (groups []*group) {
	of := map[*actpairs.Tensor]*group{}
	for _, t := range p.Tensors {
		own := t.Plain()
		if own == nil { // 16 bits for all readers
			continue
		}
		for own.Like != nil {
			own = own.Like
		}
		switch {
		case t.Stored != nil:
			continue
		case of[own] == nil:
			of[own] = &group{own: own, codes: own.Own}
			if own.Stored == nil { // otherwise the values come from a stored table
				groups = append(groups, of[own])
			}
		}
		of[own].all = append(of[own].all, t)
	}
	return groups
}

// switchboard is a model whose runs decide what codes do. The inputs of its runs follow its form.
type switchboard struct {
	groups []*group
	pairs  dtype.DType // of the codes of pairs; 0: other operators round, which take longer
	where  bool        // the opset has Where
	fp8    bool        // codes are floats of 8 bits
}

// newSwitchboard chooses the form. Pairs need codes of one type, of 8 bits, and opset 10.
func newSwitchboard(groups []*group, opset int64) *switchboard {
	typ := groups[0].own.Codes.Type
	b := &switchboard{groups: groups, where: opset >= 9, fp8: groups[0].own.Codes.IsFP8()}
	other := func(g *group) bool { return g.own.Codes.Type != typ }
	if opset >= 10 && (typ == dtype.Int8 || typ == dtype.Uint8) && !slices.ContainsFunc(groups, other) {
		b.pairs = typ
	}
	return b
}

// Inputs of the model with switches: whether each group is quantized, its scale, and its zero point, or the least and the
// greatest multiple of the scale.
const (
	switchOn    = "onnxquant/on"
	switchScale = "onnxquant/scale"
	switchZero  = "onnxquant/zero"
	switchLeast = "onnxquant/least"
	switchMost  = "onnxquant/most"
	switchHalf  = "onnxquant/half" // what rounds: see round
)

// switched writes a copy of a model in which each run decides which groups are quantized.
func switched(ctx context.Context, x *graph.Graph, groups []*group) (b *switchboard, path string, remove func(), err error) {
	b = newSwitchboard(groups, x.Opset)
	path, remove, err = writeFloat(ctx, x.File, b.model(x), "switches.onnx")
	return b, path, remove, err
}

// writeFloat writes a model of another structure with the tensors of m to a temporary file.
func writeFloat(ctx context.Context, m *modelfile.Model, structure *onnxpb.ModelProto, name string) (path string, remove func(), err error) {
	view, err := m.View(structure, m.Payload)
	if err != nil {
		return "", nil, err
	}
	folder, err := os.MkdirTemp("", "onnxquant-sensitivity-")
	if err != nil {
		return "", nil, err
	}
	remove, path = func() { os.RemoveAll(folder) }, filepath.Join(folder, name)
	if err := convert.WriteFloat(ctx, view, path, 0, work.DefaultMemory); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// model returns the structure of the model that switched writes.
func (b *switchboard) model(x *graph.Graph) *onnxpb.ModelProto {
	m := x.File.Proto
	own := m.GetGraph()
	w := &switching{switchboard: b, x: x, at: map[string]int{}}
	for i, group := range b.groups {
		for _, t := range group.all {
			w.at[t.Value.Path] = i
		}
	}
	g := w.graph(own)
	g.Input = g.Input[:len(g.Input):len(g.Input)]
	var first []*onnxpb.NodeProto
	for _, t := range b.inputs(func(int) bool { return true }) {
		g.Input = append(g.Input, input(t.Name, t.DType, int(t.Dims[0])))
		if t.Name != switchHalf {
			first = append(first, split(t.Name, len(b.groups), x.Opset))
			if b.pairs != 0 && t.Name != switchOn { // pairs take scalars
				first = append(first, scalars(t.Name, len(b.groups))...)
			}
		}
	}
	for i, group := range b.groups {
		for _, t := range group.all {
			if t.Value.Node == nil { // an input of the model
				first = append(first, b.round(t.Value.Name, t.Value.Name+codesSuffix, i)...)
			}
		}
	}
	g.Node = append(first, g.Node...)
	return &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: g}
}

// switching is the state of model.
type switching struct {
	*switchboard
	x  *graph.Graph
	at map[string]int // path of a value → its group
}

// graph returns a copy of a graph with switches, also in bodies of If.
func (w *switching) graph(own *onnxpb.GraphProto) *onnxpb.GraphProto {
	g := copyOfGraph(own)
	for _, n := range own.GetNode() {
		copied := &onnxpb.NodeProto{Name: n.Name, OpType: n.OpType, Domain: n.Domain, Attribute: n.Attribute, Input: slices.Clone(n.Input), Output: slices.Clone(n.Output)}
		if graph.IsOperator(n, "If") {
			copied.Attribute = nil
			for _, a := range n.Attribute {
				if a.G != nil {
					a = &onnxpb.AttributeProto{Name: a.Name, Type: a.Type, G: w.graph(a.G)}
				}
				copied.Attribute = append(copied.Attribute, a)
			}
		}
		for i, v := range w.x.Inputs(n) {
			if v == nil || v.Node != nil {
				continue
			}
			if _, ok := w.at[v.Path]; ok {
				copied.Input[i] = v.Name + codesSuffix
			}
		}
		g.Node = append(g.Node, copied)
		for k, v := range w.x.Outputs(n) {
			if v == nil {
				continue
			}
			if i, ok := w.at[v.Path]; ok {
				copied.Output[k] = v.Name + floatSuffix
				g.Node = append(g.Node, w.round(v.Name+floatSuffix, v.Name, i)...)
			}
		}
	}
	return g
}

const codesSuffix, floatSuffix = "/onnxquant_codes", "/onnxquant_float"

func input(name string, typ dtype.DType, n int) *onnxpb.ValueInfoProto {
	kind := int32(typ)
	return describe(&onnxpb.TensorProto{Name: &name, DataType: &kind, Dims: []int64{int64(n)}})
}

// split divides a list into its elements.
func split(from string, n int, opset int64) *onnxpb.NodeProto {
	s := &onnxpb.NodeProto{OpType: new("Split"), Input: []string{from}}
	for i := range n {
		s.Output = append(s.Output, element(from, i))
	}
	const counted = 18 // since this opset, num_outputs is required
	if opset >= counted {
		s.Attribute = []*onnxpb.AttributeProto{{Name: new("num_outputs"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(n))}}
	}
	return s
}

// scalars makes scalars of the elements of a list.
func scalars(of string, n int) (nodes []*onnxpb.NodeProto) {
	for i := range n {
		nodes = append(nodes, &onnxpb.NodeProto{OpType: new("Squeeze"), Input: []string{element(of, i)}, Output: []string{scalar(of, i)}})
	}
	return nodes
}

func scalar(of string, i int) string { return element(of, i) + "/scalar" }

func element(of string, i int) string { return fmt.Sprintf("%s/%d", of, i) }

// round makes a value from another one as a pair would, if group i is switched on. It uses operators
// that models of any opset have, or a pair. Floats of 8 bits keep 4 bits: v·c - (v·c - v) rounds to them for c = 2^20 + 1. The few
// below their smallest normal number keep more bits here than in a pair.
func (b *switchboard) round(from, to string, i int) (nodes []*onnxpb.NodeProto) {
	last := from
	add := func(step, op string, in ...string) string {
		last = to + "/onnxquant_" + step
		nodes = append(nodes, &onnxpb.NodeProto{OpType: &op, Input: in, Output: []string{last}})
		return last
	}
	scale, least, most := element(switchScale, i), element(switchLeast, i), element(switchMost, i)
	switch {
	case b.pairs != 0:
		scale, zero := scalar(switchScale, i), scalar(switchZero, i)
		add("codes", "QuantizeLinear", from, scale, zero)
		add("decoded", "DequantizeLinear", last, scale, zero)
	case b.fp8:
		v := add("Div", "Div", from, scale)
		wide := add("wide", "Mul", v, switchHalf)
		add("short", "Sub", wide, add("rest", "Sub", wide, v))
	default:
		add("Div", "Div", from, scale)
		add("Add", "Add", last, switchHalf)
		add("Floor", "Floor", last)
	}
	if b.pairs == 0 {
		add("Max", "Max", last, least)
		add("Min", "Min", last, most)
		add("Mul", "Mul", last, scale)
	}
	on := element(switchOn, i)
	if !b.where { // from - on · (from - last)
		lost, taken := to+"/onnxquant_lost", to+"/onnxquant_taken"
		return append(nodes,
			&onnxpb.NodeProto{OpType: new("Sub"), Input: []string{from, last}, Output: []string{lost}},
			&onnxpb.NodeProto{OpType: new("Mul"), Input: []string{lost, on}, Output: []string{taken}},
			&onnxpb.NodeProto{OpType: new("Sub"), Input: []string{from, taken}, Output: []string{to}})
	}
	return append(nodes, &onnxpb.NodeProto{OpType: new("Where"), Input: []string{on, last, from}, Output: []string{to}})
}

// inputs returns the inputs of a run in which the groups that are on are quantized.
func (b *switchboard) inputs(on func(i int) bool) (all []*execute.Tensor) {
	n := len(b.groups)
	flags, numbers, zero := make([]byte, n), make([]float32, n), make([]byte, n)
	scale, least, most := make([]float32, n), make([]float32, n), make([]float32, n)
	for i, g := range b.groups {
		if on(i) {
			flags[i], numbers[i] = 1, 1
		}
		lo, hi := g.own.Codes.Whole()
		zero[i] = byte(g.codes.Zero)
		scale[i], least[i], most[i] = g.codes.Scale, float32(lo)-float32(g.codes.Zero), float32(hi)-float32(g.codes.Zero)
	}
	dims, half := []int64{int64(n)}, float32(0.5)
	if b.fp8 {
		half = 1<<20 + 1
	}
	if b.where {
		all = append(all, &execute.Tensor{Name: switchOn, DType: dtype.Bool, Dims: dims, Data: flags})
	} else {
		all = append(all, floats(switchOn, numbers))
	}
	all = append(all, floats(switchScale, scale))
	if b.pairs != 0 {
		return append(all, &execute.Tensor{Name: switchZero, DType: b.pairs, Dims: dims, Data: zero})
	}
	return append(all, floats(switchLeast, least), floats(switchMost, most), floats(switchHalf, []float32{half}))
}

func floats(name string, x []float32) *execute.Tensor {
	t := &execute.Tensor{Name: name, DType: dtype.Float32, Dims: []int64{int64(len(x))}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// trials are runs in which some activations are quantized.
type trials struct {
	s       *Sensitivity
	session execute.Session
	board   *switchboard
}

// damage runs samples.
func (t *trials) damage(ctx context.Context, x samples, on func(i int) bool) (float64, error) {
	return t.s.damageOn(ctx, t.session, x, t.board.inputs(on)...)
}

// trialsOf opens a model x with switches for groups.
func (s *Sensitivity) trialsOf(ctx context.Context, x *graph.Graph, groups []*group) (*trials, func(), error) {
	board, path, remove, err := switched(ctx, x, groups)
	if err != nil {
		return nil, nil, err
	}
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return &trials{s, session, board}, func() { session.Close(); remove() }, nil
}
