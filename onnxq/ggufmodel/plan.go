package ggufmodel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/internal/work"
	"onnxquant/onnxq"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/rules"
)

// Options say how weights are written to a GGUF file. The zero value of a field means the
// default named beside it.
type Options struct {
	Mix           string     // one of Mixes; default DefaultMix
	Pure          bool       // every weight gets the mix's base type
	OutputType    string     // type of the weight that computes the output; default: the mix's
	EmbeddingType string     // type of embeddings; default: the mix's
	TensorTypes   []TypeRule // types of single tensors; the last match wins

	Names      *rules.Names      // names of tensors in the file; default: as in the model
	Metadata   []gguf.KeyValue   // added; replaces an entry with the same key
	Importance *rules.Importance // importance of the columns of weights, for encodings that use it

	Threads int   // default: the number of CPUs
	Memory  int64 // bytes of buffers for all threads together; default 64 MiB

	// Progress, if set, is called with the bytes of input processed so far and the total.
	// Calls do not overlap.
	Progress func(done, total int64)
}

// TypeRule is the type of the tensors that match a name.
type TypeRule struct {
	Pattern string // name or glob, of the tensor in the model or the file, or of a node that reads it
	Type    string // name of an encoding of package ggml, or F64
}

// Tensor is the plan for one float tensor of the model.
type Tensor struct {
	Source string  `json:"source"` // name in the model
	Name   string  `json:"name"`   // in the file; empty if it is left out
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"` // in the model

	Type       string  `json:"type,omitempty"`
	FileShape  []int64 `json:"file_shape,omitempty"` // in ONNX's order: rows last
	Transposed bool    `json:"transposed"`
	Reason     string  `json:"reason,omitempty"` // why it has this type, or is left out

	Bytes    int64   `json:"bytes"`
	OutBytes int64   `json:"out_bytes"`
	Bits     float64 `json:"bits_per_weight"`
}

// Plan says what a GGUF file will contain. It depends only on the model's structure and the
// options. It needs its Model to be open.
type Plan struct {
	Mix      string   `json:"mix"`
	Tensors  []Tensor `json:"tensors"` // every float initializer and Constant
	InBytes  int64    `json:"in_bytes"`
	OutBytes int64    `json:"out_bytes"` // exact size of the file
	Bits     float64  `json:"bits_per_weight"`
	Warnings []string `json:"warnings,omitempty"`

	graph   *graph.Graph
	opts    Options
	layout  *gguf.Layout
	weights []*weight // in the order of the layout's tensors
}

// weight is a tensor to be written.
type weight struct {
	layout
	path       string // name in the model
	dtype      dtype.DType
	src        *modelfile.Payload
	typ        gguf.Type // in the file
	encoding   *ggml.Encoding
	verbatim   bool // the same type in model and file: copy the bytes
	importance []float32
	planned    int // index among the plan's tensors
}

// NewPlan decides what a GGUF file of the model's weights contains. It reads no weights.
//
// All float initializers and Constants are written, except empty ones, scalars of Constant
// nodes, and parts of quantized weights. Weights with two or more axes that MatMul, Gemm or
// Gather read get the type of the mix, or one with shorter blocks if their rows do not fill
// whole blocks. The others keep their type, but vectors become F32, as ggml's programs
// require.
func NewPlan(m *onnxq.Model, opts Options) (*Plan, error) {
	x := access.Graph(m)
	opts.Mix = cmp.Or(opts.Mix, DefaultMix)
	opts.Memory = cmp.Or(opts.Memory, work.DefaultMemory)
	chosen, err := mixNamed(opts.Mix)
	if err != nil {
		return nil, err
	}
	if err := work.Check(opts.Threads, opts.Memory); err != nil {
		return nil, err
	}
	if err := opts.Names.Unused(convert.TensorNames(x)); err != nil {
		return nil, err
	}
	c, err := newChooser(chosen, opts)
	if err != nil {
		return nil, err
	}
	p := &Plan{Mix: chosen.name, Tensors: []Tensor{}, InBytes: m.Size(), graph: x, opts: opts}
	all := candidates(x, opts.Names)
	for _, w := range all {
		c.layers = max(c.layers, w.layer+1)
	}
	for _, w := range all {
		if err := p.add(w, c); err != nil {
			return nil, err
		}
	}
	if err := c.unused(opts.TensorTypes); err != nil {
		return nil, err
	}
	if err := p.checkImportance(opts.Importance); err != nil {
		return nil, err
	}
	return p, p.place(chosen)
}

