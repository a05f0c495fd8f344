package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/int4"
	"onnxquant/internal/commit"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/internal/write"
	"onnxquant/onnxq/spec"
)

// calibrated are the codes that calibration data have led to. Its methods do nothing if it is nil.
type calibrated struct {
	*run
	owner  bool              // the file of the run is beside its output
	codes  map[string]codes  // by path of the weight
	better map[string]string // weights that get algorithm mse instead, with the reasons
}

// run is a calibration that conversions of one model share: codes depend on the weights and their
// format alone, not on what becomes of the rest.
type run struct {
	result *layerfit.Result
	unlock func()
	users  int
	keep   bool // what was found
}

// codes are those of a weight.
type codes struct {
	*quantize.Found
	format spec.Format
	of     *quantize.Weight
}

// fit reports whether a weight has such codes: the type of its elements, and of its scales, may be
// another one.
func (c codes) fit(f spec.Format, w *quantize.Weight) bool {
	if c.Found == nil || c.format != f || c.of.Outer != w.Outer || c.of.K != w.K || c.of.Inner != w.Inner || c.of.Block != w.Block {
		return false
	}
	own, integers := c.of.Codec.(int4.Codec)
	other, same := w.Codec.(int4.Codec)
	return integers == same && own.Bits == other.Bits && own.Signed == other.Signed && own.ZeroPoint == other.ZeroPoint
}

// close ends a conversion. The last one removes the codes, unless that beside whose output they
// are has failed.
func (c *calibrated) close(failed bool) {
	c.keep = c.keep || c.owner && failed
	if c.users--; c.users == 0 {
		c.result.Close(c.keep)
		c.unlock()
	}
}

func (c *calibrated) errors() *layerfit.Errors {
	if c == nil {
		return nil
	}
	return &c.result.Error
}

// apply plans again with exceptions, and gives the weights the codes that were found for them. far
// is as in planFrom.
func (c *calibrated) apply(p *Plan, found discover.Exceptions, far map[string]string) (*Plan, error) {
	if c == nil {
		return p.again(found, far)
	}
	found.MSE = map[*graph.Value]string{}
	for i, w := range p.Weights {
		path := w.Value.Path
		if w.Layers != nil && c.better[path] == "" && !c.codes[path].fit(w.Choice.Format, p.weights[i]) {
			c.better[path] = "it is calibrated in float32, where its codes are of another kind"
		}
		if why := c.better[path]; why != "" {
			found.MSE[w.Value] = why
		}
	}
	made, err := p.again(found, far)
	if err != nil {
		return nil, err
	}
	for i, w := range made.Weights {
		if w.Layers != nil {
			made.weights[i].Found = c.codes[w.Value.Path].Found
		}
	}
	return made, nil
}

// withTensorScales returns the plan with scales of 8 bits as calibration needs them: multiples of a
// number that follows from the whole weight. Weights whose scales are too different get others.
func (p *Plan) withTensorScales(ctx context.Context, found discover.Exceptions) (*Plan, error) {
	var which []int
	var weights []*quantize.Weight
	for i, w := range p.Weights {
		if w.Layers != nil && p.weights[i].ScaledScales() {
			which, weights = append(which, i), append(weights, p.weights[i])
		}
	}
	if len(which) == 0 {
		return p, nil
	}
	workers, limit := p.workers()
	run := quantize.NewRun(weights, limit)
	if err := run.FindTensorScales(ctx, workers, func(int64) {}); err != nil {
		return nil, err
	}
	replaced := false
	for j, i := range which {
		if run.NeedsFloat16Scales(j) {
			found.Scales[p.Weights[i].Value], replaced = float16Scales, true
		}
		p.weights[i].Codec = run.Codec(j)
	}
	if !replaced {
		return p, nil
	}
	other, err := p.again(found, nil)
	if err != nil {
		return nil, err
	}
	return other.withTensorScales(ctx, found)
}

