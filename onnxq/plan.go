package onnxq

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/spec"
)

// Plan says what a conversion will do. It depends only on the structure of the model and the
// options: no weight is read. If Convert then finds weights with NaN, infinity or only values too
// small for a scale, it plans again without them.
//
// The caller may edit Decision, Format, Block and Axis of the Tensors. The conversion then follows
// them or fails with an error that wraps [ErrEdit]. All other fields are facts; changing a fact of
// a tensor fails, too.
//
// A Plan needs its Model to be open. Its methods are not for concurrent use.
type Plan struct {
	Tensors     []TensorPlan `json:"tensors"`             // every float initializer and Constant
	OpsetBefore int64        `json:"opset_before"`        // opset of the model, in the standard domain
	OpsetAfter  int64        `json:"opset_after"`         // opset of the output
	OpsetFor    []string     `json:"opset_for,omitempty"` // formats for which the opset is raised
	IRBefore    int64        `json:"ir_before"`           // IR version of the model
	IRAfter     int64        `json:"ir_after"`            // IR version of the output
	InBytes     int64        `json:"in_bytes"`            // size of the model file and its external data
	OutBytes    int64        `json:"out_bytes"`           // exact size of the output
	External    bool         `json:"external_data"`       // the output has tensors in external files
	Coverage    float64      `json:"coverage"`            // quantized share of the bytes of float tensors, 0 to 1
	// BitsPerWeight is the average size in bits of an element of the quantized tensors, including
	// scales and zero points.
	BitsPerWeight float64        `json:"bits_per_weight"`
	Folded        *Folded        `json:"folded,omitempty"`    // with Options.Fold
	HalfPrecision *HalfPrecision `json:"half,omitempty"`      // with Options.FloatType
	Fallbacks     []Fallback     `json:"fallbacks,omitempty"` // settings that were asked for and that some weights do not get
	Decoded       []Decoded      `json:"decoded,omitempty"`   // weights that ONNX Runtime would decode at every run, by operator
	Warnings      []string       `json:"warnings,omitempty"`  // one line each, about what the caller may not expect
	Caches        int            `json:"caches,omitempty"`    // key-value caches that become int8
	// CalibrationCost estimates what Options.Calibration takes.
	CalibrationCost *CalibrationCost `json:"calibration_cost,omitempty"`
	// Activations and Dynamic are what package sensitivity found, if the caller sets it.
	Activations *StaticActivations  `json:"static_activations,omitempty"`
	Dynamic     *DynamicActivations `json:"dynamic_activations,omitempty"`
	Levels      *AccuracyLevels     `json:"accuracy_levels,omitempty"` // the same, of Options.FindLevels

	plan  *convert.Plan
	opts  convert.Options // that made the plan
	input *graph.Graph    // of the model as opened
}

// Fallback is a setting that was asked for and that some weights do not get.
type Fallback struct {
	Setting string   `json:"setting"`         // as the command line calls it, such as "algorithm"
	Asked   string   `json:"asked,omitempty"` // such as "best"
	Got     string   `json:"got,omitempty"`   // what these weights get; "" if they stay in float
	Reason  string   `json:"reason"`          // of most of them
	Weights []string `json:"weights"`         // their names
	Of      int      `json:"of"`              // number of selected weights

	text string
}

// String says how many weights get what, and why.
func (f Fallback) String() string { return f.text }

// CalibrationCost estimates what calibration takes. MeasureCalibration makes it include the runs of the model.
type CalibrationCost struct {
	Groups   int     `json:"groups"`      // groups of layers that are calibrated at once
	Runs     int     `json:"runs"`        // runs of the whole model on all samples, which parts of it add up to
	Memory   int64   `json:"memory"`      // peak in bytes of all processes
	Disk     int64   `json:"disk"`        // largest size in bytes of temporary files beside the output
	Seconds  float64 `json:"seconds"`     // if all processors are free
	CPU      float64 `json:"cpu_seconds"` // of all processors
	Free     float64 `json:"free"`        // the share of the processors that was free at the time; 0: unknown
	Measured bool    `json:"measured"`    // false: without the runs of the model, their memory and the values between its parts
}

// Folded counts what Options.Fold took away.
type Folded struct {
	Nodes  map[string]int `json:"nodes"`            // folded into weights and biases, by operator
	Shapes int            `json:"shapes,omitempty"` // nodes that read the shape of a constant
	Unread int            `json:"unread,omitempty"` // stored tensors that nothing read
}

// Facts says what was taken away, a line for each kind.
func (f *Folded) Facts() (lines []string) {
	if f == nil {
		return nil
	}
	var nodes []string
	for _, op := range slices.Sorted(maps.Keys(f.Nodes)) {
		nodes = append(nodes, fmt.Sprintf("%d %s", f.Nodes[op], op))
	}
	if len(nodes) > 0 {
		lines = append(lines, "into weights and biases: "+strings.Join(nodes, ", "))
	}
	if f.Shapes > 0 {
		lines = append(lines, english.Plural(f.Shapes, "shape of a constant", "shapes of constants"))
	}
	if f.Unread > 0 {
		lines = append(lines, english.Plural(f.Unread, "tensor that nothing reads", "tensors that nothing reads"))
	}
	return lines
}