// Types lists the possible types of a weight in a GGUF file: the encodings of package ggml
// that GGUF has, and F64 for float64 weights.
func Types() []string {
	var names []string
	for _, e := range ggml.All() {
		if t := gguf.Type(e.Type); t.Known() && strings.EqualFold(t.String(), e.Name) {
			names = append(names, e.Name)
		}
	}
	return append(names, gguf.F64.String())
}

// typeNamed returns the type with a name, ignoring case.
func typeNamed(name string) (gguf.Type, error) {
	if strings.EqualFold(name, gguf.F64.String()) {
		return gguf.F64, nil
	}
	e, ok := ggml.Lookup(name)
	if ok && slices.Contains(Types(), e.Name) {
		return gguf.Type(e.Type), nil
	}
	return 0, fmt.Errorf("type %q is none that GGUF files are written with (%s)", name, strings.Join(Types(), ", "))
}

// candidate is a float tensor that may go into the file.
type candidate struct {
	*graph.Value
	dtype dtype.DType
	dims  []int64 // shape in the model
	bytes int64
	skip  string // why it is left out

	layout
	leaves []reach.Leaf
	name   string   // in the file
	names  []string // in the file, in the model, and of nodes that read it
	role   role
	layer  int
}

// candidates lists the float tensors of the model, with what can be known of each by itself.
func candidates(x *graph.Graph, names *rules.Names) []*candidate {
	var all []*candidate
	parts := recognize.Parts(x)
	for _, v := range x.Values {
		c := &candidate{Value: v, dtype: dtype.DType(v.Tensor.GetDataType()), dims: v.Tensor.GetDims(), bytes: graph.SizeOf(v.Tensor), layer: -1}
		if !c.dtype.Float() {
			continue
		}
		all = append(all, c)
		name, wanted := names.For(v.Path)
		switch {
		case c.bytes == 0:
			c.skip = "empty"
		case !wanted:
			c.skip = "left out by name"
		case parts[v] != "":
			c.skip = parts[v]
		case v.Node != nil && len(c.dims) == 0:
			c.skip = "a constant of the graph"
		default:
			c.know(x, name)
		}
	}
	for _, v := range x.Unusual {
		u := v.Unusual()
		all = append(all, &candidate{Value: v, dtype: u.DType, dims: u.Shape, bytes: u.Bytes, skip: "stored as " + u.Form, layer: -1})
	}
	return all
}

// know sets what follows from the graph and the name in the file.
func (c *candidate) know(x *graph.Graph, name string) {
	c.name = name
	c.leaves = reach.Of(x, c.Value, c.dims).Leaves
	c.layout = layoutOf(c.dims, c.leaves)
	c.names = []string{name, c.Path}
	for _, l := range c.leaves {
		c.names = append(c.names, l.Node.GetName())
	}
	c.role, c.layer = roleOf(x, c.names, c.leaves), layerOf(c.names)
}

// chooser chooses types.
type chooser struct {
	mix    *mix
	opts   Options
	types  []gguf.Type        // of opts.TensorTypes
	byRole map[role]gguf.Type // opts.OutputType and opts.EmbeddingType, if given
	used   []bool             // by index of types: it matched
	layers int
}

