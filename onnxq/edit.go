package onnxq

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"onnxquant/internal/convert"
	"onnxquant/internal/msg"
	"onnxquant/rules"
	"onnxquant/spec"
)

// ErrEdit is wrapped by errors about an edited plan that cannot be carried out.
var ErrEdit = errors.New("the plan was edited")

// asEdited returns the plan that Tensors describe, with the caller's edits. It is an error if no
// plan can satisfy them.
func (p *Plan) asEdited() (*convert.Plan, error) {
	if p == nil || p.plan == nil {
		return nil, errNotPlanned
	}
	if n := len(p.plan.Decisions); n != len(p.Tensors) {
		return nil, fmt.Errorf("%w: it has %d tensors, the model %d", ErrEdit, len(p.Tensors), n)
	}
	made := map[int]TensorPlan{} // edited tensors before the edit
	var edited []int
	entries := p.opts.Discover.Precision.Entries()
	for i, was := range describeTensors(p.plan) {
		t := p.Tensors[i]
		if reflect.DeepEqual(t, was) {
			continue
		}
		if err := checkEdit(was, t); err != nil {
			return nil, err
		}
		before, _ := p.opts.Discover.Precision.For(t.Name)
		entry := rules.PrecisionEntry{Pattern: rules.PatternOf(t.Name), Override: override(before, was, t)}
		made[i] = was
		entries = slices.DeleteFunc(entries, func(e rules.PrecisionEntry) bool { return e.Pattern == entry.Pattern })
		entries, edited = append(entries, entry), append(edited, i)
	}
	if edited == nil {
		return p.plan, nil
	}
	return p.planEdits(made, edited, entries)
}

// planEdits makes a plan with precision_info entries and checks that it satisfies the edited
// tensors.
func (p *Plan) planEdits(made map[int]TensorPlan, edited []int, entries []rules.PrecisionEntry) (*convert.Plan, error) {
	precision, err := rules.NewPrecision(entries...)
	if err != nil { // the caller did not write a precision_info
		return nil, fmt.Errorf("%w: %s", ErrEdit, strings.TrimPrefix(err.Error(), "precision_info: "))
	}
	opts := p.opts
	opts.Discover.Precision = precision
	plan, err := convert.NewPlan(p.input, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEdit, err)
	}
	found := map[string]TensorPlan{}
	for _, t := range describe(plan, opts).Tensors {
		found[t.Name] = t
	}
	for _, i := range edited {
		want, got := p.Tensors[i], found[p.Tensors[i].Name]
		wrong := func(what string, asked, possible any) error {
			why := ""
			if text := cmp.Or(got.Reason, got.Note); text != "" {
				why = ": " + text
			}
			return fmt.Errorf("%w: %s: %s %v is not possible, only %v%s", ErrEdit, msg.Quote(want.Name), what, asked, possible, why)
		}
		switch {
		case got.Decision != want.Decision:
			return nil, wrong("decision", want.Decision, cmp.Or(got.Decision, "none"))
		case want.Decision == Keep:
		case want.Format != made[i].Format && want.Format != got.Format:
			return nil, wrong("format", want.Format, got.Format)
		case want.Block != made[i].Block && want.Block != got.Block:
			return nil, wrong("block", want.Block, got.Block)
		case want.Axis != made[i].Axis && want.Axis != got.Axis:
			return nil, wrong("axis", want.Axis, got.Axis)
		}
	}
	return plan, nil
}

// checkEdit refuses changes of facts.
func checkEdit(made, t TensorPlan) error {
	if t.Name != made.Name {
		return fmt.Errorf("%w: %s is where %s was: do not rename or reorder tensors", ErrEdit, msg.Quote(t.Name), msg.Quote(made.Name))
	}
	if t.Decision != Keep && t.Decision != Quantize {
		return fmt.Errorf("%w: %s: decision %q: want %s or %s", ErrEdit, msg.Quote(t.Name), t.Decision, Quantize, Keep)
	}
	made.Decision, made.Format, made.Axis, made.Block = t.Decision, t.Format, t.Axis, t.Block
	if !reflect.DeepEqual(made, t) {
		return fmt.Errorf("%w: %s: only Decision, Format, Block and Axis can be chosen", ErrEdit, msg.Quote(t.Name))
	}
	return nil
}

// override returns the precision_info entry that turns the planned tensor made into t.
func override(before spec.Override, made, t TensorPlan) spec.Override {
	if t.Decision == Keep {
		float := spec.Float
		return spec.Override{Format: &float}
	}
	o := before
	if made.Decision == Keep && o.Format != nil && *o.Format == spec.Float {
		o.Format = nil
	}
	if t.Format != made.Format {
		o.Bits, o.Format = nil, &t.Format
	}
	if t.Block != made.Block {
		o.Block = &t.Block
	}
	if t.Axis != made.Axis {
		o.Axis = &t.Axis
	}
	return o
}
