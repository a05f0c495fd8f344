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
		own := t
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

// Inputs of the model with switches: whether each group is quantized, its scale, and the least and the
// greatest multiple of the scale.
const (
	switchOn    = "onnxquant/on"
	switchScale = "onnxquant/scale"
	switchLeast = "onnxquant/least"
	switchMost  = "onnxquant/most"
	switchHalf  = "onnxquant/half" // what rounds: see round
)

// switched writes a copy of a model in which each run decides which groups are quantized.
func switched(ctx context.Context, x *graph.Graph, groups []*group) (path string, remove func(), err error) {
	return writeFloat(ctx, x.File, withSwitches(x, groups), "switches.onnx")
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

// withSwitches returns the structure of the model that switched writes.
func withSwitches(x *graph.Graph, groups []*group) *onnxpb.ModelProto {
	m := x.File.Proto
	own := m.GetGraph()
	w := &switching{x: x, at: map[string]int{}}
	for i, group := range groups {
		for _, t := range group.all {
			w.at[t.Value.Path] = i
			w.fp8 = t.Codes.IsFP8()
		}
	}
	g := w.graph(own)
	g.Input = append(g.Input[:len(g.Input):len(g.Input)],
		input(switchOn, dtype.Bool, len(groups)), input(switchScale, dtype.Float32, len(groups)),
		input(switchLeast, dtype.Float32, len(groups)), input(switchMost, dtype.Float32, len(groups)), input(switchHalf, dtype.Float32, 1))
	opset := int64(0)
	for _, o := range m.OpsetImport {
		if o.GetDomain() == "" || o.GetDomain() == "ai.onnx" {
			opset = o.GetVersion()
		}
	}
	var first []*onnxpb.NodeProto
	for _, from := range []string{switchOn, switchScale, switchLeast, switchMost} {
		first = append(first, split(from, len(groups), opset))
	}
	for i, group := range groups {
		for _, t := range group.all {
			if t.Value.Node == nil { // an input of the model
				first = append(first, round(t.Value.Name, t.Value.Name+codesSuffix, i, t.Codes.IsFP8())...)
			}
		}
	}
	g.Node = append(first, g.Node...)
	return &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: g}
}

// switching is the state of withSwitches.
type switching struct {
	x   *graph.Graph
	at  map[string]int // path of a value → its group
	fp8 bool           // codes are floats of 8 bits
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
				g.Node = append(g.Node, round(v.Name+floatSuffix, v.Name, i, w.fp8)...)
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

func element(of string, i int) string { return fmt.Sprintf("%s/%d", of, i) }

// round makes a value from another one as a pair would, if group i is switched on. It uses operators
// that models of any opset have. Floats of 8 bits keep 4 bits: v·c - (v·c - v) rounds to them for c = 2^20 + 1. The few
// below their smallest normal number keep more bits here than in a pair.
func round(from, to string, i int, fp8 bool) (nodes []*onnxpb.NodeProto) {
	last := from
	if fp8 {
		made := func(step string, op string, in ...string) string {
			out := to + "/onnxquant_" + step
			nodes = append(nodes, &onnxpb.NodeProto{OpType: &op, Input: in, Output: []string{out}})
			return out
		}
		v := made("Div", "Div", from, element(switchScale, i))
		wide := made("wide", "Mul", v, switchHalf)
		v = made("short", "Sub", wide, made("rest", "Sub", wide, v))
		v = made("Min", "Min", made("Max", "Max", v, element(switchLeast, i)), element(switchMost, i))
		last = made("Mul", "Mul", v, element(switchScale, i))
		return append(nodes, &onnxpb.NodeProto{OpType: new("Where"), Input: []string{element(switchOn, i), last, from}, Output: []string{to}})
	}
	for _, step := range []struct{ op, with string }{
		{"Div", element(switchScale, i)}, {"Add", switchHalf}, {"Floor", ""},
		{"Max", element(switchLeast, i)}, {"Min", element(switchMost, i)}, {"Mul", element(switchScale, i)},
	} {
		out := to + "/onnxquant_" + step.op
		in := []string{last}
		if step.with != "" {
			in = append(in, step.with)
		}
		nodes, last = append(nodes, &onnxpb.NodeProto{OpType: &step.op, Input: in, Output: []string{out}}), out
	}
	return append(nodes, &onnxpb.NodeProto{OpType: new("Where"), Input: []string{element(switchOn, i), last, from}, Output: []string{to}})
}

// switches returns the inputs of a run in which the groups that are on are quantized.
func switches(groups []*group, on func(i int) bool) []*execute.Tensor {
	n := len(groups)
	flags := make([]byte, n)
	scale, least, most := make([]float32, n), make([]float32, n), make([]float32, n)
	for i, g := range groups {
		if on(i) {
			flags[i] = 1
		}
		lo, hi := g.own.Codes.Whole()
		scale[i], least[i], most[i] = g.codes.Scale, float32(lo)-float32(g.codes.Zero), float32(hi)-float32(g.codes.Zero)
	}
	dims, half := []int64{int64(n)}, float32(0.5)
	if n > 0 && groups[0].own.Codes.IsFP8() {
		half = 1<<20 + 1
	}
	return []*execute.Tensor{
		{Name: switchOn, DType: dtype.Bool, Dims: dims, Data: flags},
		floats(switchScale, scale), floats(switchLeast, least), floats(switchMost, most), floats(switchHalf, []float32{half}),
	}
}

func floats(name string, x []float32) *execute.Tensor {
	t := &execute.Tensor{Name: name, DType: dtype.Float32, Dims: []int64{int64(len(x))}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}
