package onnxq

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/rewrite"
	"onnxquant/onnxq/spec"
)

// Plan says what a conversion will do. It depends only on the model's structure and the
// options: no weight is read. If Convert then finds weights with NaN, infinity or only
// values too small for a scale, it plans again without them.
//
// The caller may edit Decision, Format, Block and Axis of the Tensors: the conversion then does
// as they say, or is refused with an error that wraps [ErrEdit]. All else in a plan is a fact;
// to change a fact of a tensor is refused, too.
//
// A plan needs its Model to be open. Its methods are not for concurrent use.
type Plan struct {
	Tensors     []TensorPlan `json:"tensors"`             // every float initializer and Constant
	OpsetBefore int64        `json:"opset_before"`        // of the model, in the standard's domain
	OpsetAfter  int64        `json:"opset_after"`         // of the output
	OpsetFor    []string     `json:"opset_for,omitempty"` // formats that need it, if it is raised
	IRBefore    int64        `json:"ir_before"`           // IR version of the model
	IRAfter     int64        `json:"ir_after"`            // of the output
	InBytes     int64        `json:"in_bytes"`            // model file and external data
	OutBytes    int64        `json:"out_bytes"`           // exact size of the output
	External    bool         `json:"external_data"`       // the output has its tensors in other files
	Coverage    float64      `json:"coverage"`            // share of the bytes of float tensors that is quantized, 0 to 1
	// BitsPerWeight is the average size in bits of an element of the quantized tensors, scales
	// and zero points included.
	BitsPerWeight float64  `json:"bits_per_weight"`
	Half          *Half    `json:"half,omitempty"`     // with Options.FloatType
	Warnings      []string `json:"warnings,omitempty"` // one line each, what the caller may not expect
	// CalibrationCost is what Options.Calibration will take.
	CalibrationCost *CalibrationCost `json:"calibration_cost,omitempty"`

	plan  *convert.Plan
	opts  convert.Options // it was made with these
	input *graph.Graph    // of this model
}

// CalibrationCost is what calibration takes, besides what runs the models.
type CalibrationCost struct {
	Groups  int     `json:"groups"`  // of layers that are calibrated at once
	Runs    int     `json:"runs"`    // of models, each up to the whole one, on all samples
	Memory  int64   `json:"memory"`  // bytes at once
	Disk    int64   `json:"disk"`    // bytes of temporary files beside the output, at most
	Seconds float64 `json:"seconds"` // roughly, without the runs
}

// Half says what becomes of float32 values with Options.FloatType.
type Half struct {
	Type    spec.FloatType `json:"type"`         // Float16 or BFloat16
	Tensors int            `json:"tensors"`      // whose contents become half
	Casts   int            `json:"casts"`        // new Cast nodes
	Kept    []FloatNode    `json:"kept_float32"` // nodes that stay in float32
}

// FloatNode is a node that stays in float32, and why.
type FloatNode struct {
	Node     string `json:"node"`     // its name, or that of its first output
	Operator string `json:"operator"` // with its domain, except for the standard's
	Reason   string `json:"reason"`   // goes on from the operator: "does not take bfloat16"
}

// Plan decides what becomes of every float tensor and lays out the output. It reads no
// weights.
func (m *Model) Plan(opts Options) (*Plan, error) {
	p, resolved, err := m.stages(opts, &discover.Known{})
	if err != nil {
		return nil, err
	}
	d := describe(p, resolved)
	d.input = m.graph
	return d, nil
}

// stages makes the plan that Plan describes, and the options that it is made with. known is of plans that
// select the same tensors.
func (m *Model) stages(opts Options, known *discover.Known) (*convert.Plan, convert.Options, error) {
	if err := access.Opened(m); err != nil {
		return nil, convert.Options{}, err
	}
	resolved, err := opts.resolve()
	if err != nil {
		return nil, resolved, err
	}
	resolved.Discover.Known = known
	p, err := convert.NewPlan(m.graph, resolved)
	return p, resolved, err
}

