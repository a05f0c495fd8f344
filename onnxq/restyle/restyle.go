package restyle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"onnxquant/internal/commit"
	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/kvcache"
	"onnxquant/internal/msg"
	"onnxquant/internal/provenance"
	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Restyle writes the model at in to out with its quantized weights in another style: DQ, ONNX's
// DequantizeLinear, or NBits, ONNX Runtime's MatMulNBits, GatherBlockQuantized and QMoE. Codes, scales and
// zero points keep their values: a weight decodes to the same elements, bit for bit. A weight for
// which that is impossible stays unchanged, and the report says why. The input is never changed, and
// out appears complete or not at all.
func Restyle(ctx context.Context, in, out string, style spec.Style, opts Options) (*Report, error) {
	switch style {
	case spec.DQ:
		return change{prepare: asItIs, replace: (*rebuild).toDequantizeLinear}.file(ctx, in, out, opts)
	case spec.NBits:
		return change{asItIs, (*rebuild).settleExperts, (*rebuild).toNBits}.file(ctx, in, out, opts)
	}
	return nil, fmt.Errorf("style %q: want dq or nbits", style)
}

// Dequantize writes the model at in to out with every quantized weight replaced by a float tensor of
// exactly its decoded values. A MatMulNBits becomes a MatMul, with an Add for its bias; a
// GatherBlockQuantized becomes a Gather, a QMoE a MoE. Operators that compute with codes, such as MatMulInteger and
// QLinearConv, become float operators, without the quantization of their activations. Key-value caches of int8 become floats. The input is
// never changed, and out appears complete or not at all.
func Dequantize(ctx context.Context, in, out string, opts Options) (*Report, error) {
	return toFloat.file(ctx, in, out, opts)
}

// DequantizeModel is like Dequantize, for a model that is open.
func DequantizeModel(ctx context.Context, m *onnxq.Model, out string, opts Options) (*Report, error) {
	return toFloat.model(ctx, m, out, opts)
}

// change is the edit of a model: which weights become what.
type change struct {
	prepare func(*graph.Graph) (*intops.Model, error)
	settle  func(*rebuild, []*recognize.Weight)                          // what depends on several weights; or nil
	replace func(*rebuild, *recognize.Weight) (made Weight, opset int64) // opset is the least that the new form needs
}

var toFloat = change{prepare: inFloat, replace: func(r *rebuild, w *recognize.Weight) (Weight, int64) { return r.unfold(w), 0 }}

// inFloat gives a model float caches, and operators that compute with floats.
func inFloat(x *graph.Graph) (*intops.Model, error) {
	x, err := kvcache.Float(x)
	if err != nil {
		return nil, err
	}
	return intops.Float(x)
}

// asItIs leaves operators that compute with codes as they are.
func asItIs(x *graph.Graph) (*intops.Model, error) { return &intops.Model{Graph: x}, nil }

// file writes the model at in, changed, to out.
func (c change) file(ctx context.Context, in, out string, opts Options) (*Report, error) {
	if _, err := opts.withDefaults(); err != nil {
		return nil, err
	}
	m, err := onnxq.Open(in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return c.model(ctx, m, out, opts)
}

// model writes a model that is open, changed, to out.
func (c change) model(ctx context.Context, m *onnxq.Model, out string, opts Options) (*Report, error) {
	if err := m.Ready(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	in := m.Graph().File.Path()
	prepared, err := c.prepare(m.Graph())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in, err)
	}
	r := newRebuild(prepared.Graph, opts)
	list := []Weight{}
	need := int64(0)
	weights := recognize.Weights(prepared.Graph)
	if c.settle != nil {
		c.settle(r, weights)
	}
	for _, w := range weights {
		w.Form = cmp.Or(prepared.Forms[w.Codes], w.Form)
		made := Weight{Weight: w, NewForm: w.Form, OutBytes: w.Bytes, Reason: w.Obstacle}
		if w.Obstacle == "" {
			var opset int64
			made, opset = c.replace(r, w)
			need = max(need, opset)
		}
		list = append(list, made)
	}
	if err := r.finish(need); err != nil {
		return nil, fmt.Errorf("%s: %w", in, err)
	}
	for i := range list {
		if name, ok := r.renamed[list[i].Became]; ok {
			list[i].Became = name
		}
	}
	if opts.Provenance != nil {
		step, err := provenance.WithInput(*opts.Provenance, m.Graph().File)
		if err != nil {
			return nil, err
		}
		provenance.Add(r.copy.Proto, *step)
	}
	report, err := r.write(ctx, out)
	if err != nil {
		return nil, err
	}
	for _, l := range rewrite.Losses(r.copy, target.Of(spec.ORT)) {
		report.Warnings = append(report.Warnings, fmt.Sprintf("the opset becomes %d, but %s; it refuses the model", graph.Opset(r.copy.Proto), l))
	}
	report.Activations = recognize.Activations(prepared.Graph)
	report.Weights, report.Ranges, report.Steps, report.Elapsed = list, prepared.Ranges, prepared.Steps, time.Since(start)
	return report, nil
}