// newChooser parses the types in the options.
func newChooser(m *mix, opts Options) (*chooser, error) {
	c := &chooser{mix: m, opts: opts, byRole: map[role]gguf.Type{}, used: make([]bool, len(opts.TensorTypes))}
	for _, o := range []struct {
		role role
		name string
	}{{outputRole, opts.OutputType}, {embeddingRole, opts.EmbeddingType}} {
		if o.name == "" {
			continue
		}
		t, err := typeNamed(o.name)
		if err != nil {
			return nil, err
		}
		c.byRole[o.role] = t
	}
	for _, r := range opts.TensorTypes {
		t, err := typeNamed(r.Type)
		if err != nil {
			return nil, err
		}
		c.types = append(c.types, t)
	}
	return c, nil
}

// choose returns the type of a tensor, with the reason.
func (c *chooser) choose(w *candidate) (t gguf.Type, reason string, err error) {
	asked := -1
	for i, r := range c.opts.TensorTypes {
		if slices.ContainsFunc(w.names, func(name string) bool { return name != "" && rules.MatchName(r.Pattern, name) }) {
			c.used[i], asked = true, i
		}
	}
	if asked >= 0 {
		t = c.types[asked]
		if elements, _ := t.Block(); w.k%elements != 0 {
			return 0, "", fmt.Errorf("tensor %s: rows of %d elements are not made of blocks of %d, as %v has", msg.Quote(w.Path), w.k, elements, t)
		}
		return t, "asked for", nil
	}
	own := floatTypes[w.dtype]
	if len(w.shape) == 1 && (own == gguf.F16 || own == gguf.BF16) {
		own = gguf.F32
	}
	switch {
	case !w.summed && len(w.leaves) > 0:
		return own, "not a weight of " + w.leaves[0].String(), nil
	case !w.summed:
		return own, "nothing reads it", nil
	case len(w.shape) < 2:
		return own, "a vector", nil
	case w.role == positionRole:
		return own, roleNames[positionRole], nil
	}
	t, reason = c.mix.choose(w.role, w.layer, c.layers, c.opts.Importance != nil)
	if c.opts.Pure {
		t, reason = c.mix.base, ""
	}
	if asked, ok := c.byRole[w.role]; ok {
		t, reason = asked, roleNames[w.role]
	}
	if fits := fitting(t, own, w.k); fits != t {
		reason = fmt.Sprintf("rows of %d do not fill %v", w.k, t)
		t = fits
	}
	return t, reason, nil
}

// unused returns an error if a rule for types matches no tensor.
func (c *chooser) unused(rules []TypeRule) error {
	if i := slices.Index(c.used, false); i >= 0 {
		return fmt.Errorf("no tensor and no node is called %s, which is to be %s", msg.Quote(rules[i].Pattern), rules[i].Type)
	}
	return nil
}

// add plans one tensor.
func (p *Plan) add(w *candidate, c *chooser) error {
	t := Tensor{
		Source: w.Path,
		Name:   w.name,
		DType:  w.dtype.String(),
		Shape:  append([]int64{}, w.dims...),
		Reason: w.skip,
		Bytes:  w.bytes,
	}
	if w.skip != "" {
		p.Tensors = append(p.Tensors, t)
		return nil
	}
	typ, reason, err := c.choose(w)
	if err != nil {
		return err
	}
	g := &weight{layout: w.layout, path: w.Path, dtype: w.dtype, typ: typ, planned: len(p.Tensors), verbatim: floatTypes[w.dtype] == typ}
	if g.src, err = p.graph.File.Payload(w.Tensor); err != nil {
		return err
	}
	switch {
	case typ != gguf.F64:
		g.encoding, _ = ggml.LookupType(uint32(typ))
	case !g.verbatim:
		return fmt.Errorf("tensor %s: F64 is only for float64", msg.Quote(w.Path))
	}
	if g.summed && !g.verbatim && g.encoding.Elements > 1 {
		if g.importance, err = c.opts.Importance.Of(g.k, g.rows()/g.matrix(), w.name, w.Path); err != nil {
			return err
		}
	}
	elements, bytes := typ.Block()
	t.Type, t.FileShape, t.Transposed, t.Reason = typ.String(), w.shape, w.transposed(), reason
	t.OutBytes = w.rows() * w.k / elements * bytes
	t.Bits = 8 * float64(bytes) / float64(elements)
	p.Tensors = append(p.Tensors, t)
	p.weights = append(p.weights, g)
	return nil
}

