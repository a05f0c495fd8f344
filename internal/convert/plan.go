// Package convert runs the stages of a conversion, one after the other:
//
//	fold → discover → form and rewrite → layout → quantize into sinks → verify
//
// [NewPlan] runs the first four, which depend only on the model's structure and the
// options: no weight is read. [All] runs the others, for one plan or for several of one model.
// Each stage gets a finished value from the one before and does not change it. The graph is only
// read.
package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/commit"
	"onnxquant/internal/discover"
	"onnxquant/internal/fold"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/msg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/static"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/spec"
)

// ErrCoverage is wrapped by the error that less is quantized than Options.MinCoverage.
var ErrCoverage = errors.New("too little would be quantized")

// Options say how a model is converted. They are resolved: defaults are filled in.
type Options struct {
	Discover    discover.Options
	Half        *half.Options // nil: what is not quantized keeps its type
	External    write.External
	Threads     int     // 0: the number of CPUs
	Memory      int64   // budget for buffers, in bytes
	MinCoverage float64 // least share of float bytes to quantize, 0 to 1
	NoVerify    bool
	Provenance  *provenance.Step        // to record in the output; may be nil
	Progress    func(done, total int64) // may be nil

	Calibration layerfit.Activations    // what layers get as inputs; or nil
	Resume      bool                    // an interrupted calibration goes on
	Calibrating func(done, total int64) // told while codes are found by it, in nanoseconds; may be nil
	Notify      func(text string)       // told what happens before; may be nil
}

// Plan says what a conversion will do.
type Plan struct {
	Decisions []*discover.Decision // of every float tensor
	Weights   []rewrite.Weight     // the quantized ones, in the same order
	Output    *write.Output        // how the output is laid out
	Warnings  []string

	// TileLimit is the number of elements that a worker holds at once; 0: as the memory
	// allows.
	TileLimit int64

	Half *half.Model // the model whose weights are quantized, if float32 becomes half; or nil

	input    *graph.Graph   // as it was opened
	graph    *graph.Graph   // the one whose weights are quantized
	recorded int64          // bytes of provenance, which decide nothing
	losses   []rewrite.Loss // what the target, or ONNX Runtime, does not run because of the opset
	opts     Options
	except   discover.Exceptions
	static   *static.Plan       // of activations; nil: they are not quantized, or at run time
	weights  []*quantize.Weight // the same weights, for package quantize
	parts    []parts            // by weight: indices of its contents in Output
}

// parts are indices of contents, -1 for none.
type parts = quantize.Parts[int]

// NewPlan decides what becomes of every float tensor and lays out the output.
func NewPlan(x *graph.Graph, opts Options) (*Plan, error) {
	if opts.Provenance != nil {
		step, err := opts.Provenance.Of(x.File)
		if err != nil {
			return nil, err
		}
		opts.Provenance = step
	}
	return planFrom(x, opts, nil)
}

// planFrom makes a plan. far has the values that half cannot represent, see half.New.
func planFrom(x *graph.Graph, opts Options, far map[string]string) (*Plan, error) {
	if opts.Half == nil {
		return planFolded(x, opts)
	}
	if r := opts.Half.Ranges; r != nil {
		if err := static.CheckRanges(x, r); err != nil {
			return nil, err
		}
	}
	m, err := half.New(x, *opts.Half, far)
	if err != nil {
		return nil, err
	}
	p, err := planFolded(m.Graph, opts)
	if err != nil {
		return nil, err
	}
	p.input, p.Half = x, m
	p.warnOfHalf(far)
	return p, nil
}