// write writes the model.
func (r *rebuild) write(ctx context.Context, path string) (*Report, error) {
	out, err := write.Collect(r.copy)
	if err != nil {
		return nil, err
	}
	if err := out.CheckNodes(r.copy.Original.File.Proto); err != nil {
		return nil, err
	}
	if r.opts.Provenance != nil {
		out.Record(!r.opts.Provenance.Brief)
	} else {
		out.Forget()
	}
	c := newContent(out, r.fills, r.opts)
	if i := slices.Index(c.places, -1); i >= 0 {
		return nil, fmt.Errorf("%w: tensor %s is in a node that is gone", graph.ErrModel, msg.Quote(r.fills[i].tensor.GetName()))
	}
	if err := out.Place(r.opts.external()); err != nil {
		return nil, err
	}
	if out, err = out.At(path); err != nil {
		return nil, err
	}
	c.out = out
	in := r.copy.Original.File
	f := write.File{Path: path, Model: in, Data: out.Data(), NoVerify: r.opts.NoVerify, Seal: out.Seal, Rename: out.Rename}
	replaced := commit.Exists(path)
	if err := f.Write(ctx, c); err != nil {
		return nil, err
	}
	report := &Report{InBytes: in.Size(), OutBytes: out.Size(), Output: path, Replaced: replaced, Verified: !r.opts.NoVerify}
	if out.External() {
		paths := out.DataPaths(path)
		report.Data, report.MoreData = paths[0], paths[1:]
	}
	return report, nil
}

// Options say how the output is written. Zero values mean the defaults.
type Options struct {
	ExternalData     spec.ExternalData  // default ExternalAuto
	ExternalDataName string             // as in onnxq.Options
	ShardSize        int64              // as in onnxq.Options
	AccuracyLevel    spec.AccuracyLevel // of MatMulNBits; default AccuracyInt8, the fastest
	NoFoldBias       bool               // MatMulNBits gets no bias: an Add adds it
	Threads          int                // default: the number of CPUs
	Memory           int64              // bytes of buffers for all threads together; default 64 MiB
	NoVerify         bool               // do not read the output again to compare it
	Provenance       *spec.Step         // as in onnxq.Options

	// Progress, if set, is called with the bytes written so far and the total. Calls do not
	// overlap.
	Progress func(done, total int64)
}

func (o Options) external() write.External {
	return write.External{When: o.ExternalData, Name: o.ExternalDataName, Shard: o.ShardSize}
}

func (o Options) withDefaults() (Options, error) {
	o.ExternalData, o.Memory = cmp.Or(o.ExternalData, spec.ExternalAuto), cmp.Or(o.Memory, work.DefaultMemory)
	return o, cmp.Or(o.external().Check(), o.AccuracyLevel.Check(), work.Check(o.Threads, o.Memory))
}

// Weight is a quantized weight of the input and its new form.
type Weight struct {
	*recognize.Weight
	Became   string `json:"became,omitempty"` // name of the new value that operators read
	NewForm  string `json:"new_form"`         // "float", or the operators that decode it now
	OutBytes int64  `json:"out_bytes"`        // size of its tensors
	Changed  bool   `json:"changed"`
	Reason   string `json:"reason,omitempty"` // why it is unchanged; "" if it already has the style
}

// Report lists the quantized weights of a model and their new forms.
type Report struct {
	Weights  []Weight      `json:"weights"`
	InBytes  int64         `json:"in_bytes"` // model file and external data
	OutBytes int64         `json:"out_bytes"`
	Output   string        `json:"output"`
	Data     string        `json:"data,omitempty"`      // external data file, if any
	MoreData []string      `json:"more_data,omitempty"` // further ones, of Options.ShardSize
	Replaced bool          `json:"replaced,omitempty"`  // there was a file at Output
	Verified bool          `json:"verified"`            // the output was read again and compared
	Warnings []string      `json:"warnings,omitempty"`
	Elapsed  time.Duration `json:"elapsed_ns"`

	// Activations counts the tensors that keep the QuantizeLinear and DequantizeLinear around
	// them, by the type of their codes.
	Activations map[string]int `json:"activations,omitempty"`

	// Ranges has the ranges of activations that had codes before Dequantize, and Steps the distance
	// between two codes, by name of the value.
	Ranges map[string]intops.Range `json:"-"`
	Steps  map[string]float64      `json:"-"`
}