// calibrate finds the codes of weights by the inputs that their layers get, in float32 whatever
// becomes of what is not quantized, unless one of the runs, by their keys, has found them. It adds to
// found the scales that turn out to be unfit. Temporary files are in the folder of the output. It returns
// nil if no weight is calibrated.
func (p *Plan) calibrate(ctx context.Context, path string, found discover.Exceptions, runs map[string]*run) (_ *calibrated, err error) {
	if !p.calibrates() {
		return nil, nil
	}
	if p.Half != nil {
		found = noExceptions() // they are of another graph
		if p, err = p.inFloat(); err != nil {
			return nil, err
		}
	}
	if p, err = p.withTensorScales(ctx, found); err != nil {
		return nil, err
	}
	which, layers := p.layers()
	o := p.calibration()
	if o.Key, err = p.key(ctx, layers, o); err != nil {
		return nil, err
	}
	r := runs[o.Key]
	c := &calibrated{run: r, owner: r == nil || r.users == 0, codes: map[string]codes{}, better: map[string]string{}}
	if c.owner {
		if c.run, err = p.findCodes(ctx, path, which, layers, o); err != nil {
			return nil, err
		}
		runs[o.Key] = c.run
	}
	c.users++
	for j, i := range which {
		at := p.Weights[i].Value.Path
		if note := c.result.Notes[j]; note != "" {
			c.better[at] = note
		}
		c.codes[at] = codes{c.result.Found[j], p.Weights[i].Choice.Format, p.weights[i]}
	}
	return c, nil
}