// describe converts a plan for the caller.
func describe(p *convert.Plan, opts convert.Options) *Plan {
	x := p.Graph()
	d := &Plan{
		Tensors:     make([]TensorPlan, 0, len(p.Decisions)),
		OpsetBefore: x.Opset,
		OpsetAfter:  p.Output.Opset(),
		IRBefore:    x.File.Proto.GetIrVersion(),
		IRAfter:     p.Output.IR(),
		InBytes:     p.InBytes(),
		OutBytes:    p.Output.Size(),
		External:    p.Output.External(),
		Coverage:    p.Coverage(),
		Warnings:    p.Warnings,
		plan:        p,
		opts:        opts,
	}
	for _, w := range p.Weights {
		if format := string(w.Choice.Format); d.OpsetAfter > d.OpsetBefore && w.Form.Opset() == d.OpsetAfter && !slices.Contains(d.OpsetFor, format) {
			d.OpsetFor = append(d.OpsetFor, format)
		}
	}
	slices.Sort(d.OpsetFor)
	if h := p.Half; h != nil {
		d.Half = &Half{Type: spec.FloatType(strings.ToLower(h.To.String())), Tensors: h.Tensors(), Casts: h.Casts, Kept: []FloatNode{}}
		for _, k := range h.Kept {
			d.Half.Kept = append(d.Half.Kept, FloatNode{k.Node, k.Operator, k.Reason})
		}
	}
	if c := p.CalibrationCost(); c != nil {
		d.CalibrationCost = &CalibrationCost{c.Groups, c.Runs, c.Memory, c.Disk + 3*p.InBytes(), c.Time.Seconds()}
	}
	var bytes, elements int64 // of what is quantized
	for _, t := range describeTensors(p) {
		if t.Decision == Quantize {
			bytes += t.OutBytes
		}
		d.Tensors = append(d.Tensors, t)
	}
	for _, w := range p.Weights {
		elements += w.Form.Elements()
	}
	if elements > 0 {
		d.BitsPerWeight = bitsPer(bytes, elements)
	}
	return d
}

// describeTensors describes what becomes of each tensor, one after the other: there may be very
// many.
func describeTensors(p *convert.Plan) iter.Seq2[int, TensorPlan] {
	return func(yield func(int, TensorPlan) bool) {
		weights := p.Weights
		for i, decision := range p.Decisions {
			t := describeTensor(decision)
			if decision.Quantize {
				describeWeight(&t, &weights[0])
				weights = weights[1:]
			}
			if !yield(i, t) {
				return
			}
		}
	}
}

// describeTensor describes a tensor and why it stays in float.
func describeTensor(d *discover.Decision) TensorPlan {
	t := TensorPlan{
		Name:      d.Value.Path,
		DType:     d.DType.String(),
		Shape:     append([]int64{}, d.Shape...),
		Bytes:     d.Bytes,
		Consumers: make([]string, 0, len(d.Value.Uses)),
		Nodes:     make([]string, 0, len(d.Value.Uses)),
		Decision:  Keep,
		Reason:    d.Reason,
		OutBytes:  d.Bytes,
	}
	for _, u := range d.Value.Uses {
		t.Consumers = append(t.Consumers, u.String())
		t.Nodes = append(t.Nodes, graph.Label(u.Node))
	}
	for _, v := range d.Value.From() {
		if v.Tensor != nil {
			t.From = append(t.From, v.Path)
		}
	}
	return t
}

// describeWeight adds how a weight is quantized.
func describeWeight(t *TensorPlan, w *rewrite.Weight) {
	t.Decision = Quantize
	t.Format, t.Axis, t.Block = w.Choice.Format, w.Choice.Operand.Axis, w.Choice.Block
	t.Form, t.Note, t.Fallback = w.Form.String(), w.Note, w.Fallback
	t.OutBytes = w.Bytes()
	if w.Choice.Style == spec.QDQ {
		t.OutBytes += t.Bytes
	}
	t.BitsPerWeight = bitsPer(t.OutBytes, w.Form.Elements())
}

func bitsPer(bytes, elements int64) float64 { return 8 * float64(bytes) / float64(elements) }

// OutputSize is OutBytes for an output with the name out. With external data the size depends on
// the name, because the model contains the name of the data file.
func (p *Plan) OutputSize(out string) (int64, error) {
	settled, err := p.settled()
	if err != nil {
		return 0, err
	}
	if settled, err = settled.At(out); err != nil {
		return 0, err
	}
	return settled.Output.Size(), nil
}

// CheckOutput checks, without writing, whether the output may have the name out: it must not
// replace the input, a folder, or external data of another model.
func (p *Plan) CheckOutput(out string) error {
	settled, err := p.settled()
	if err != nil {
		return err
	}
	return settled.CheckPath(out)
}

var errNotPlanned = errors.New("the plan was not made by Model.Plan")
