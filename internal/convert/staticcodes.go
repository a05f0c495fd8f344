package convert

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/buffer"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/quantize"
	"onnxquant/spec"
)

// StaticCodes are codes of weights that data found for static activations, and what biases add to correct the means of
// products. They are in a temporary file, which Close removes.
type StaticCodes struct {
	Algorithm spec.Algorithm
	Weights   int // that have such codes
	Biases    int // that are corrected

	data   string // hash of the data
	result *layerfit.Result
	found  map[string]staticCode // by path of the weight
	folder string
	stays  bool // the folder is the caller's
}

// staticCode is the result for a weight.
type staticCode struct {
	found  *quantize.Found
	scales []float32
	bias   string // path of the bias that Found.Shift is for, or ""
}

// Close removes the codes.
func (s *StaticCodes) Close() error {
	if s == nil || s.result == nil {
		return nil
	}
	err := s.result.Close(s.stays)
	if s.result = nil; s.stays {
		return err
	}
	return os.RemoveAll(s.folder)
}

// StaticOptions are options of StaticCodes.
type StaticOptions struct {
	Algorithm spec.Algorithm // GPTQ or Best
	Folder    string         // for files, which stay for another search with the same Key that goes on; "": a temporary one
	Key       string         // of all that codes depend on
	Progress  func(done, total int64)
}

// staticLayer is a weight with static codes for which data can find codes.
type staticLayer struct {
	layerfit.Layer
	weight int // of the plan
	bias   *actpairs.Bias
}

