package ggufmodel

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/recognize"
	"onnxquant/internal/work"
	"onnxquant/onnxq"
	"onnxquant/rules"
)

// Options say how weights are written to a GGUF file. Zero values mean the defaults.
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

// Plan describes the contents of a GGUF file. It depends only on the model's structure and the
// options. Its Model must stay open.
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

// NewPlan decides the contents of a GGUF file with the model's weights. It reads no weights.
//
// All float initializers and Constants are written, except empty ones, scalars of Constant nodes, and
// parts of quantized weights. Weights with two or more axes that MatMul, Gemm or Gather read get the
// type of the mix. If their rows do not fill whole blocks, they get a type with shorter blocks. Other
// weights keep their type, except that vectors become F32, as ggml's programs require.
func NewPlan(m *onnxq.Model, opts Options) (*Plan, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	x := m.Graph()
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
	parts := p.quantizedParts()
	switch {
	case len(p.weights) > 0:
	case parts > 0:
		return errors.New("the model has no float weights, its weights are quantized already: run onnxquant dequantize first")
	default:
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
	if parts > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the file lacks the weights that are quantized already, with %d float tensors of theirs: run onnxquant dequantize first", parts))
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