// place lays out the file.
func (p *Plan) place(chosen *mix) error {
	if len(p.weights) == 0 {
		return errors.New("the model has no float weights")
	}
	var tensors []gguf.Tensor
	var elements, bytes int64
	long := 0
	for _, w := range p.weights {
		t := &p.Tensors[w.planned]
		tensors = append(tensors, gguf.Tensor{Name: t.Name, Type: w.typ, Shape: t.FileShape})
		elements += w.rows() * w.k
		bytes += t.OutBytes
		if len(t.Name) >= gguf.MaxName {
			long++
		}
	}
	p.Bits = 8 * float64(bytes) / float64(elements)
	var err error
	if p.layout, err = gguf.NewLayout(p.metadata(chosen), tensors); err != nil {
		return fmt.Errorf("GGUF: %w", err)
	}
	p.OutBytes = p.layout.Size
	if n := p.quantizedParts(); n > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the file lacks the weights that are quantized already, with %d float tensors of theirs: run onnxquant dequantize first", n))
	}
	if long > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d names have %d bytes or more, which ggml's programs do not read: map them to shorter ones", long, gguf.MaxName))
	}
	return nil
}

// quantizedParts counts the tensors left out because they are parts of quantized weights.
func (p *Plan) quantizedParts() (n int) {
	for _, t := range p.Tensors {
		if strings.HasPrefix(t.Reason, recognize.Already) {
			n++
		}
	}
	return n
}

// metadata returns the key-value pairs of the file.
func (p *Plan) metadata(chosen *mix) []gguf.KeyValue {
	proto := p.graph.File.Proto
	kv := []gguf.KeyValue{{Key: "general.architecture", Value: "onnx"}}
	add := func(key, value string) {
		if value != "" {
			kv = append(kv, gguf.KeyValue{Key: key, Value: value})
		}
	}
	add("general.name", proto.GetGraph().GetName())
	add("general.description", proto.GetDocString())
	kv = append(kv, gguf.KeyValue{Key: "general.file_type", Value: chosen.number},
		gguf.KeyValue{Key: "general.quantization_version", Value: uint32(2)})
	add("onnx.producer_name", proto.GetProducerName())
	add("onnx.producer_version", proto.GetProducerVersion())
	add("onnx.domain", proto.GetDomain())
	kv = append(kv, gguf.KeyValue{Key: "onnx.opset", Value: uint32(graph.Opset(proto))})
	var keys, values, transposed []string
	for _, e := range proto.MetadataProps {
		keys, values = append(keys, e.GetKey()), append(values, e.GetValue())
	}
	if len(keys) > 0 {
		kv = append(kv, gguf.KeyValue{Key: "onnx.metadata.keys", Value: keys}, gguf.KeyValue{Key: "onnx.metadata.values", Value: values})
	}
	for _, t := range p.Tensors {
		if t.Transposed {
			transposed = append(transposed, t.Name)
		}
	}
	if len(transposed) > 0 {
		kv = append(kv, gguf.KeyValue{Key: "onnx.transposed", Value: transposed})
	}
	for _, own := range p.opts.Metadata {
		if i := slices.IndexFunc(kv, func(e gguf.KeyValue) bool { return e.Key == own.Key }); i >= 0 {
			kv[i] = own
		} else {
			kv = append(kv, own)
		}
	}
	return kv
}

// checkImportance warns if some weights are not in the matrix, and fails if none is.
func (p *Plan) checkImportance(im *rules.Importance) error {
	known := 0
	wanted := 0
	for _, w := range p.weights {
		if w.importance != nil {
			known++
		}
		if w.encoding != nil && w.encoding.Elements > 1 {
			wanted++
		}
	}
	warning, err := im.Covers(known, wanted)
	if warning != "" {
		p.Warnings = append(p.Warnings, warning)
	}
	return err
}
