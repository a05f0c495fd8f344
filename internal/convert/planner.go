package convert

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/fixdim"
	"onnxquant/internal/fold"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/msg"
	"onnxquant/internal/simplify"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// planner makes plans of one model. A plan leads to findings: a weight that quantization would make
// larger, a weight with NaN, a value beyond float16. Each finding is an exception for the next
// plan:
//
//	plan → findings → exceptions → plan
//
// The method plan is this loop, for findings that follow from the structure of a plan. Values are
// read later. Findings that follow from values go to Plan.again, which enters the loop again.
type planner struct {
	input  *graph.Graph    // as it was opened, or simplified
	given  *graph.Graph    // as it was opened, if input is simplified; else nil
	folded simplify.Counts // what simplifying did
	opts   Options
	found  findings

	Half  *half.Model   // the model in half, if float32 becomes half; or nil
	whole *graph.Graph  // input with fixed dimensions, in half
	parts []*fold.Group // candidates for constant folding; nil once decided
	graph *graph.Graph  // whole after constant folding, whose weights are quantized; nil: not yet made

	// TileLimit is the number of elements that a worker holds at once. 0: it follows from the
	// memory.
	TileLimit int64
}

// findings are facts about values that demand another plan.
type findings struct {
	beyond  map[string]string   // path of a value that half cannot represent → reason; the value stays float32
	single  map[string]string   // path of a weight whose products stay in float32 → reason
	weights discover.Exceptions // weights to quantize in another way or not at all
	codes   *calibrated         // codes that calibration found; or nil
	levels  bool                // Options.FindLevels was asked
}

func (f findings) none() bool {
	return len(f.beyond)+len(f.single)+len(f.weights) == 0 && f.codes == nil && !f.levels
}

func (f findings) and(more findings) findings {
	return findings{joined(f.beyond, more.beyond), joined(f.single, more.single), f.weights.And(more.weights), cmp.Or(more.codes, f.codes), more.levels || f.levels}
}

// joined returns the entries of two maps, those of the second first.
func joined(a, b map[string]string) map[string]string {
	both := map[string]string{}
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}

// Error makes findings an error: the conversion ends with it, and another plan follows.
func (f findings) Error() string { return "values of the model demand another plan" }

// plan returns a plan that takes account of the findings and of its own structure.
func (l planner) plan() (*Plan, error) {
	if l.graph == nil {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	var structure discover.Exceptions
	for {
		p, err := l.draft(l.found.weights.And(structure))
		if err != nil {
			return nil, err
		}
		more, err := p.structure()
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			structure = structure.And(more)
			continue
		}
		if single := p.inFloat32(); len(single) > 0 {
			l.found = l.found.and(findings{single: single})
			l.graph = nil // half differs
			return l.plan()
		}
		rest := p.quantized(l.parts)
		if len(rest) == len(l.parts) {
			p.parts = nil
			p.warnOfHalf()
			return p, cmp.Or(p.checkCasts(), p.checkCoverage())
		}
		structure = nil
		if err := l.store(rest); err != nil {
			return nil, err
		}
	}
}

// checkCasts returns an error if half needs Casts of an opset that no runtime has.
func (p *Plan) checkCasts() error {
	opset := p.Output.Opset()
	if p.Half == nil || p.Half.Casts == 0 || opset >= half.FirstCast {
		return nil
	}
	return fmt.Errorf("%w: opset %d: no runtime has its Cast, which %s needs; raise the model with onnx.version_converter",
		graph.ErrModel, opset, strings.ToLower(p.Half.To.String()))
}

// again returns the plan with additional findings.
func (p *Plan) again(more findings) (*Plan, error) {
	l := p.planner
	l.found = l.found.and(more)
	if len(more.beyond) > 0 {
		l.graph = nil // half differs: open makes the graph anew
	}
	return l.plan()
}

// open makes the graph whose weights are quantized: dimensions get sizes, float32 becomes half, and parts of
// weights are folded.
func (l *planner) open() (err error) {
	o := l.opts.Discover
	l.whole, l.Half = l.input, nil
	if len(l.opts.FixDims) > 0 {
		if l.whole, err = fixdim.Fix(l.input, l.opts.FixDims); err != nil {
			return err
		}
	}
	if h := l.opts.Half; h != nil {
		if l.Half, err = half.New(l.whole, *h, joined(l.found.single, l.found.beyond)); err != nil {
			return err
		}
		l.whole = l.Half.Graph
	}
	parts := fold.Find(l.whole, o.Static != nil) // static pairs stand behind a Reshape, so fold Reshapes too
	if err := checkNames(l.whole, l.given, parts, o); err != nil {
		return err
	}
	return l.store(parts)
}

