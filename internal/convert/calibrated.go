package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// calibrated has the codes that calibration found for one conversion. Its methods do nothing if it
// is nil.
type calibrated struct {
	*run
	data  string            // hash of the data
	owner bool              // the file of the run is beside this conversion's output
	codes map[string]codes  // by path of the weight
	notes map[string]string // why weights have no codes, by path

	fallen []FallbackExperts
}

// run is a calibration that several conversions of one model share. Codes depend on the weights and
// their format, not on the rest of the options.
type run struct {
	result *layerfit.Result
	tuned  *Tuned // nil: not asked for
	unlock func()
	users  int  // conversions that have not ended
	keep   bool // keep the file with the codes
}

// codes are the codes of one weight.
type codes struct {
	*quantize.Found
	format spec.Format
	of     *quantize.Weight // as it was calibrated
}

// fit reports whether the codes can be those of w. The types of elements and scales may differ.
func (c codes) fit(f spec.Format, w *quantize.Weight) bool {
	if c.Found == nil || c.format != f || c.of.Outer != w.Outer || c.of.K != w.K || c.of.Inner != w.Inner || c.of.Block != w.Block {
		return false
	}
	own, integers := c.of.Codec.(int4.Codec)
	other, same := w.Codec.(int4.Codec)
	return integers == same && own.Bits == other.Bits && own.Signed == other.Signed && own.ZeroPoint == other.ZeroPoint
}

// close ends a conversion. The last conversion removes the codes. They are kept if the conversion
// beside whose output they are has failed.
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

// FallbackExperts are the experts of a weight that got the codes of mse.
type FallbackExperts struct {
	Weight string
	layerfit.FallbackExperts
}

// experts lists the experts that got the codes of mse, by weight.
func (c *calibrated) experts() (all []FallbackExperts) {
	if c == nil {
		return nil
	}
	return c.fallen
}

// scalesTuned says what tuning scales gained, or returns nil.
func (c *calibrated) scalesTuned() *Tuned {
	if c == nil {
		return nil
	}
	return c.tuned
}

// of returns the codes of a weight, or nil.
func (c *calibrated) of(w rewrite.Weight, as *quantize.Weight) *quantize.Found {
	if c == nil {
		return nil
	}
	path := w.Value.Path
	if found := c.codes[path]; c.notes[path] == "" && found.fit(w.Choice.Format, as) {
		return found.Found
	}
	return nil
}

// lacking says why a weight that was planned to be calibrated has no codes.
func (c *calibrated) lacking(path string) string {
	return cmp.Or(c.notes[path], "its codes from calibration in float32 have another format")
}

// tensorScales finds the steps of 8-bit scales and sets the codecs of these layers. It returns the
// weights whose scales differ too much for 8 bits.
func (p *Plan) tensorScales(ctx context.Context, layers []layer) (found findings, err error) {
	var scaled []*layer
	var weights []*quantize.Weight
	for i := range layers {
		if l := &layers[i]; l.Weight.ScaledScales() {
			scaled, weights = append(scaled, l), append(weights, l.Weight)
		}
	}
	if len(scaled) == 0 {
		return found, nil
	}
	workers, limit := p.workers()
	run := quantize.NewRun(weights, limit)
	if err := run.FindTensorScales(ctx, workers, func(int64) {}); err != nil {
		return found, err
	}
	found.weights = discover.Exceptions{}
	for j, l := range scaled {
		if run.NeedsFloat16Scales(j) {
			found.weights[l.value.Path] = discover.Exception{Scales: float16Scales}
		}
		w := *l.Weight
		w.Codec = run.Codec(j)
		l.Weight = &w
	}
	return found, nil
}

// calibrate finds the codes of weights by the inputs of their layers, in float32. If a run with the
// same key is in runs, calibrate takes its codes. It also returns the scales that do not fit their
// type. Temporary files are in the folder of the output. Without calibrated weights, calibrate does
// nothing.
func (p *Plan) calibrate(ctx context.Context, path string, runs map[string]*run) (all findings, err error) {
	if !p.calibrates() {
		return all, nil
	}
	p, layers, all, err := p.toCalibrate(ctx)
	if err != nil {
		return all, err
	}
	o := p.calibration()
	key, data, err := p.key(ctx, layers, o)
	if err != nil {
		return all, err
	}
	o.Key = key
	same := fmt.Sprint(o.Key, p.opts.Tune.Steps) // tuning changes scales, not codes
	r := runs[same]
	c := &calibrated{run: r, data: data, owner: r == nil || r.users == 0, codes: map[string]codes{}, notes: map[string]string{}}
	if c.owner {
		if c.run, err = p.findCodes(ctx, path, layers, o); err != nil {
			return all, err
		}
		runs[same] = c.run
	}
	c.users++
	for i, l := range layers {
		c.notes[l.value.Path] = c.result.Notes[i]
		c.codes[l.value.Path] = codes{c.result.Found[i], l.format, l.Weight}
		if e := c.result.Experts[i]; !e.None() {
			c.fallen = append(c.fallen, FallbackExperts{l.value.Name, e})
		}
	}
	all.codes = c
	return all, nil
}

