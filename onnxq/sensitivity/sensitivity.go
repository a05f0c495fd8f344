// Package sensitivity measures how much quantizing a single weight changes the outputs of its model.
//
//	s, err := sensitivity.Open(ctx, "model.onnx", calibrate.Options{Data: []string{"self"}})
//	defer s.Close()
//	a, err := analyze.Model(ctx, m, analyze.Options{Damage: s, MaxSize: 1 << 30})
//
// [Open] gets the path of a float model and data, and returns a [Sensitivity], which the caller
// closes. The float model runs once unchanged, and once for each weight and format with that weight
// quantized and decoded. One session is enough: weights are inputs that a run may replace.
//
// The result is called damage. For a distribution it is the mean Kullback-Leibler divergence, in nats,
// of the output from the float model's output. For other outputs it is the mean squared difference over
// the mean square of the output. Small damages add up over weights, so package analyze can search the
// best mix of formats with them.
//
// [Static] measures activations in the same way. It finds how a model gets static activations: ranges, bits of weights
// (narrow.go), factors of channels (balance.go), clipped ranges (clip.go), and what stays in float (mix.go), each step kept
// if the outputs on held-out samples lose less. [Dynamic] finds which operators compute with codes of activations that are quantized at run time.
// [FitActivations] calls one of the two.
package sensitivity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/journal"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/run/synth"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// DefaultSamples is the number of samples: few are enough to compare formats.
const DefaultSamples = 16

// Sensitivity is a float model with samples and its outputs for them.
type Sensitivity struct {
	path    string // of the model, or of a copy
	folder  string // of the copy, or ""
	opts    calibrate.Options
	model   *modelfile.Model // nil for Static
	engine  *observe.Engine
	session execute.Session
	outputs []output
	all     bool  // the outputs are all of a floating-point type, for loss
	failed  error // of a model that the runtime could not run
	states  []synth.Pair
	journal *journal.Journal
	store   store   // of all samples
	chain   samples // with states that are carried, see link

	warnings []string // see samples.Samples.Warnings
	weighed  samples
	others   samples       // not used to weigh; the same if there are no more
	taken    time.Duration // to run the float model on the samples that weigh
	done     int
	total    int
}

// output is an output that is compared.
type output struct {
	name string
	kind kind
}

type kind int

const (
	numbers kind = iota
	logits
	probabilities
	unweighed // its damage does not count
)

// Open runs the float model at path on its samples.
func Open(ctx context.Context, path string, opts calibrate.Options) (*Sensitivity, error) {
	opts.Samples = cmp.Or(opts.Samples, DefaultSamples)
	s := &Sensitivity{path: path, opts: opts}
	if !slices.Equal(opts.Data, []string{"self"}) { // samples of self take time to generate
		opts.Samples *= 2
	}
	data := calibrate.New(path, opts)
	err := data.Open(ctx)
	if err != nil {
		return nil, err
	}
	if s.model, err = modelfile.Open(path); err != nil {
		return nil, err
	}
	if s.outputs = compared(s.model.Proto.GetGraph()); len(s.outputs) == 0 {
		err = fmt.Errorf("%s: no output of a floating-point type to compare", path)
	} else if err = s.storeConstants(ctx); err == nil {
		err = s.start(ctx, data)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start runs the float model on its samples.
func (s *Sensitivity) start(ctx context.Context, data *calibrate.Data) (err error) {
	s.engine = data.Engine()
	if s.session, err = s.open(ctx, s.engine); err != nil {
		return err
	}
	return s.run(ctx, data)
}

// Close ends the session and closes the model.
func (s *Sensitivity) Close() {
	if s.session != nil {
		s.session.Close()
	}
	if s.model != nil {
		s.model.Close()
	}
	if s.folder != "" {
		os.RemoveAll(s.folder)
	}
	s.store.close()
}

// open opens the model with its weights as inputs that runs may replace.
func (s *Sensitivity) open(ctx context.Context, e *observe.Engine) (execute.Session, error) {
	if e.IsGo() { // its runs may replace any value
		return e.Open(ctx, s.path)
	}
	g := s.model.Proto.GetGraph()
	listed := map[string]bool{}
	for _, i := range g.GetInput() {
		listed[i.GetName()] = true
	}
	more := &onnxpb.GraphProto{}
	for _, t := range g.GetInitializer() {
		if typ := dtype.DType(t.GetDataType()); typ.Float() && len(t.Dims) > 1 && !listed[t.GetName()] {
			more.Input = append(more.Input, describe(t))
		}
	}
	return e.OpenWith(ctx, s.path, more)
}

func describe(t *onnxpb.TensorProto) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range t.Dims {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
	}
	return &onnxpb.ValueInfoProto{Name: t.Name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: t.DataType, Shape: shape}}}}
}

// compared lists the outputs whose damage counts: distributions if there are any, else all floating-point
// outputs.
func compared(g *onnxpb.GraphProto) []output {
	return slices.DeleteFunc(all(g), func(o output) bool { return o.kind == unweighed })
}