// planFolded makes a plan in which parts of weights are stored, if they are then quantized.
func planFolded(x *graph.Graph, opts Options) (*Plan, error) {
	groups := fold.Find(x, opts.Discover.Static != nil) // pairs are around what a Reshape makes
	if err := checkNames(x, groups, opts.Discover); err != nil {
		return nil, err
	}
	if o := opts.Discover.Static; o != nil {
		if err := static.CheckRanges(x, o.Ranges); err != nil {
			return nil, err
		}
	}
	for len(groups) > 0 {
		folded, err := fold.Fold(x, groups)
		if err != nil {
			return nil, err
		}
		p, err := replan(folded, opts, discover.Exceptions{})
		if err != nil {
			return nil, err
		}
		all := len(groups)
		if groups = p.quantized(groups); len(groups) == all {
			p.input = x
			return p, nil
		}
	}
	return replan(x, opts, discover.Exceptions{})
}

// quantized returns the groups of which a part is quantized. There may be very many groups, and weights.
func (p *Plan) quantized(groups []*fold.Group) []*fold.Group {
	wholes := map[*graph.Value]bool{} // of quantized parts
	for _, w := range p.Weights {
		if from := w.Value.From(); from != nil {
			wholes[from[0]] = true
		}
	}
	return slices.DeleteFunc(groups, func(g *fold.Group) bool {
		return !slices.ContainsFunc(g.Wholes, func(whole *graph.Value) bool { return wholes[whole] })
	})
}

// replan makes a plan with the exceptions that values demand. It adds the weights whose
// quantization would make the output larger than the input, or would raise it to an opset
// that the target does not run.
func replan(x *graph.Graph, opts Options, values discover.Exceptions) (*Plan, error) {
	except := discover.Exceptions{
		KeepFloat: map[*graph.Value]string{}, ForceDQ: map[*graph.Value]string{}, SmallerAsInt8: map[*graph.Value]bool{},
		Huge: values.Huge, MSE: values.MSE, Scales: values.Scales,
	}
	maps.Copy(except.KeepFloat, values.KeepFloat)
	opts.Discover.Observed = x
	if opts.Calibration != nil {
		var err error
		if opts.Discover.Observed, err = x.Inlined(); err != nil {
			return nil, err
		}
	}
	for {
		p, err := planWith(x, opts, except)
		if err != nil {
			return nil, err
		}
		smaller, err := p.smallerAsInt8()
		if err != nil {
			return nil, err
		}
		for _, w := range smaller {
			except.SmallerAsInt8[w.Value] = true
		}
		if len(smaller) > 0 {
			continue
		}
		useless, unrunnable := p.useless(), p.unrunnable()
		if len(useless)+len(unrunnable) == 0 {
			return p, p.checkCoverage()
		}
		maps.Copy(except.KeepFloat, unrunnable)
		for _, w := range useless {
			if w.Choice.Style == spec.DQ {
				except.KeepFloat[w.Value] = reasonUseless
			} else {
				except.ForceDQ[w.Value] = reasonUseless
			}
		}
	}
}

// planWith makes a plan with exceptions.
func planWith(x *graph.Graph, opts Options, except discover.Exceptions) (*Plan, error) {
	o := opts.Discover
	p := &Plan{input: x, graph: x, opts: opts, except: except}
	var err error
	if p.Decisions, p.static, err = discover.All(x, o, except); err != nil {
		return nil, err
	}
	m, err := rewrite.Quantize(x, p.Decisions, p.static)
	if err != nil {
		return nil, err
	}
	p.Weights, p.losses = m.Weights, rewrite.Losses(m.Copy, ranBy(o.Target))
	if opts.Provenance != nil {
		p.recorded = provenance.Add(m.Copy.Proto, *opts.Provenance)
	}
	if p.Output, err = write.Collect(m.Copy); err != nil {
		return nil, err
	}
	for _, w := range p.Weights {
		src, err := x.File.Payload(w.Value.Tensor)
		if err != nil {
			return nil, err
		}
		weight := w.Form.Quantize(w.Value.Path, src, w.Importance)
		if e := src.Made(); e != nil && e.Round != nil {
			weight.Rounded = &quantize.Rounded{From: e.From, Round: e.Round}
		}
		p.weights = append(p.weights, weight)
		p.parts = append(p.parts, quantize.Map(w.Tensors, write.Index))
		if n := p.parts[len(p.parts)-1]; n.Scales < 0 {
			return nil, fmt.Errorf("%w: tensor %s is in a graph that opset %d does not have", graph.ErrModel, msg.Quote(w.Value.Path), p.Output.Opset())
		}
	}
	external := opts.External
	external.Shard = cmp.Or(external.Shard, opts.Discover.Target.DataLimit)
	if err := p.Output.Place(external); err != nil {
		return nil, err
	}
	p.warnings()
	known, wanted := 0, 0
	for _, w := range p.Weights {
		if w.Form.Encoded() {
			wanted++
		}
		if w.Importance != nil {
			known++
		}
	}
	warning, err := o.Importance.Covers(known, wanted)
	if warning != "" {
		p.warn("%s", warning)
	}
	return p, err
}

