// Package convert runs the stages of a conversion, one after the other:
//
//	simplify → fold → discover → form and rewrite → layout → quantize into sinks → verify
//
// [NewPlan] runs the first four. They depend only on the structure of the model and the options: no
// weight is read. [All] runs the others, for one plan or for several plans of one model. Each stage
// takes a finished value from the previous stage and does not change it. The graph is only read.
package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/balance"
	"onnxquant/internal/commit"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/kvcache"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/msg"
	"onnxquant/internal/provenance"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/simplify"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// ErrCoverage is wrapped by errors that less is quantized than Options.MinCoverage.
var ErrCoverage = errors.New("too little would be quantized")

// ErrMemory is wrapped by the error that calibration takes more memory than it may.
var ErrMemory = errors.New("too little memory")

// Options say how a model is converted. They are resolved: defaults are filled in.
type Options struct {
	Discover    discover.Options
	Fold        bool                 // simplify the model first
	Simplified  *simplify.Model      // the model as package simplify has made it already; or nil
	Codes       *StaticCodes         // codes that data found for static activations; or nil
	Balance     map[string][]int8    // exponents of factors of activations, see balance.Apply
	Balanced    *graph.Graph         // the model with these factors, if it is made already; or nil
	FixDims     map[string]int64     // sizes of dimensions, see fixdim.Fix
	StripNotes  bool                 // leave out the notes of nodes, see graph.Copy.StripNotes
	Half        *half.Options        // nil: what is not quantized keeps its type
	Caches      map[string][]float32 // scales of key-value caches that become int8, see kvcache.Apply
	External    write.External
	Threads     int     // 0: the number of CPUs
	Memory      int64   // budget for buffers, in bytes
	Together    int64   // budget for layers that are calibrated together, in bytes
	Alone       int64   // what one layer may take, in bytes
	MinCoverage float64 // least share of the bytes of float tensors to quantize, 0 to 1
	NoVerify    bool
	Try         func(ctx context.Context, path string) error // of the finished output; or nil
	FindLevels  FindLevels                                   // or nil
	Provenance  *spec.Step                                   // to record in the output; may be nil
	Progress    func(done, total int64)                      // may be nil

	Calibration layerfit.Activations    // runs the float model for the inputs of layers; or nil
	Resume      bool                    // continue an interrupted calibration
	Shared      string                  // folder with the codes that FindShare found, or ""
	Calibrating func(done, total int64) // progress of the calibration in nanoseconds; may be nil
	Tune        Tuning
	Notify      func(text string) // messages about the calibration; may be nil
}

// Plan says what a conversion will do.
type Plan struct {
	Decisions []*discover.Decision // of every float tensor
	Weights   []rewrite.Weight     // the quantized ones, in the same order
	Output    *write.Output        // how the output is laid out
	Warnings  []string

	planner // that made this plan

	recorded int64          // bytes of provenance; decisions do not depend on them
	losses   []rewrite.Loss // operators that the target, or ONNX Runtime, does not run at the opset of the output
	except   discover.Exceptions
	static   *actpairs.Plan     // static quantization of activations, or nil
	weights  []*quantize.Weight // the same weights, for package quantize
	contents []contents         // by weight: indices of its contents in Output
}

// contents are indices of contents, -1 for none.
type contents = quantize.Parts[int]

// NewPlan decides for every float tensor whether and how it is quantized, and lays out the output.
func NewPlan(x *graph.Graph, opts Options) (*Plan, error) {
	if opts.Provenance != nil {
		step, err := provenance.WithInput(*opts.Provenance, x.File)
		if err != nil {
			return nil, err
		}
		opts.Provenance = step
	}
	l := planner{input: x, opts: opts}
	if err := l.simplify(); err != nil {
		return nil, err
	}
	if err := l.balance(); err != nil {
		return nil, err
	}
	return l.plan()
}

// HasExperts reports whether the tensor of decision i has matrices of experts.
func (p *Plan) HasExperts(i int) bool { return p.Decisions[i].HasExperts(p.graph) }

