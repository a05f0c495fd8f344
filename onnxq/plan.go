package onnxq

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// conversion is the part of a Plan that carries it out.
type conversion struct {
	model   *Model
	opts    Options
	to      *rewritten
	workers int
	limit   int64 // elements that each holds at a time
}

// Plan decides what becomes of every float tensor and how the output is laid
// out. It reads no weights.
func (m *Model) Plan(opts Options) (*Plan, error) {
	return m.plan(opts, nil)
}

// exceptions are weights that do not become what the options say, with the
// reasons.
type exceptions struct {
	left  map[*onnxpb.TensorProto]string // stay in float
	plain map[*onnxpb.TensorProto]string // are in the style dq
}

// plan makes a plan that leaves alone the weights that turned out unfit, and
// those that make the output larger than the input.
func (m *Model) plan(opts Options, unfit map[*onnxpb.TensorProto]string) (*Plan, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	but := exceptions{map[*onnxpb.TensorProto]string{}, map[*onnxpb.TensorProto]string{}}
	maps.Copy(but.left, unfit)
	for {
		p, err := m.planWithout(opts, but)
		if err != nil {
			return nil, err
		}
		useless := p.useless()
		if len(useless) == 0 {
			return p, p.checkCoverage(opts.MinCoverage)
		}
		for _, w := range useless {
			if w.d.choice.style == spec.DQ {
				but.left[w.d.value.Tensor] = reasonUseless
			} else {
				but.plain[w.d.value.Tensor] = reasonUseless
			}
		}
	}
}

// planWithout makes a plan with exceptions.
func (m *Model) planWithout(opts Options, but exceptions) (*Plan, error) {
	if opts.Precision != nil {
		if err := opts.Precision.Unused(m.tensorNames()); err != nil {
			return nil, err
		}
	}
	if err := m.checkPatterns(slices.Concat(opts.Include, opts.Exclude)); err != nil {
		return nil, err
	}
	decisions, err := m.discover(opts, but)
	if err != nil {
		return nil, err
	}
	r, err := m.rewrite(decisions)
	if err != nil {
		return nil, err
	}
	c := &conversion{model: m, opts: opts, to: r}
	c.workers, c.limit = workers(opts.Threads, opts.Memory)
	if err := c.to.out.place(opts.ExternalData); err != nil {
		return nil, err
	}
	p := c.describe(decisions, but)
	known, wanted := 0, 0
	for _, w := range c.to.weights {
		if w.encoding != nil {
			wanted++
		}
		if w.d.importance != nil {
			known++
		}
	}
	warning, err := opts.Importance.Covers(known, wanted)
	if warning != "" {
		p.warn("%s", warning)
	}
	return p, err
}

// tensorNames lists the names that a precision_info may use: those in subgraphs
// also with the way there.
func (m *Model) tensorNames() []string {
	var names []string
	for _, v := range m.index.Values {
		if dtype.DType(v.Tensor.GetDataType()).Float() {
			names = append(names, v.Name)
			if v.Path != v.Name {
				names = append(names, v.Path)
			}
		}
	}
	return names
}

// checkPatterns refuses a pattern that means nothing in the model: it is likely
// a slip, and would quantize what was to be left alone.
func (m *Model) checkPatterns(patterns []string) error {
	names := slices.Concat(m.tensorNames(), m.index.Nodes)
	for _, p := range patterns {
		if slices.ContainsFunc(names, func(name string) bool { return rules.MatchName(p, name) }) {
			continue
		}
		message := fmt.Sprintf("no weight and no node is called %s", msg.Quote(p))
		if near, ok := nearest.Name(p, names); ok {
			message += "; the nearest name is " + msg.Quote(near)
		}
		return errors.New(message)
	}
	return nil
}
