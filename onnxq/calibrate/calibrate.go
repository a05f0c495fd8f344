// Package calibrate runs a float model on data: for algorithms that need calibration data, and to find
// the ranges of activations.
//
//	data := calibrate.New("in.onnx", calibrate.Options{Data: []string{"ids.npz"}})
//	err := data.Open(ctx)
//	…
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Algorithm: spec.Best, Calibration: data})
//
//	opts := calibrate.Options{Data: []string{"data.npz"}}
//	opts.Method, _ = calib.ParseMethod("minmax")
//	ranges, err := calibrate.Ranges(ctx, "model.onnx", opts)
//
// [New] gets the path of a model and where the data are. It returns a [Data], which the caller owns and
// passes to a conversion. [Ranges] returns the ranges of activations.
//
// Activations are observed as they are computed and never stored, so memory is bounded for any number of
// samples. ONNX Runtime runs the model if it is installed, else the pure Go engine, which supports the
// operators of most models.
package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"onnxquant/calib"
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/run/samples"
	"onnxquant/rules"
)

// Self as the only Data lets a causal language model make samples itself.
const Self = "self"

// The defaults of Options.
const (
	DefaultSamples = samples.Default
	DefaultLength  = observe.DefaultLength
)

// Engines lists the names of engines: auto is ONNX Runtime if it is found, else pure Go.
var Engines = observe.Engines

// Options select the data, the engine and the method.
type Options struct {
	Data    []string // files and folders, or Self
	Samples int      // 0: DefaultSamples
	Length  int      // of samples that the model makes; 0: DefaultLength
	Seed    uint64   // of samples that the model makes

	Engine  string // one of Engines; "" is auto
	Library string // ONNX Runtime's shared library; "" searches the usual places

	Method calib.Method // of Ranges
	Scheme calib.Scheme // of the codes; methods entropy and mse depend on it

	// Progress is called with the name of the current stage and its progress. It may be nil.
	Progress func(stage string, done, total int)
}

// Result is what Ranges finds.
type Result struct {
	*rules.Ranges
	Engine string // what ran the model

	// Without lists the values without a range: nothing was observed, or NaN or infinity.
	Without []string

	// Warnings lists reasons why the data may mislead or are slow, one sentence each.
	Warnings []string
}

// run is a model with its samples.
type run struct {
	opts   Options
	path   string
	model  *modelfile.Model
	engine *observe.Engine
	data   *samples.Samples
	clip   *Clipper // nil: no histograms

	supposed bool           // the model makes no samples: random ids stand for them
	making   observe.Making // what it would take to make them
}

// warnings passes over the samples once.
func (r *run) warnings() ([]string, error) {
	found, err := r.data.Warnings()
	if lacked := r.engine.Lacked(); lacked != nil {
		found = append(found, Slow(lacked))
	}
	return found, err
}

// Slow is the warning that ONNX Runtime was looked for, and why it does not run the model.
func Slow(lacked error) string {
	return fmt.Sprintf("%v. The model runs in pure Go, which takes several times as long", lacked)
}

// open opens the model and its data. The caller closes the model.
func open(ctx context.Context, path string, opts Options) (*run, error) {
	return openSupposed(ctx, path, opts, false)
}