// store makes the graph in which the given parts of weights are folded.
func (l *planner) store(parts []*fold.Group) (err error) {
	if l.parts, l.graph = parts, l.whole; len(parts) > 0 {
		if l.graph, err = fold.Fold(l.whole, parts); err != nil {
			return err
		}
	}
	return l.observe()
}

// observe sets the graph in which layers are searched.
func (l *planner) observe() (err error) {
	l.opts.Discover.Observed = l.graph
	if l.opts.Calibration != nil {
		l.opts.Discover.Observed, err = l.graph.Inlined()
	}
	return err
}

// quantized returns the groups of which a part is quantized. Groups and weights may be very many.
func (p *Plan) quantized(groups []*fold.Group) (list []*fold.Group) {
	if len(groups) == 0 {
		return nil
	}
	wholes := map[*graph.Value]bool{} // of quantized parts
	for _, w := range p.Weights {
		if from := w.Value.From(); from != nil {
			wholes[from[0]] = true
		}
	}
	for _, g := range groups {
		if slices.ContainsFunc(g.Wholes, func(whole *graph.Value) bool { return wholes[whole] }) {
			list = append(list, g)
		}
	}
	return list
}

// structure returns the exceptions that follow from a plan before any weight is read.
func (p *Plan) structure() (discover.Exceptions, error) {
	found, err := p.smallerAsInt8()
	if err != nil || len(found) > 0 {
		return found, err
	}
	return p.uncalibrated().And(p.unrunnable()).And(p.useless()), nil
}

// inFloat32 finds weights that become float16 and MatMulNBits for ONNX Runtime. With accuracy_level 4, the
// fast one, ONNX Runtime computes right at all levels of optimization only if scales are float32
// constants. Casts around such a product take no more time: ONNX Runtime would insert them itself.
func (p *Plan) inFloat32() map[string]string {
	found := map[string]string{}
	if p.Half == nil || p.Half.To != dtype.Float16 || p.opts.Discover.Target.Target != spec.ORT || p.opts.Discover.AccuracyLevel != spec.AccuracyDefault {
		return found
	}
	for _, w := range p.Weights {
		if w.Form.DType != dtype.Float16 || w.Choice.Style != spec.NBits || !w.Choice.NBits.Product || w.Choice.NBits.Bnb4 {
			continue
		}
		for _, v := range append(w.Value.From(), w.Value) {
			if p.found.single[v.Path] == "" {
				found[v.Path] = "becomes MatMulNBits, of which ONNX Runtime computes zeros with float16 scales and fewer optimizations"
			}
		}
	}
	return found
}

// uncalibrated returns exceptions for weights that calibration should have found codes for but did
// not.
func (p *Plan) uncalibrated() discover.Exceptions {
	found := discover.Exceptions{}
	for i, w := range p.Weights {
		if w.Layers != nil && p.found.codes != nil && p.weights[i].Found == nil {
			found[w.Value.Path] = discover.Exception{MSE: p.found.codes.lacking(w.Value.Path)}
		}
	}
	return found
}

// Settled reads all values that become half. It returns the plan in which values beyond the range
// of half stay float32.
func (p *Plan) Settled(ctx context.Context) (*Plan, error) {
	for {
		more, err := p.readHalves(ctx)
		if err != nil || more.none() {
			return p, err
		}
		if p, err = p.again(more); err != nil {
			return nil, err
		}
	}
}

// readHalves reads the contents that become half.
func (p *Plan) readHalves(ctx context.Context) (found findings, err error) {
	if p.Half == nil {
		return found, nil
	}
	for _, v := range p.graph.Values {
		if v.Tensor == nil || !p.Half.Rounds(v.Path) {
			continue
		}
		if err := work.Stopped(ctx); err != nil {
			return found, err
		}
		content, err := p.graph.File.Payload(v.Tensor)
		if err != nil {
			return found, err
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(content, 0, content.Size())); err != nil {
			return found, fmt.Errorf("tensor %s: %w", msg.Quote(v.Path), err)
		}
	}
	return findings{beyond: p.Half.Beyond()}, nil
}