// StaticCodes finds codes of weights by the inputs that they get in the quantized model. It returns nil if
// there is no weight for which data can find codes.
func (p *Plan) StaticCodes(ctx context.Context, a layerfit.Activations, o StaticOptions) (_ *StaticCodes, err error) {
	layers := p.staticLayers()
	if len(layers) == 0 {
		return nil, nil
	}
	s := &StaticCodes{Algorithm: o.Algorithm, found: map[string]staticCode{}}
	if s.data, err = a.Key(ctx); err != nil {
		return nil, err
	}
	if s.folder, s.stays = o.Folder, o.Folder != ""; s.stays {
		err = os.MkdirAll(s.folder, 0o700)
	} else {
		s.folder, err = os.MkdirTemp("", "onnxquant-codes-")
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !s.stays {
			os.RemoveAll(s.folder)
		}
	}()
	x := p.graph
	run := layerfit.Options{
		Algorithm: o.Algorithm, Quantized: true, State: filepath.Join(s.folder, "codes"), Resume: s.stays, Begins: func() {},
		Key:     fmt.Sprintf("%s %d", o.Key, p.opts.Together),
		Threads: p.opts.Threads, Memory: p.opts.Together, Progress: o.Progress,
	}
	q := &simulation{plan: p, layers: layers, pairs: map[string]*actpairs.Tensor{}}
	if err := q.find(); err != nil {
		return nil, err
	}
	run.Write = func(ctx context.Context, name string, found []*quantize.Found, values []string, from string) (string, error) {
		given, err := givenOf(a, from)
		if err != nil {
			return "", err
		}
		values = slices.DeleteFunc(slices.Clone(values), func(name string) bool {
			return slices.ContainsFunc(given, func(v graph.Given) bool { return v.Name == name })
		})
		if len(values) == 0 {
			return "", nil
		}
		path := filepath.Join(s.folder, name+".onnx")
		return path, q.write(ctx, path, name != layerfit.Float, found, values, given)
	}
	run.Cut = func(of []int) ([]string, bool) {
		first := x.Nodes() + 1
		for _, i := range of {
			for _, l := range p.Weights[layers[i].weight].ProductsOf(x) {
				first = min(first, x.Position(l.Node)[0])
			}
		}
		return x.Crossing(first)
	}
	for _, out := range x.File.Proto.GetGraph().GetOutput() {
		run.Outputs = append(run.Outputs, out.GetName())
	}
	list := make([]layerfit.Layer, len(layers))
	for i, l := range layers {
		list[i] = l.Layer
	}
	if s.result, err = layerfit.Run(ctx, list, a, run); err != nil {
		return nil, err
	}
	for i, l := range layers {
		if err := s.keep(p, l, s.result.Found[i]); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// keep keeps the codes of a layer, unless its bias would be too large for their scales.
func (s *StaticCodes) keep(p *Plan, l staticLayer, found *quantize.Found) error {
	if found == nil {
		return nil
	}
	w := p.Weights[l.weight]
	raw := make([]byte, 4*l.Weight.Outer*l.Weight.Blocks()*l.Weight.Inner)
	if err := buffer.ReadFull(found.Scales, raw, 0); err != nil {
		return err
	}
	c := staticCode{found: found, scales: make([]float32, len(raw)/4)}
	dtype.Float32.Decode(c.scales, raw)
	if slices.ContainsFunc(c.scales, func(scale float32) bool { return !(scale > 0x1p-126) }) {
		return nil
	}
	if ok, err := w.Choice.Static.Fits(c.scales); !ok || err != nil {
		return err
	}
	if s.Weights++; found.Shift != nil {
		s.Biases++
		c.bias = l.bias.Value.Path
	}
	s.found[w.Value.Path] = c
	return nil
}

// give gives codes to the weights of a plan, and corrections to its biases, before anything reads them.
func (s *StaticCodes) give(p *Plan, weights []*discover.Decision) {
	if s == nil {
		return
	}
	for _, d := range weights {
		c, ok := s.found[d.Value.Path]
		if !ok || !d.Quantize || !fitsStatic(d) || d.Choice.Static.Scales() != len(c.scales) {
			continue
		}
		d.Choice.Algorithm = s.Algorithm
		d.Choice.Static.Fix(c.scales)
		for _, b := range p.static.Biases {
			if c.bias != "" && b.Value.Path == c.bias {
				b.Shift = c.found.Shift
			}
		}
	}
}

// of returns the codes of a weight that give has given codes to; nil for others.
func (s *StaticCodes) of(d *discover.Decision) *quantize.Found {
	if s == nil || d.Choice.Static == nil || !d.Choice.Static.Fixed() {
		return nil
	}
	return s.found[d.Value.Path].found
}

// fitsStatic reports whether a weight has symmetric codes of 8 bits with a scale for each channel.
func fitsStatic(d *discover.Decision) bool {
	t := d.Choice.Static
	return t != nil && t.Stored != nil && t.Axis >= 0 && t.Block == 0 && t.Codes.Type == dtype.Int8 && t.Codes.Symmetric
}

// staticLayers lists the weights for which data can find codes, in the order of the graph.
func (p *Plan) staticLayers() (layers []staticLayer) {
	x := p.graph
	for i, w := range p.Weights {
		if !fitsStatic(w.Decision) {
			continue
		}
		products := w.ProductsOf(x)
		if len(products) == 0 || slices.ContainsFunc(products, scaled) {
			continue
		}
		weight := *p.weights[i]
		weight.Codec, weight.Given, weight.Algorithm, weight.PositiveScales = int4.Codec{Bits: 8, Signed: true}, nil, spec.MSE, true
		if w.Choice.Static.Codes.Reduced {
			weight.Codec = int4.Codec{Bits: 7, Signed: true}
		}
		l := staticLayer{weight: i, Layer: layerfit.Layer{Weight: &weight}}
		if weight.K*4*weight.K*int64(products[0].Operation.Parts()) > p.opts.Together/2 {
			continue
		}
		for _, product := range products {
			of := func(v *graph.Value) string {
				if v == nil {
					return ""
				}
				return x.Seen(product.Node, v)
			}
			input := of(product.Input)
			if t := p.static.Of(product.Input); t != nil && input == product.Input.Name {
				input += quantizedSuffix
			}
			l.Products = append(l.Products, layerfit.Product{Operation: product.Operation, Input: input, Output: of(product.Output), Beside: of(product.Beside)})
		}
		if len(products) == 1 {
			l.bias = p.biasOf(products[0].Node)
			l.Bias = l.bias != nil
		}
		layers = append(layers, l)
	}
	slices.SortStableFunc(layers, func(a, b staticLayer) int {
		return slices.Compare(x.Position(p.Weights[a.weight].ProductsOf(x)[0].Node), x.Position(p.Weights[b.weight].ProductsOf(x)[0].Node))
	})
	return layers
}

// scaled reports whether a product is that of a Gemm that multiplies it, or its bias, by a number.
func scaled(l discover.Layer) bool {
	return graph.FloatAttributeOr(l.Node, "alpha", 1) != 1 || graph.FloatAttributeOr(l.Node, "beta", 1) != 1
}

// biasOf returns the bias of a node, if no other node has it and it has an element for each channel.
func (p *Plan) biasOf(n *onnxpb.NodeProto) *actpairs.Bias {
	for _, b := range p.static.Biases {
		if b.Node == n && b.Channels() && len(b.Value.Uses) == 1 && !b.Value.Output {
			return b
		}
	}
	return nil
}

// givenOf returns the values that are kept in a folder, or none for "".
func givenOf(a layerfit.Activations, folder string) (all []graph.Given, err error) {
	if folder == "" {
		return nil, nil
	}
	kept, err := a.Kept(folder)
	for _, k := range kept {
		all = append(all, graph.Given(k))
	}
	return all, err
}

// quantizedSuffix is the end of the name of an activation as readers get it in a simulation.
const quantizedSuffix = "/onnxquant_codes"

// simulation writes models whose activations are rounded to the codes of a plan, with operators that compute in float.
type simulation struct {
	plan   *Plan
	layers []staticLayer
	pairs  map[string]*actpairs.Tensor // by name, of values of the main graph with one scale
	params map[string]actpairs.Params
}

// find finds the values that are rounded. Those in bodies are not.
func (q *simulation) find() error {
	q.params = map[string]actpairs.Params{}
	x := q.plan.graph
	main := x.Scope(x.File.Proto.Graph)
	fitted := func(v *graph.Value) bool {
		return slices.ContainsFunc(q.layers, func(l staticLayer) bool { return q.plan.Weights[l.weight].Value == v })
	}
	for _, t := range q.plan.static.Tensors {
		v := t.Value
		if t.Stored != nil && fitted(v) || main.Values[v.Name] != v || v.Graph != nil && v.Graph != x.File.Proto.Graph {
			continue
		}
		if t.Stored != nil && (t.Axis >= 0 || t.Codes.Type.Bits() != 8 && t.Codes.Type.Bits() != 16) {
			continue
		}
		params, err := t.Params()
		if err != nil {
			return err
		}
		if len(params) == 1 {
			q.pairs[v.Name], q.params[v.Name] = t, params[0]
		}
	}
	return nil
}

// write writes the part of the model that computes some values from those that are given.
func (q *simulation) write(ctx context.Context, path string, rounded bool, found []*quantize.Found, values []string, given []graph.Given) error {
	x := q.plan.graph
	var plain []string
	for _, name := range values {
		name = strings.TrimSuffix(name, quantizedSuffix)
		if !slices.Contains(plain, name) {
			plain = append(plain, name)
		}
	}
	m := x.Only(plain, given...)
	var made []*onnxpb.TensorProto
	if rounded {
		made = q.round(m.Graph)
		m.Graph.Output = nil
		for _, name := range values {
			m.Graph.Output = append(m.Graph.Output, &onnxpb.ValueInfoProto{Name: new(name)})
		}
	}
	var contents []replaced // instead of those of the model
	for i, f := range found {
		if f == nil {
			continue
		}
		l := q.layers[i]
		contents = append(contents, replaced{q.plan.Weights[l.weight].Value.Tensor, modelfile.Computed(l.Weight.Decoded(f), l.Weight.SourceBytes())})
		if f.Shift != nil {
			elements, err := l.bias.Shifted(f.Shift)
			if err != nil {
				return err
			}
			raw := make([]byte, 4*len(elements))
			dtype.Float32.Encode(raw, elements)
			contents = append(contents, replaced{l.bias.Value.Tensor, modelfile.Computed(bytes.NewReader(raw), int64(len(raw)))})
		}
	}
	view, err := x.File.View(m, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if i := slices.IndexFunc(contents, func(c replaced) bool { return c.of == t }); i >= 0 {
			return contents[i].is, nil
		}
		if slices.Contains(made, t) {
			return nil, nil
		}
		return x.File.Payload(t)
	})
	if err != nil {
		return err
	}
	return WriteFloat(ctx, view, path, q.plan.opts.Threads, q.plan.opts.Memory)
}

// replaced is the content of a tensor in a simulation.
type replaced struct {
	of *onnxpb.TensorProto
	is *modelfile.Payload
}

// round lets readers get rounded values. It returns the tensors that it adds.
func (q *simulation) round(g *onnxpb.GraphProto) (made []*onnxpb.TensorProto) {
	constant := func(name string, v float32) string {
		t := &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Float32)), RawData: make([]byte, 4)}
		dtype.Float32.Encode(t.RawData, []float32{v})
		g.Initializer, made = append(g.Initializer, t), append(made, t)
		return name
	}
	half := constant("onnxquant/half", 0.5)
	var nodes []*onnxpb.NodeProto
	round := func(name string) {
		t := q.pairs[name]
		if t == nil {
			return
		}
		p, last := q.params[name], name
		lo, hi := t.Codes.Whole()
		scale := constant(name+"/onnxquant_scale", p.Scale)
		least, most := constant(name+"/onnxquant_least", float32(lo)-float32(p.Zero)), constant(name+"/onnxquant_most", float32(hi)-float32(p.Zero))
		for _, step := range [][2]string{{"Div", scale}, {"Add", half}, {"Floor", ""}, {"Max", least}, {"Min", most}, {"Mul", scale}} {
			n := &onnxpb.NodeProto{OpType: new(step[0]), Input: []string{last}, Output: []string{name + "/onnxquant_" + step[0]}}
			if step[1] != "" {
				n.Input = append(n.Input, step[1])
			}
			if step[0] == "Mul" {
				n.Output[0] = name + quantizedSuffix
			}
			nodes, last = append(nodes, n), n.Output[0]
		}
	}
	for _, v := range g.Input {
		round(v.GetName())
	}
	for _, t := range slices.Clone(g.Initializer) {
		if !slices.ContainsFunc(g.Input, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == t.GetName() }) {
			round(t.GetName())
		}
	}
	for _, n := range g.Node {
		if slices.ContainsFunc(n.Input, func(name string) bool { return q.pairs[name] != nil }) {
			n = &onnxpb.NodeProto{Name: n.Name, OpType: n.OpType, Domain: n.Domain, Overload: n.Overload, Attribute: n.Attribute, Input: slices.Clone(n.Input), Output: n.Output}
			for i, name := range n.Input {
				if q.pairs[name] != nil {
					n.Input[i] = name + quantizedSuffix
				}
			}
		}
		nodes = append(nodes, n)
		for _, name := range n.Output {
			round(name)
		}
	}
	g.Node = nodes
	return made
}