// codesOf counts the weights that are quantized in the same way.
func codesOf(weights []rewrite.Weight) (all []spec.StepCodes) {
	count := map[spec.StepCodes]int{}
	for _, w := range weights {
		c := w.Choice
		count[spec.StepCodes{Format: c.Format, Block: c.Block, Algorithm: c.Algorithm, Calibrated: w.Layers != nil || w.Choice.Static != nil && w.Choice.Static.Fixed()}]++
	}
	for c, n := range count {
		c.Weights = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b spec.StepCodes) int {
		return cmp.Or(cmp.Compare(b.Weights, a.Weights), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return all
}

// draft makes a plan with exceptions.
func (l planner) draft(except discover.Exceptions) (*Plan, error) {
	x := l.graph
	p := &Plan{planner: l, except: except}
	o, err := l.besideCaches()
	if err != nil {
		return nil, err
	}
	if p.Decisions, p.static, err = discover.All(x, o, except); err != nil {
		return nil, err
	}
	l.opts.Codes.give(p, p.Decisions)
	m, err := rewrite.Quantize(x, p.Decisions, p.static)
	if err != nil {
		return nil, err
	}
	if p.recorded, err = kvcache.Apply(m.Copy, l.opts.Caches); err != nil {
		return nil, err
	}
	if l.opts.StripNotes {
		m.Copy.StripNotes()
	}
	p.Weights, p.losses = m.Weights, rewrite.Losses(m.Copy, ranBy(o.Target))
	if l.opts.Provenance != nil {
		step := *l.opts.Provenance
		step.Folded, step.Balanced = l.folded.Total(), len(l.opts.Balance)
		step.Codes = codesOf(p.Weights)
		if slices.ContainsFunc(step.Codes, func(c spec.StepCodes) bool { return c.Calibrated }) {
			if step.Data = l.found.codes.hash(); l.opts.Codes != nil {
				step.Data, step.Biases = l.opts.Codes.data, l.opts.Codes.Biases
			}
		}
		p.recorded += provenance.Add(m.Copy.Proto, step)
	}
	p.recorded += balance.Record(m.Copy.Proto, l.opts.Balance)
	if p.Output, err = write.Collect(m.Copy); err != nil {
		return nil, err
	}
	if err := p.Output.CheckNodes(l.input.File.Proto); err != nil {
		return nil, err
	}
	if l.opts.Provenance != nil {
		p.recorded += p.Output.Record(!l.opts.Provenance.Brief)
	} else {
		p.Output.Forget()
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
		if w.Layers != nil {
			weight.Found = l.found.codes.of(w, weight)
		} else if w.Given != nil {
			given(w, weight)
		} else {
			asStored(w, weight, src)
		}
		if found := l.opts.Codes.of(w.Decision); found != nil {
			weight.Found = found
		}
		p.weights = append(p.weights, weight)
		p.contents = append(p.contents, quantize.Map(w.Tensors, write.Index))
		if n := p.contents[len(p.contents)-1]; n.Scales < 0 {
			return nil, fmt.Errorf("%w: tensor %s is in a graph that opset %d does not have", graph.ErrModel, msg.Quote(w.Value.Path), p.Output.Opset())
		}
	}
	external := l.opts.External
	external.Shard = cmp.Or(external.Shard, o.Target.DataLimit)
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

// besideCaches returns the options of discover. Caches that become int8 have no codes as activations.
func (l planner) besideCaches() (o discover.Options, err error) {
	if o = l.opts.Discover; o.Static == nil || len(l.opts.Caches) == 0 {
		return o, nil
	}
	values, err := kvcache.Values(l.graph.File.Proto)
	static := *o.Static
	static.Float = maps.Clone(static.Float)
	for _, name := range values {
		static.Float[name] = true
	}
	o.Static = &static
	return o, err
}

// vanishedHalves names the tensors written in half of which a part became 0.
func (p *Plan) vanishedHalves() (all []string) {
	if p.Half == nil {
		return nil
	}
	for _, d := range p.Decisions {
		n, _ := dtype.Elements(d.Shape)
		share := float64(p.Half.Vanished(d.Value.Path)) / float64(max(n, 1))
		if !d.Quantize && share > fewVanished {
			all = append(all, p.tooSmallForHalf(d, share))
		}
	}
	return all
}

// tooSmallForHalf warns of the share of a tensor's elements that half makes 0.
func (p *Plan) tooSmallForHalf(d *discover.Decision, share float64) string {
	return fmt.Sprintf("%s: %.3g%% of its elements became 0: they are too small for %s", msg.Quote(d.Value.Path), 100*min(share, 1), strings.ToLower(p.Half.To.String()))
}

// Recorded is the size of the record in the output, in bytes.
func (p *Plan) Recorded() int64 { return p.recorded }

// Graph returns the graph of the model.
func (p *Plan) Graph() *graph.Graph { return p.graph }

// Folded says what package simplify did to the model.
func (p *Plan) Folded() simplify.Counts { return p.folded }

// InBytes is the size of the model file and its external data.
func (p *Plan) InBytes() int64 { return p.graph.File.Size() }

// CheckPath checks, without writing, whether the output may get this file name. The output must not
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

// workers returns the number of workers and the number of elements that each may hold.
func (p *Plan) workers() (workers int, limit int64) {
	workers, limit = work.Divide(p.opts.Threads, p.opts.Memory, quantize.ElementBytes)
	if p.TileLimit > 0 {
		limit = p.TileLimit
	}
	return workers, limit
}

// Caches is the number of key-value caches that become int8.
func (p *Plan) Caches() int { return len(p.opts.Caches) }

// Static returns which activations are quantized, or nil if activations are not static.
func (p *Plan) Static() *actpairs.Plan { return p.static }