// all lists the floating-point outputs.
func all(g *onnxpb.GraphProto) []output {
	makers := map[string]string{}
	for _, n := range g.GetNode() {
		for _, name := range n.Output {
			makers[name] = n.GetOpType()
			if (graph.IsOperator(n, "Identity") || graph.IsOperator(n, "Cast")) && len(n.Input) == 1 {
				makers[name] = makers[n.Input[0]]
			}
		}
	}
	var all []output
	distributions := false
	for _, o := range g.GetOutput() {
		name := o.GetName()
		if !dtype.DType(o.GetType().GetTensorType().GetElemType()).Float() {
			continue
		}
		kind := numbers
		switch {
		case makers[name] == "Softmax":
			kind = probabilities
		case makers[name] == "LogSoftmax" || strings.Contains(strings.ToLower(name), "logits"):
			kind = logits
		}
		all, distributions = append(all, output{name, kind}), distributions || kind != numbers
	}
	for i := range all {
		if distributions && all[i].kind == numbers {
			all[i].kind = unweighed
		}
	}
	return all
}

// run keeps the samples and the outputs of the float model for them.
func (s *Sensitivity) run(ctx context.Context, data *calibrate.Data) error {
	var err error
	if s.warnings, err = data.Warnings(); err != nil {
		return err
	}
	start, most, itself := time.Now(), int64(maxKept), s.damages()
	if s.all {
		most = maxOnDisk
	}
	number := -1
	for inputs, err := range data.Samples().All() {
		if err != nil {
			return err
		}
		number++
		want, err := s.session.Run(inputs, s.names()...)
		if err != nil {
			return data.Samples().Failed(ctx, number, inputs, err)
		}
		one, err := s.store.add(inputs, want)
		if err != nil {
			return err
		}
		if s.store.bytes > most && len(s.weighed.list) > 0 {
			break // fewer samples do
		}
		if len(s.weighed.list) < s.opts.Samples {
			s.weighed.list = append(s.weighed.list, one)
			s.taken = time.Since(start)
		} else {
			s.others.list = append(s.others.list, one)
		}
		if itself.add(want, want); itself.total() != 0 {
			return data.Samples().NotFinite(number, inputs)
		}
	}
	if len(s.others.list) == 0 {
		s.others = s.weighed
	}
	return nil
}

func (s *Sensitivity) names() (names []string) {
	for _, o := range s.outputs {
		names = append(names, o.name)
	}
	return names
}

// Of returns the damage of quantizing each listed weight alone, with the settings of opts. It is NaN
// for a weight that a run cannot replace: neither an initializer nor a Constant node of the main
// graph.
func (s *Sensitivity) Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error) {
	decoded, remove, err := decode(ctx, m, opts)
	if err != nil {
		return nil, err
	}
	defer remove()
	f, err := modelfile.Open(decoded)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	results := make([]float64, len(weights))
	for i, name := range weights {
		if results[i], err = s.damageOf(ctx, f, name); err != nil {
			return nil, fmt.Errorf("weight %s: %w", msg.Quote(name), err)
		}
		if s.done++; s.opts.Progress != nil {
			s.opts.Progress("measuring outputs", min(s.done, s.total), s.total)
		}
	}
	return results, nil
}

// Together returns the damage of quantizing all weights at once, with the settings of opts. It uses
// held-out samples, which Of does not use, if there are enough.
func (s *Sensitivity) Together(ctx context.Context, m *onnxq.Model, opts onnxq.Options) (float64, error) {
	path, remove, err := decode(ctx, m, opts)
	if err != nil {
		return 0, err
	}
	defer remove()
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	return s.damageOn(ctx, session, s.others)
}

// decode writes a model with its weights as they are when they are quantized and decoded.
func decode(ctx context.Context, m *onnxq.Model, opts onnxq.Options) (path string, remove func(), err error) {
	folder, err := os.MkdirTemp("", "onnxquant-sensitivity-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(folder) }
	defer func() {
		if err != nil {
			os.RemoveAll(folder)
		}
	}()
	opts.Style, opts.Target, opts.Progress, opts.AllowFallback = spec.DQ, "", nil, true
	p, err := m.Plan(opts)
	if err != nil {
		return "", nil, err
	}
	quantized, path := filepath.Join(folder, "q.onnx"), filepath.Join(folder, "f.onnx")
	if _, err = p.Convert(ctx, quantized); err != nil {
		return "", nil, err
	}
	_, err = restyle.Dequantize(ctx, quantized, path, restyle.Options{})
	return path, remove, err
}

// Samples returns the number of samples, and the time that the float model took for all of them.
func (s *Sensitivity) Samples() (n int, taken time.Duration) { return len(s.weighed.list), s.taken }

// Warnings lists problems of the samples that make the result misleading, one sentence each.
func (s *Sensitivity) Warnings() []string { return s.warnings }

// Expect says how many weights in all formats together will be measured.
func (s *Sensitivity) Expect(n int) { s.total = max(n, 1) }

// damageOf runs the model with one weight of another file.
func (s *Sensitivity) damageOf(ctx context.Context, f *modelfile.Model, name string) (float64, error) {
	t, own := initializer(f, name), initializer(s.model, name)
	if t == nil || own == nil || t.GetDataType() != own.GetDataType() || !slices.Equal(t.Dims, own.Dims) {
		return math.NaN(), nil
	}
	p, err := f.Payload(t)
	if err != nil || p == nil {
		return math.NaN(), err
	}
	w := &execute.Tensor{Name: name, DType: dtype.DType(t.GetDataType()), Dims: t.Dims, Data: make([]byte, p.Size())}
	if n, err := p.ReadAt(w.Data, 0); n < len(w.Data) {
		return 0, err
	}
	return s.damageOn(ctx, s.session, s.weighed, w)
}

func initializer(m *modelfile.Model, name string) *onnxpb.TensorProto {
	for _, t := range m.Proto.GetGraph().GetInitializer() {
		if t.GetName() == name {
			return t
		}
	}
	return nil
}
