package discover

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
	"onnxquant/rules"
)

// selectBy returns how a tensor is summed over by the operator that takes it as its weight. If the
// options do not select the tensor, it returns the reason.
func (d *Decision) selectBy(opts Options) (o reach.Operand, reason string) {
	n, _ := dtype.Elements(d.Shape)
	o, reason = d.readers(opts.Ops)
	switch {
	case reason != "":
	case n == 0:
		reason = "empty"
	case n < opts.MinElements:
		reason = fmt.Sprintf("fewer than %d elements", opts.MinElements)
	case !opts.Include.Empty() && !d.matches(opts.Include):
		reason = NotIncluded
	case d.matches(opts.Exclude):
		reason = Excluded
	}
	return o, reason
}

// Reasons of tensors that the names in Include and Exclude keep in float.
const (
	NotIncluded = "not included"
	Excluded    = "excluded"
)

// readers returns how the tensor is summed over by the first selected operator that takes it as its
// weight. If there is none, it returns the reason.
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

// obstacle returns why a selected tensor cannot be quantized, or "". keepFloat is as in Exception.
func (d *Decision) obstacle(trained map[string]bool, keepFloat string) string {
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
	return keepFloat
}

// unchangeable returns why a stored tensor cannot be replaced by other tensors, or "". output means
// that the tensor, or one made of its elements alone, is an output of the graph.
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