// openSupposed is open. With supposed, random ids stand for the samples that the model would make.
func openSupposed(ctx context.Context, path string, opts Options, supposed bool) (*run, error) {
	if len(opts.Data) == 0 {
		return nil, errors.New("no data to run the model on")
	}
	if opts.Samples < 0 || opts.Length < 0 {
		return nil, errors.New("a negative number of samples, or length")
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	r := &run{opts: opts, path: path, model: m, supposed: supposed}
	if err := r.find(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return r, nil
}

func (r *run) find(ctx context.Context) (err error) {
	if _, err = graph.New(r.model); err != nil { // it checks the structure
		return fmt.Errorf("%s: %w", r.path, err)
	}
	if r.engine, err = engineFor(ctx, r.model.Proto, r.opts); err != nil {
		return err
	}
	self := slices.Contains(r.opts.Data, Self)
	switch {
	case self && len(r.opts.Data) > 1:
		return fmt.Errorf("%s beside other data: give it alone, for samples that the model makes, or files and folders alone", Self)
	case self:
		o := observe.SelfOptions{N: r.opts.Samples, Length: r.opts.Length, Seed: r.opts.Seed, Progress: r.progress("making samples")}
		if r.supposed {
			r.data, r.making, err = r.engine.Suppose(ctx, r.path, o)
			break
		}
		r.data, err = r.engine.Self(ctx, r.path, o)
	default:
		r.data, err = samples.Open(r.model, r.opts.Data, cmp.Or(r.opts.Samples, DefaultSamples))
	}
	return err
}

func (r *run) progress(stage string) func(done, total int) {
	if r.opts.Progress == nil {
		return nil
	}
	return func(done, total int) { r.opts.Progress(stage, done, total) }
}

// Histograms of this precision take up to 4 MiB for a value, in practice far less. So one pass over
// the data can fill some hundreds of them.
const (
	precision  = 10
	histograms = 256
)

// Ranges finds the ranges of the floating-point inputs of the main graph, and of the values that its
// nodes compute. The typical magnitude of a value is a median, within a factor of 1.5, of its
// magnitudes that are not 0 and below half of the largest in the range. A range that is much longer
// comes from outliers, or from a mask.
func Ranges(ctx context.Context, path string, opts Options) (*Result, error) {
	return rangesOf(ctx, path, opts, nil, nil)
}

// rangesOf is Ranges for values that are wanted; nil: all. Histograms go into clip; nil: there are none.
func rangesOf(ctx context.Context, path string, opts Options, wanted func(name string) bool, clip *Clipper) (*Result, error) {
	if _, err := opts.Method.Observer(opts.Scheme, precision); err != nil {
		return nil, err
	}
	r, err := open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer r.model.Close()
	names, constants, err := values(r.model.Proto.GetGraph())
	if err != nil {
		return nil, err
	}
	if wanted != nil {
		unwanted := func(name string) bool { return !wanted(name) }
		names, constants = slices.DeleteFunc(names, unwanted), slices.DeleteFunc(constants, unwanted)
	}
	if len(names)+len(constants) <= mostClipped {
		r.clip = clip
	}
	if len(names) == 0 {
		return nil, errors.New("the model has no activations of a floating-point type")
	}
	pass := len(names)
	if m := opts.Method.Name; m != "minmax" && m != "moving-average" {
		pass = histograms
	}
	found := &Result{Ranges: &rules.Ranges{Tensors: map[string]calib.Range{}, Typical: map[string]float64{}, NoRange: map[string]bool{}}, Engine: r.engine.Name()}
	for i := 0; i < len(names); i += pass {
		if err := r.ranges(ctx, found, names[i:min(i+pass, len(names))], r.data, i, len(names)); err != nil {
			return nil, err
		}
	}
	for part := range slices.Chunk(constants, pass) {
		if err := r.ranges(ctx, found, part, r.data.First(1), len(names), len(names)); err != nil {
			return nil, err
		}
	}
	sum, err := r.model.SHA256()
	if err != nil {
		return nil, err
	}
	found.Model = rules.RangesModel{File: filepath.Base(path), SHA256: sum}
	found.Method, found.Samples = opts.Method.String(), int64(r.data.Len())
	found.Warnings, err = r.warnings()
	return found, err
}

// observer observes a value.
type observer struct {
	calib.Observer
	magnitudes
	name  string
	float bool // some values were floating-point numbers
	bad   bool // some were not finite
	clip  *clipped
}

// ranges finds the ranges of some values. done of all values are finished already.
func (r *run) ranges(ctx context.Context, found *Result, names []string, data *samples.Samples, done, all int) error {
	observers := make([]*observer, len(names))
	index := make(map[string]*observer, len(names))
	for i, name := range names {
		o, err := r.opts.Method.Observer(r.opts.Scheme, precision)
		if err != nil {
			return err
		}
		observers[i] = &observer{Observer: o, name: name}
		if r.clip != nil {
			c, err := r.clip.add(name)
			if err != nil {
				return err
			}
			observers[i].Observer, observers[i].clip = c.Histogram, c // which has the minimum and maximum, too
		}
		index[name] = observers[i]
	}
	err := r.engine.Plain().Values(ctx, r.path, data, names, r.counting("finding ranges", done, len(names), all), func(v *execute.Tensor) error {
		return index[v.Name].tensor(v)
	})
	if err != nil {
		return err
	}
	for _, o := range observers {
		switch found.Tensors[o.name], err = o.Range(); {
		case err == nil && !o.bad:
			if typical, ok := o.typical(found.Tensors[o.name]); ok {
				found.Typical[o.name] = typical
			}
			continue
		case o.bad || errors.Is(err, calib.ErrEmpty) && o.float:
			found.Without = append(found.Without, o.name)
			found.NoRange[o.name] = true
		case o.float:
			return fmt.Errorf("value %s: %w", msg.Quote(o.name), err)
		}
		delete(found.Tensors, o.name)
	}
	return nil
}

// counting returns options that report the progress of a stage: n of all values are observed, done are finished.
func (r *run) counting(stage string, done, n, all int) (opts observe.Options) {
	if progress := r.progress(stage); progress != nil && done < all {
		opts.Progress = func(sample, samples int) { progress(done*samples+sample*n, all*samples) }
	}
	return opts
}

// tensor observes the value of one sample.
func (o *observer) tensor(v *execute.Tensor) error {
	if !v.IsFloat() || o.bad {
		return nil
	}
	o.float = true
	var buf [1 << 12]float32
	for data := range slices.Chunk(v.Data, len(buf)*v.Size()) {
		x := buf[:len(data)/v.Size()]
		v.DType.Decode(x, data)
		if err := o.Observe(x); errors.Is(err, calib.ErrNotFinite) {
			if o.bad = true; o.clip != nil {
				o.clip.bad = true
			}
			return nil
		} else if err != nil {
			return err
		}
		if o.count(x); o.clip != nil {
			o.clip.sample.Observe(x)
		}
	}
	if o.EndBatch(); o.clip != nil {
		o.clip.endSample()
	}
	return nil
}

// values lists the values of a graph that may be numbers: those that depend on its inputs, and those
// that nodes compute from constants alone.
func values(g *onnxpb.GraphProto) (names, constants []string, err error) {
	nodes, err := graph.Ordered(g.GetNode())
	if err != nil {
		return nil, nil, err
	}
	depends := map[string]bool{}
	for _, info := range execute.ModelInputs(g) {
		depends[info.GetName()] = true
		if dtype.DType(info.GetType().GetTensorType().GetElemType()).Float() {
			names = append(names, info.GetName())
		}
	}
	for _, n := range nodes {
		from := slices.ContainsFunc(graph.Reads(n), func(name string) bool { return depends[name] })
		for _, name := range n.Output {
			depends[name] = from && name != ""
			switch {
			case name == "" || graph.NoNumbers(n.GetOpType()) || notComputed[n.GetOpType()]:
			case from:
				names = append(names, name)
			default:
				constants = append(constants, name)
			}
		}
	}
	return names, constants, nil
}

// notComputed are operators whose numbers are those of shapes, or stored.
var notComputed = map[string]bool{"Shape": true, "Size": true, "Constant": true}