// findCodes calibrates. What it finds is kept in a file beside the output, for Options.Resume, and the
// models that it runs are in a folder there; both are locked.
func (p *Plan) findCodes(ctx context.Context, path string, which []int, layers []layerfit.Layer, o layerfit.Options) (_ *run, err error) {
	unlock, err := p.begins(ctx, path, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	remove, err := p.writesInterim(&o, which)
	if err != nil {
		return nil, err
	}
	defer remove()
	o.Begins = func() {
		p.notify(fmt.Sprintf("nothing to resume: what calibration has left beside %s, if anything, is of another model, other data or flags; it begins anew", filepath.Base(path)))
	}
	for _, out := range p.graph.File.Proto.GetGraph().GetOutput() {
		o.Outputs = append(o.Outputs, out.GetName())
	}
	r, err := layerfit.Run(ctx, layers, p.opts.Calibration, o)
	if err != nil {
		return nil, err
	}
	return &run{result: r, unlock: unlock}, nil
}

// notify tells what happens while the conversion runs.
func (p *Plan) notify(text string) {
	if p.opts.Notify != nil {
		p.opts.Notify(text)
	}
}

// begins locks the files of a calibration that lie beside the output, and names them.
func (p *Plan) begins(ctx context.Context, path string, o *layerfit.Options) (unlock func(), err error) {
	o.State, o.Resume = path+".~calib", p.opts.Resume
	return commit.Lock(ctx, o.State, func() {
		p.notify(fmt.Sprintf("another process calibrates for %s; it is waited for", filepath.Base(path)))
	})
}

// writesInterim lets a calibration write parts of the model into a folder beside the output, which
// remove removes.
func (p *Plan) writesInterim(o *layerfit.Options, which []int) (remove func() error, err error) {
	folder := o.State + ".models"
	if err := os.RemoveAll(folder); err != nil { // of a process that died
		return nil, err
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		return nil, err
	}
	o.Write = func(ctx context.Context, name string, found []*quantize.Found, values []string) (string, error) {
		to := filepath.Join(folder, name+".onnx")
		return to, p.interim(ctx, to, which, found, values)
	}
	return func() error { return os.RemoveAll(folder) }, nil
}

// calibration returns the options of a calibration that do not depend on files.
func (p *Plan) calibration() layerfit.Options {
	best := p.calibratedBy(spec.Best) > 0
	clip := !best && p.calibratedBy(spec.GPTQ) == 0 && p.calibratedBy(spec.AWQ) > 0
	return layerfit.Options{Best: best, Clip: clip, Threads: p.opts.Threads, Memory: p.opts.Memory, Progress: p.opts.Calibrating}
}

// calibrates reports whether the data of calibration are needed.
func (p *Plan) calibrates() bool {
	return p.opts.Calibration != nil && slices.ContainsFunc(p.Weights, func(w rewrite.Weight) bool { return w.Layers != nil })
}

// calibratedBy counts the weights that are to be calibrated by an algorithm.
func (p *Plan) calibratedBy(a spec.Algorithm) (n int) {
	for _, w := range p.Weights {
		if w.Layers != nil && w.Choice.Algorithm == a {
			n++
		}
	}
	return n
}

// CalibrationCost tells what calibration will take. It returns nil if no weight is calibrated.
func (p *Plan) CalibrationCost() *layerfit.Cost {
	if !p.calibrates() {
		return nil
	}
	_, layers := p.layers()
	cost := layerfit.Estimate(layers, p.calibration())
	if o := p.calibration(); o.Clip {
		_, _, layers := p.balance()
		cost.Add(layerfit.EstimateChannels(layers, o))
	}
	return &cost
}

// layers returns the layers that are calibrated, in the order of the graph, and which weights of
// the plan they have.
func (p *Plan) layers() (which []int, layers []layerfit.Layer) {
	for i, w := range p.Weights {
		if w.Layers != nil {
			which = append(which, i)
		}
	}
	slices.SortStableFunc(which, func(a, b int) int { return slices.Compare(p.order(a), p.order(b)) })
	for _, i := range which {
		l := layerfit.Layer{Weight: p.weights[i]}
		for _, product := range p.Weights[i].Layers {
			l.Products = append(l.Products, layerfit.Product{
				Operation: product.Operation, Input: p.seen(product, product.Input), Initial: p.seen(product, product.Initial),
				Output: p.seen(product, product.Output), Beside: p.seen(product, product.Beside),
			})
		}
		layers = append(layers, l)
	}
	return which, layers
}

// seen names a value as the node of a layer sees it; "" for nil.
func (p *Plan) seen(l discover.Layer, v *graph.Value) string {
	if v == nil {
		return ""
	}
	return p.opts.Discover.Observed.Seen(l.Node, v)
}

// order is the position of the first node that multiplies by a weight.
func (p *Plan) order(weight int) (first []int) {
	for i, product := range p.Weights[weight].Layers {
		if at := p.opts.Discover.Observed.Position(product.Node); i == 0 || slices.Compare(at, first) < 0 {
			first = at
		}
	}
	return first
}

// interim writes the part of the float model that computes some values. Weights that have codes
// are replaced by what these stand for.
func (p *Plan) interim(ctx context.Context, path string, which []int, found []*quantize.Found, values []string) error {
	x := p.opts.Discover.Observed
	file := x.File
	view, err := file.View(x.Only(values), func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		for j, f := range found {
			if w := p.weights[which[j]]; f != nil && p.Weights[which[j]].Value.Tensor == t {
				return modelfile.Computed(w.Decoded(f), w.SourceBytes()), nil
			}
		}
		return file.Payload(t)
	})
	if err != nil {
		return err
	}
	return WriteFloat(ctx, view, path, p.opts.Threads, p.opts.Memory)
}

// WriteFloat writes a model as it is.
func WriteFloat(ctx context.Context, m *modelfile.Model, path string, threads int, memory int64) error {
	x, err := graph.New(m)
	if err != nil {
		return err
	}
	plain, err := replan(x, Options{
		Discover: discover.Options{Format: spec.Float, Target: target.Of(spec.Portable), Activations: spec.WeightsOnly, Memory: memory},
		External: write.External{When: spec.ExternalAuto}, Threads: threads, Memory: memory, NoVerify: true,
	}, discover.Exceptions{})
	if err != nil {
		return err
	}
	_, err = plain.Convert(ctx, path)
	return err
}
