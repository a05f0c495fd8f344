package kvcache

import (
	"encoding/json"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Coded lists the caches of a model that are int8: of any tool where GroupQueryAttention reads them, else those of Apply.
func Coded(x *graph.Graph) ([]Codes, error) {
	all := newScene(x.File.Proto.Graph).coded(x.File.Proto)
	for i := range all {
		c := &all[i]
		t := storedIn(x.File.Proto.Graph, c.scale)
		n, err := dtype.Elements(t.GetDims())
		if err != nil || dtype.DType(t.GetDataType()) != dtype.Float32 || n < 1 || n > mostScales {
			return nil, fmt.Errorf("%w: input %s: its scales are not 1 to %d stored float32 numbers", ErrCache, msg.Quote(c.Input), mostScales)
		}
		p, err := x.File.Payload(t)
		if err != nil {
			return nil, err
		}
		raw := make([]byte, 4*n)
		if _, err := p.ReadAt(raw, 0); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(c.scale), err)
		}
		c.Scales = make([]float32, n)
		dtype.Float32.Decode(c.Scales, raw)
	}
	return all, nil
}

// mostScales bounds the scales of a cache.
const mostScales = 1 << 20

// HasCodes reports whether a model has caches of int8.
func HasCodes(x *graph.Graph) bool { return len(Inputs(x)) > 0 }

// Inputs lists the inputs for caches of int8.
func Inputs(x *graph.Graph) (names []string) {
	for _, c := range newScene(x.File.Proto.Graph).coded(x.File.Proto) {
		names = append(names, c.Input)
	}
	return names
}

func storedIn(g *onnxpb.GraphProto, name string) *onnxpb.TensorProto {
	for _, t := range g.Initializer {
		if t.GetName() == name {
			return t
		}
	}
	return nil
}

// coded finds caches of int8.
func (s *scene) coded(m *onnxpb.ModelProto) (all []Codes) {
	var record map[string][2]string
	for _, e := range m.MetadataProps {
		if e.GetKey() == Key && json.Unmarshal([]byte(e.GetValue()), &record) != nil {
			record = nil
		}
	}
	for _, in := range graph.RuntimeInputs(s.g) {
		if typeOf(in) != dtype.Int8 {
			continue
		}
		c := Codes{Input: in.GetName(), Was: dtype.Float32, inner: dtype.Float32, node: -1}
		if types, ok := record[c.Input]; ok {
			c.Was, c.inner = floatOr32(types[0]), floatOr32(types[1])
		}
		uses := s.numbers(c.Input)
		if len(uses) != 1 {
			continue
		}
		u := uses[0]
		switch n := s.g.Node[u.node]; {
		case graph.Operator(n) == groupQuery && (u.input == 3 || u.input == 4) && graph.HasInput(n, u.input+keyScale-3):
			c.node, c.in, c.scale = u.node, u.input, n.Input[u.input+keyScale-3]
			if out := extenders[groupQuery][u.input]; out < len(n.Output) {
				c.Output = n.Output[out]
			}
		case graph.IsOperator(n, "DequantizeLinear") && u.input == 0 && graph.HasInput(n, 2) && graph.FirstOutput(n) != "":
			c.scale, c.zeros, c.decode = n.Input[1], n.Input[2], []int{u.node}
			s.findQuantizer(&c)
		}
		if s.outputs[c.Output] && storedIn(s.g, c.scale) != nil {
			all = append(all, c)
		}
	}
	return all
}

// findQuantizer finds what encodes the output of a cache: it reads the same scales as what decodes the input.
func (s *scene) findQuantizer(c *Codes) {
	scale := c.scale
	if u, ok := s.onlyReader(c, "Mul"); ok && u.input == 0 && len(s.g.Node[u.node].Input) == 2 {
		if factor := s.g.Node[u.node].Input[1]; len(storedIn(s.g, factor).GetDims()) == 3 {
			c.scale, c.decode = factor, append(c.decode, u.node)
			for _, u := range s.readers[factor] {
				if u.input == 1 && graph.IsOperator(s.g.Node[u.node], "Div") {
					c.encode = []int{u.node}
				}
			}
		}
	}
	if u, ok := s.onlyReader(c, "Cast"); ok && c.Was != dtype.Float32 {
		c.decode = append(c.decode, u.node)
	}
	if !slices.ContainsFunc(s.readers[s.decoded(c)], s.leadsOn) && !s.inside[s.decoded(c)] {
		return
	}
	for _, u := range s.readers[c.zeros] {
		if n := s.g.Node[u.node]; u.input == 2 && graph.IsOperator(n, "QuantizeLinear") && n.Input[1] == scale && graph.FirstOutput(n) != "" {
			c.encode, c.Output = append(c.encode, u.node), n.Output[0]
		}
	}
	if len(c.encode) > 0 && c.Was != dtype.Float32 {
		if i, made := s.makers[s.g.Node[c.encode[0]].Input[0]]; made && graph.IsOperator(s.g.Node[i], "Cast") && len(s.g.Node[i].Input) > 0 {
			c.encode = append([]int{i}, c.encode...)
		}
	}
}

