package discover

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/rules"
)

// selectBy sets the choice if the options select the tensor, or else the reason why not.
func (d *Decision) selectBy(opts Options, smallerAsInt8 bool) error {
	n, _ := dtype.Elements(d.Shape)
	o, reason := d.readers(opts.Ops)
	switch {
	case reason != "":
		d.Reason = reason
	case n == 0:
		d.Reason = "empty"
	case n < opts.MinElements:
		d.Reason = fmt.Sprintf("fewer than %d elements", opts.MinElements)
	case !opts.Include.Empty() && !d.matches(opts.Include):
		d.Reason = "not included"
	case d.matches(opts.Exclude):
		d.Reason = "excluded"
	default:
		d.Choice = &Choice{Operand: o}
		return d.choose(opts, smallerAsInt8)
	}
	return nil
}

// readers returns how the first selected operator that takes the tensor as its weight sums
// over it, or the reason why there is none.
func (d *Decision) readers(ops []string) (o reach.Operand, reason string) {
	var unselected, other, done []string
	for _, l := range d.Reach.Leaves {
		o, weight, why := l.Operand(d.Shape)
		switch {
		case weight && !slices.Contains(ops, l.Node.GetOpType()):
			unselected = append(unselected, graph.Operator(l.Node))
		case weight && why == "":
			return o, ""
		case weight:
			d.unknown = fmt.Sprintf("%s: %s", l, why)
		default:
			if why != "" {
				why = " (" + why + ")"
			}
			other = append(other, l.String()+why)
			if role := recognize.RoleOf(l); role != "" {
				done = append(done, role)
			}
		}
	}
	switch {
	case d.unknown != "":
		return reach.Operand{Axis: 0, View: d.Shape}, ""
	case len(unselected) > 0:
		return o, Unselected + msg.List(unselected)
	case len(other) > 0 && len(done) == len(other):
		return o, recognize.Already + msg.List(done)
	case len(other) > 0:
		return o, "read by " + msg.List(other)
	case d.Reach.Output:
		return o, "graph output"
	}
	return o, "nothing reads it"
}

// obstacle returns why a selected tensor cannot be quantized, or "".
func (d *Decision) obstacle(trained map[string]bool, keepFloat map[*graph.Value]string) string {
	var other []string
	for _, l := range d.Reach.Leaves {
		if _, weight, _ := l.Operand(d.Shape); !weight {
			other = append(other, l.String())
		}
	}
	if why := unchangeable(d.Value, d.Reach.Output, trained); why != "" {
		return why
	}
	switch {
	case len(other) > 0:
		return "also read by " + msg.List(other)
	case d.unknown != "":
		return d.unknown
	}
	return keepFloat[d.Value]
}

// unchangeable returns why no other tensors can take the place of a stored one, or "". output: it, or what
// is made of its elements alone, is an output of the graph.
func unchangeable(v *graph.Value, output bool, trained map[string]bool) string {
	switch {
	case v.Unusual() != nil:
		return "stored as " + v.Unusual().Form
	case v.Input && !v.MustBeInput:
		return "graph input: callers may replace it"
	case output:
		return "graph output"
	case trained[v.Name]:
		return "bound by training_info"
	}
	return ""
}

// matches reports whether a pattern matches the name of the tensor or of a node that reads it.
func (d *Decision) matches(patterns *rules.Patterns) bool {
	if patterns.Empty() {
		return false
	}
	for _, v := range append([]*graph.Value{d.Value}, d.Value.From()...) {
		if patterns.Match(v.Name) || v.Path != v.Name && patterns.Match(v.Path) {
			return true
		}
	}
	return slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		return l.Node.GetName() != "" && patterns.Match(l.Node.GetName())
	})
}