// HalfPrecision says what happens to float32 values with Options.FloatType.
type HalfPrecision struct {
	Type    spec.FloatType `json:"type"`         // Float16 or BFloat16
	Tensors int            `json:"tensors"`      // tensors whose contents become half
	Casts   int            `json:"casts"`        // new Cast nodes
	Kept    []FloatNode    `json:"kept_float32"` // nodes that stay in float32
}

// FloatNode is a node that stays in float32, and the reason.
type FloatNode struct {
	Node     string `json:"node"`     // name of the node or of its first output
	Operator string `json:"operator"` // with its domain unless that is the standard one
	Reason   string `json:"reason"`   // continues a sentence that begins with the operator: "does not take bfloat16"
}

// quoted is the name of a value in a reason.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Reasons counts the nodes that stay in float32, by operator and reason. A reason that names another value
// at each node says "a value" in place of the name.
func (h *HalfPrecision) Reasons() map[string]int {
	type kind struct{ operator, reason string }
	kinds := map[kind]string{} // without the name of the value; with the name, if all have the same
	for _, n := range h.Kept {
		k, reason := kind{n.Operator, quoted.ReplaceAllString(n.Reason, "a value")}, n.Reason
		if before, ok := kinds[k]; ok && before != reason {
			reason = k.reason
		}
		kinds[k] = reason
	}
	reasons := map[string]int{}
	for _, n := range h.Kept {
		reasons[n.Operator+" "+kinds[kind{n.Operator, quoted.ReplaceAllString(n.Reason, "a value")}]]++
	}
	return reasons
}

// Plan decides for every float tensor whether and how it is quantized, and lays out the output. It
// reads no weights. A setting in opts that is not applied is an error that wraps [ErrFallback]: if no weight
// gets it, if more than a quarter of the selected weights do not get it, or if memory lacks for it.
// Options.AllowFallback allows it. Otherwise it is in Plan.Fallbacks.
func (m *Model) Plan(opts Options) (*Plan, error) {
	p, resolved, err := m.stages(opts, &discover.Known{})
	if err != nil {
		return nil, err
	}
	if !opts.AllowFallback {
		if err := p.CheckUnmet(opts.AllowFallbackOf); err != nil {
			return nil, err
		}
	}
	d := describe(p, resolved)
	d.input = m.graph
	return d, nil
}

// stages makes the plan that Plan describes, and returns its resolved options. known comes from
// plans that select the same tensors.
func (m *Model) stages(opts Options, known *discover.Known) (*convert.Plan, convert.Options, error) {
	if err := m.Opened(); err != nil {
		return nil, convert.Options{}, err
	}
	resolved, err := opts.resolve()
	if err != nil {
		return nil, resolved, err
	}
	resolved.Discover.Known = known
	if resolved.Simplified = m.folded; m.balance != nil {
		resolved.Balance, resolved.Balanced = m.balance, m.graph
	}
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
	for _, u := range p.Unmet() {
		d.Fallbacks = append(d.Fallbacks, Fallback{u.Setting, u.Asked, u.Got, u.Why, u.Weights, u.Of, u.String()})
	}
	if f := p.Folded(); opts.Fold || f.Total() > 0 {
		d.Folded = &Folded{f.Nodes, f.Shapes, f.Unread}
	}
	if h := p.Half; h != nil {
		d.HalfPrecision = &HalfPrecision{Type: spec.FloatType(strings.ToLower(h.To.String())), Tensors: h.Tensors(), Casts: h.Casts, Kept: []FloatNode{}}
		for _, k := range h.Kept {
			d.HalfPrecision.Kept = append(d.HalfPrecision.Kept, FloatNode{k.Node, k.Operator, k.Reason})
		}
	}
	d.CalibrationCost = costOf(p.CalibrationCost())
	d.Decoded, d.Caches = decodedOf(p), p.Caches()
	var bytes, elements int64 // of quantized tensors
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

// describeTensors yields the descriptions of tensors one by one, because there may be very many.
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

// describeTensor describes a tensor and, if it stays in float, the reason.
func describeTensor(d *discover.Decision) TensorPlan {
	t := TensorPlan{
		Name:      d.Value.Path,
		Node:      d.Reader(),
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
	settled, err := p.asEdited()
	if err != nil {
		return 0, err
	}
	if settled, err = settled.At(out); err != nil {
		return 0, err
	}
	return settled.Output.Size(), nil
}

// CheckOutput checks, without writing, whether the output may have the name out. The output must
// not replace the input, a folder, or external data of another model.
func (p *Plan) CheckOutput(out string) error {
	settled, err := p.asEdited()
	if err != nil {
		return err
	}
	return settled.CheckPath(out)
}

// ReplacesFloat reports whether the plan would replace a float model at out by a copy of a model
// that is quantized already. The user probably swapped the two.
func (p *Plan) ReplacesFloat(out string) bool {
	if p == nil || p.input == nil || slices.ContainsFunc(p.Tensors, func(t TensorPlan) bool { return t.Decision == Quantize }) || len(recognize.Weights(p.input)) == 0 {
		return false
	}
	old, err := Open(out)
	if err != nil {
		return false // there is no model at out
	}
	defer old.Close()
	return len(recognize.Weights(old.graph)) == 0
}

var errNotPlanned = errors.New("the plan was not made by Model.Plan")