// decoded is the value that decodes a cache, as far as is known.
func (s *scene) decoded(c *Codes) string { return s.g.Node[c.decode[len(c.decode)-1]].Output[0] }

// onlyReader returns the reader of the decoded cache, if it is the only one, an operator op.
func (s *scene) onlyReader(c *Codes, op string) (u use, ok bool) {
	uses := s.readers[s.decoded(c)]
	if len(uses) != 1 || !graph.IsOperator(s.g.Node[uses[0].node], op) || graph.FirstOutput(s.g.Node[uses[0].node]) == "" {
		return u, false
	}
	return uses[0], true
}

// leadsOn reports whether a reader of floats extends them, or hands them on.
func (s *scene) leadsOn(u use) bool {
	_, ok := s.extends(u)
	return ok || passes(s.g.Node[u.node])
}

func floatOr32(name string) dtype.DType {
	for _, typ := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float64} {
		if typ.String() == name {
			return typ
		}
	}
	return dtype.Float32
}

// Float returns the graph with caches of floats. It is x if no cache is int8.
func Float(x *graph.Graph) (*graph.Graph, error) {
	found := newScene(x.File.Proto.Graph).coded(x.File.Proto)
	if len(found) == 0 {
		return x, nil
	}
	c := x.Copy()
	e := &editor{scene: newScene(c.Proto.Graph), names: c.Names, dropped: map[int]bool{}, gone: map[string]bool{}}
	types := map[string]dtype.DType{}
	constants := map[string]bool{}
	for _, f := range found {
		types[f.Input], types[f.Output] = f.Was, f.Was
		constants[f.scale], constants[f.zeros] = true, true
		if f.node >= 0 {
			e.floatNative(f)
		} else {
			constants[e.g.Node[f.decode[0]].Input[1]] = true
			e.floatAround(f)
		}
	}
	for _, list := range [][]*onnxpb.ValueInfoProto{e.g.Input, e.g.Output} {
		for i, v := range list {
			if typ, ok := types[v.GetName()]; ok {
				list[i] = declared(v, typ)
			}
		}
	}
	e.finish()
	left := map[string]bool{}
	graph.WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		for _, name := range n.Input {
			left[name] = true
		}
	})
	e.g.Initializer = slices.DeleteFunc(e.g.Initializer, func(t *onnxpb.TensorProto) bool { return constants[t.GetName()] && !left[t.GetName()] })
	c.Proto.MetadataProps = slices.DeleteFunc(slices.Clone(c.Proto.MetadataProps), func(p *onnxpb.StringStringEntryProto) bool { return p.GetKey() == Key })
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) { return x.File.Payload(c.OriginalTensor(t)) })
	if err != nil {
		return nil, err
	}
	return graph.New(view)
}

// floatNative has a GroupQueryAttention read and write floats.
func (e *editor) floatNative(c Codes) {
	n := e.own(c.node)
	at, out, side := c.in+keyScale-3, extenders[groupQuery][c.in], "k"
	if c.in == 4 {
		side = "v"
	}
	n.Input[at] = ""
	for len(n.Input) > 0 && n.Input[len(n.Input)-1] == "" {
		n.Input = n.Input[:len(n.Input)-1]
	}
	n.Attribute = slices.DeleteFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool {
		return a.GetName() == side+"_quant_type" || a.GetName() == "kv_cache_bit_width"
	})
	if c.Was != c.inner {
		n.Input[c.in] = e.before("Cast", c.Input, []string{c.Input}, castTo(c.inner)...)
		n.Output[out] = e.names.Fresh(c.Output + "_Cast_Input")
		e.back = append(e.back, node("Cast", c.Output, []string{n.Output[out]}, castTo(c.Was)...))
	}
}

// floatAround removes what decodes and encodes a cache.
func (e *editor) floatAround(c Codes) {
	decoded := e.g.Node[c.decode[len(c.decode)-1]].Output[0]
	source := e.g.Node[c.encode[0]].Input[0]
	e.drop(c.decode...)
	e.drop(c.encode...)
	e.rename(decoded, c.Input)
	if e.inside[decoded] {
		for _, n := range e.g.Node {
			renameInside(n, decoded, c.Input)
		}
	}
	if i, made := e.makers[source]; made {
		maker := e.own(i)
		maker.Output[slices.Index(maker.Output, source)] = c.Output
		e.gone[source] = true
		e.rename(source, c.Output)
	}
}