// vanishedHalves names what was written in half and of which a part became 0.
func (p *Plan) vanishedHalves() (all []string) {
	if p.Half == nil {
		return nil
	}
	for _, d := range p.Decisions {
		n, _ := dtype.Elements(d.Shape)
		share := float64(p.Half.Vanished(d.Value.Path)) / float64(max(n, 1))
		if !d.Quantize && share > fewVanished {
			all = append(all, fmt.Sprintf("%s: %.3g%% of its elements became 0: they are too small for %s", msg.Quote(d.Value.Path), 100*min(share, 1), strings.ToLower(p.Half.To.String())))
		}
	}
	return all
}

// Graph returns the graph of the model.
func (p *Plan) Graph() *graph.Graph { return p.graph }

// InBytes is the size of the model file and its external data.
func (p *Plan) InBytes() int64 { return p.graph.File.Size() }

// CheckPath checks, without writing, whether the output may get this file name: it must not
// replace the input, a folder, or external data of another model.
func (p *Plan) CheckPath(path string) error {
	named, err := p.At(path)
	if err != nil {
		return err
	}
	return commit.Check(path, p.graph.File, named.Output.Data())
}

// At returns the plan for an output with this file name.
func (p *Plan) At(path string) (*Plan, error) {
	out, err := p.Output.At(path)
	named := *p
	named.Output = out
	return &named, err
}

// Quantization returns the weights cut into tiles, and the number of workers.
func (p *Plan) Quantization() (run *quantize.Run, workers int) {
	workers, limit := p.workers()
	return quantize.NewRun(p.weights, limit), workers
}

// workers returns the number of workers, and of the elements that each may hold.
func (p *Plan) workers() (workers int, limit int64) {
	workers, limit = work.Divide(p.opts.Threads, p.opts.Memory, quantize.ElementBytes)
	if p.TileLimit > 0 {
		limit = p.TileLimit
	}
	return workers, limit
}

// again plans again with exceptions that the weights' values demand. far is as in planFrom.
func (p *Plan) again(found discover.Exceptions, far map[string]string) (*Plan, error) {
	made, err := replan(p.graph, p.opts, found)
	if err == nil {
		made.input, made.Half, made.TileLimit = p.input, p.Half, p.TileLimit
		made.warnOfHalf(far)
	}
	return made, err
}

// Settled returns the plan that follows when all that becomes half is read: what is beyond its range stays
// float32.
func (p *Plan) Settled(ctx context.Context) (*Plan, error) {
	far := map[string]string{}
	for p.Half != nil {
		if err := p.readHalves(ctx); err != nil {
			return nil, err
		}
		beyond := p.Half.Beyond()
		if len(beyond) == 0 {
			break
		}
		maps.Copy(far, beyond)
		var err error
		if p, err = planFrom(p.input, p.opts, far); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// readHalves reads the contents that become half.
func (p *Plan) readHalves(ctx context.Context) error {
	for _, v := range p.graph.Values {
		if v.Tensor == nil || !p.Half.Rounds(v.Path) {
			continue
		}
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		content, err := p.graph.File.Payload(v.Tensor)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(content, 0, content.Size())); err != nil {
			return fmt.Errorf("tensor %s: %w", msg.Quote(v.Path), err)
		}
	}
	return nil
}