// toCalibrate returns the plan in float32, its layers and the scales that do not fit their type.
func (p *Plan) toCalibrate(ctx context.Context) (float *Plan, layers []layer, all findings, err error) {
	if p, err = p.inFloat(); err != nil {
		return nil, nil, all, err
	}
	for {
		layers = p.layers()
		found, err := p.tensorScales(ctx, layers)
		if err != nil || found.none() {
			return p, layers, all, err
		}
		if p, err = p.again(found); err != nil {
			return nil, nil, all, err
		}
		all = all.and(found)
	}
}

// findCodes runs the calibration. It keeps codes in a file beside the output, for Options.Resume.
// The models to run are in a folder there. File and folder are locked.
func (p *Plan) findCodes(ctx context.Context, path string, layers []layer, o layerfit.Options) (_ *run, err error) {
	o.Shared = p.opts.Shared
	unlock, err := p.lockFiles(ctx, path, "", &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	remove, err := p.enableInterim(&o, layers)
	if err != nil {
		return nil, err
	}
	defer remove()
	o.Begins = func() {
		p.notify(fmt.Sprintf("nothing to resume: no calibration of this model with these data and flags was interrupted beside %s; calibration starts from the beginning", filepath.Base(path)))
	}
	r, err := layerfit.Run(ctx, fitted(layers), p.opts.Calibration, o)
	if err != nil {
		return nil, err
	}
	tuned, err := p.tune(ctx, layers, r, o)
	if err != nil {
		return nil, errors.Join(layerfit.Keep(err), r.Close(true))
	}
	return &run{result: r, tuned: tuned, unlock: unlock}, nil
}

// notify calls Options.Notify, if set.
func (p *Plan) notify(text string) {
	if p.opts.Notify != nil {
		p.opts.Notify(text)
	}
}

// lockFiles names the files of a calibration, or of a share of it, beside the output and locks them.
func (p *Plan) lockFiles(ctx context.Context, path, share string, o *layerfit.Options) (unlock func(), err error) {
	o.State, o.Resume = path+".~calib"+share, p.opts.Resume
	return commit.Lock(ctx, o.State, func() {
		p.notify(fmt.Sprintf("another process calibrates for %s; waiting for its end", filepath.Base(path)))
	})
}

// enableInterim lets a calibration write parts of the model into a folder beside the output. The
// caller must call remove to delete the folder.
func (p *Plan) enableInterim(o *layerfit.Options, layers []layer) (remove func() error, err error) {
	folder := o.State + ".models"
	if err := os.RemoveAll(folder); err != nil { // left by a process that died
		return nil, err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	o.Write = func(ctx context.Context, name string, found []*quantize.Found, values []string, from string) (string, error) {
		given, err := p.given(from)
		if err != nil {
			return "", err
		}
		values = slices.DeleteFunc(slices.Clone(values), func(name string) bool {
			return slices.ContainsFunc(given, func(v graph.Given) bool { return v.Name == name })
		})
		if len(values) == 0 {
			return "", nil
		}
		to := filepath.Join(folder, name+".onnx")
		return to, p.interim(ctx, to, layers, found, values, given)
	}
	o.Cut = p.cutter(layers)
	return func() error { return os.RemoveAll(folder) }, nil
}

// given returns the values that are kept in a folder, or none for "".
func (p *Plan) given(folder string) (all []graph.Given, err error) {
	if folder == "" {
		return nil, nil
	}
	kept, err := p.opts.Calibration.Kept(folder)
	for _, k := range kept {
		all = append(all, graph.Given(k))
	}
	return all, err
}

// cutter returns a function that lists the values that cross the cut before the first product of some layers.
func (p *Plan) cutter(layers []layer) func(of []int) ([]string, bool) {
	x := p.opts.Discover.Observed
	return func(of []int) ([]string, bool) {
		first := math.MaxInt
		for _, i := range of {
			for _, n := range layers[i].nodes {
				first = min(first, x.Position(n)[0])
			}
		}
		return x.Crossing(first)
	}
}

// calibration returns the options of a calibration that do not depend on files.
func (p *Plan) calibration() layerfit.Options {
	algorithm := spec.GPTQ
	switch {
	case p.calibratedBy(spec.Best) > 0:
		algorithm = spec.Best
	case p.calibratedBy(spec.GPTQ) == 0 && p.calibratedBy(spec.AWQ) > 0:
		algorithm = spec.AWQ
	}
	o := layerfit.Options{Algorithm: algorithm, Threads: p.opts.Threads, Memory: p.opts.Together, Alone: p.opts.Alone, Progress: p.opts.Calibrating}
	for _, out := range p.graph.File.Proto.GetGraph().GetOutput() {
		o.Outputs = append(o.Outputs, out.GetName())
	}
	return o
}

// calibrates reports whether any weight is calibrated.
func (p *Plan) calibrates() bool {
	return p.opts.Calibration != nil && slices.ContainsFunc(p.Weights, func(w rewrite.Weight) bool { return w.Layers != nil })
}

// calibratedBy counts the weights that an algorithm is to calibrate.
func (p *Plan) calibratedBy(a spec.Algorithm) (n int) {
	for _, w := range p.Weights {
		if w.Layers != nil && w.Choice.Algorithm == a {
			n++
		}
	}
	return n
}

// CalibrationCost estimates what calibration takes, without the runs of the model. It returns nil if no weight is
// calibrated.
func (p *Plan) CalibrationCost() *layerfit.Cost { return p.costWith(nil) }

// MeasuredCost is CalibrationCost with the runs of the model. measure runs the model at path on a sample.
func (p *Plan) MeasuredCost(measure func(path string, values []string) (layerfit.Measured, error)) (*layerfit.Cost, error) {
	path := p.graph.File.Path()
	if path == "" {
		path = p.input.File.Path()
	}
	if !p.calibrates() || path == "" {
		return nil, nil
	}
	layers, o := p.layers(), p.calibration()
	o.Cut = p.cutter(layers)
	var there []string // values of the file; layers in functions and branches have others
	for _, n := range p.input.File.Proto.GetGraph().GetNode() {
		there = append(there, n.GetOutput()...)
	}
	m, err := measure(path, slices.DeleteFunc(layerfit.Observed(fitted(layers), o), func(name string) bool { return !slices.Contains(there, name) }))
	if err != nil {
		return nil, err
	}
	return p.costWith(&m), nil
}

func (p *Plan) costWith(m *layerfit.Measured) *layerfit.Cost {
	if !p.calibrates() {
		return nil
	}
	layers, o := p.layers(), p.calibration()
	o.Cut = p.cutter(layers)
	of := layerfit.Inputs{Activations: p.opts.Calibration, Model: p.InBytes(), Measured: m}
	cost := layerfit.Estimate(fitted(layers), of, o)
	if o.Algorithm == spec.AWQ {
		_, layers := p.balance()
		o.Cut = p.cutter(layers)
		cost.Add(layerfit.EstimateChannels(fitted(layers), of, o))
	}
	return &cost
}

// layer is a calibrated layer with its weight.
type layer struct {
	layerfit.Layer
	value  *graph.Value
	format spec.Format
	nodes  []*onnxpb.NodeProto // of the products
}

// fitted returns layers in the type of package layerfit.
func fitted(layers []layer) []layerfit.Layer {
	list := make([]layerfit.Layer, len(layers))
	for i, l := range layers {
		list[i] = l.Layer
	}
	return list
}

// layers returns the calibrated layers, in the order of the graph.
func (p *Plan) layers() (layers []layer) {
	var which []int // indices of weights
	for i, w := range p.Weights {
		if w.Layers != nil {
			which = append(which, i)
		}
	}
	slices.SortStableFunc(which, func(a, b int) int { return slices.Compare(p.order(a), p.order(b)) })
	for _, i := range which {
		w := p.Weights[i]
		l := layer{Layer: layerfit.Layer{Weight: p.weights[i]}, value: w.Value, format: w.Choice.Format}
		for _, product := range w.Layers {
			l.nodes = append(l.nodes, product.Node)
			l.Products = append(l.Products, layerfit.Product{
				Operation: product.Operation, Input: p.localName(product, product.Input), Second: p.localName(product, product.Second),
				Output: p.localName(product, product.Output), Beside: p.localName(product, product.Beside),
			})
		}
		layers = append(layers, l)
	}
	return layers
}

// localName returns the name of a value in the graph or function of a layer's node; "" for nil.
func (p *Plan) localName(l discover.Layer, v *graph.Value) string {
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

// interim writes the part of the float model that computes some values from those that are given. Weights
// with codes are replaced by their decoded values.
func (p *Plan) interim(ctx context.Context, path string, layers []layer, found []*quantize.Found, values []string, given []graph.Given) error {
	x := p.opts.Discover.Observed
	file := x.File
	view, err := file.View(x.Only(values, given...), func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		for j, f := range found {
			if w := layers[j].Weight; f != nil && layers[j].value.Tensor == t {
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

// WriteFloat writes a model unchanged.
func WriteFloat(ctx context.Context, m *modelfile.Model, path string, threads int, memory int64) error {
	return writeFloat(ctx, m, path, spec.ExternalAuto, threads, memory)
}

// WriteApart writes a model unchanged, its contents to external data.
func WriteApart(ctx context.Context, m *modelfile.Model, path string) error {
	return writeFloat(ctx, m, path, spec.ExternalAlways, 0, work.DefaultMemory)
}

func writeFloat(ctx context.Context, m *modelfile.Model, path string, when spec.ExternalData, threads int, memory int64) error {
	x, err := graph.New(m)
	if err != nil {
		return err
	}
	l := planner{input: x, whole: x, graph: x, opts: Options{
		Discover: discover.Options{Format: spec.Float, Target: target.Of(spec.Portable), Activations: spec.WeightsOnly, Memory: memory},
		External: write.External{When: when}, Threads: threads, Memory: memory, NoVerify: true,
	}}
	plain, err := l.plan()
	if err != nil {
		return err
	}
	_, err = plain.Convert(ctx, path)
	return err
}
