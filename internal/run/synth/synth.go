// Package synth makes inputs that a model could have met, for when there are no data: images with shapes
// and text, speech-like sound, token ids that repeat, masks of ones.
//
// [Plans] gets a model and returns plans, each with other sizes of what the model leaves free, the best
// first. [Plan.Sample] makes the inputs of a run; the caller owns them. The same seed makes the same inputs.
//
// reads.go finds out what the graph does with an input, kind.go what the input therefore is, sizes.go how
// large it is made. image.go, canvas.go, glyphs.go, sound.go and ids.go make the values.
package synth

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
)

// Options say which inputs are made.
type Options struct {
	Seed   uint64
	Dims   map[string]int64 // sizes of symbolic dimensions
	Single bool             // prefer a batch of one
}

// Plan makes inputs of certain sizes.
type Plan struct {
	Sizes string // of symbolic dimensions, as NAME=N, NAME=N

	seed   uint64
	inputs []*input
	states []state
	images bool // some input is an image
}

// input is an input of a plan.
type input struct {
	*subject
	dims   []int64
	length int64 // of the sequence that lengths tell
	past   int64
}

// The most bytes of the inputs of a run. Above usualBytes, smaller sizes are tried first.
const (
	mostBytes  = execute.MaxBytes
	usualBytes = 32 << 20
)

// Plans returns plans for a model. The model is not used afterwards.
func Plans(m *modelfile.Model, opts Options) ([]*Plan, error) {
	g := newGraph(m)
	if err := checkDimensions(opts.Dims, g.inputs); err != nil {
		return nil, err
	}
	subjects, err := g.subjects()
	if err != nil {
		return nil, err
	}
	states := g.states(subjects)
	var usual, large []*Plan
	seen := map[string]bool{}
	var failed error
	for _, s := range g.sizesToTry(subjects, opts.Single) {
		p := &Plan{seed: opts.Seed, states: states, images: slices.ContainsFunc(subjects, func(s *subject) bool { return s.kind == image })}
		bytes, err := p.fit(subjects, s, opts.Dims)
		if err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		key := ""
		for _, in := range p.inputs {
			key += fmt.Sprint(in.dims)
		}
		switch {
		case seen[key]:
		case bytes > usualBytes:
			large = append(large, p)
		default:
			usual = append(usual, p)
		}
		seen[key] = true
	}
	if plans := append(usual, large...); len(plans) > 0 {
		return plans, nil
	}
	return nil, failed
}

// fit gives the inputs their sizes. It returns the bytes of a sample.
func (p *Plan) fit(subjects []*subject, s sizes, given map[string]int64) (bytes int64, err error) {
	f := newFitter(s, given)
	for _, subject := range subjects {
		in := &input{subject: subject, dims: f.dims(subject), past: s.past}
		n, err := execute.Elements(subject.typ, in.dims)
		if err != nil {
			return 0, fmt.Errorf("input %s: %w", strconv.Quote(subject.name), err)
		}
		if bytes += n * int64(subject.typ.Bits()/8); bytes > mostBytes {
			return 0, fmt.Errorf("the inputs are larger than %d MiB", mostBytes>>20)
		}
		p.inputs = append(p.inputs, in)
	}
	length := p.length(s.sequence)
	var named []string
	for _, in := range p.inputs {
		in.length = length
		for k, d := range in.axes {
			size := fmt.Sprintf("%s=%d", d.GetDimParam(), in.dims[k])
			if d.GetDimParam() != "" && !slices.Contains(named, size) {
				named = append(named, size)
			}
		}
	}
	p.Sizes = strings.Join(named, ", ")
	return bytes, nil
}

// length returns the length of the sequence that the model reads.
func (p *Plan) length(usual int64) int64 {
	for _, in := range p.inputs {
		n := len(in.dims)
		switch {
		case n == 0:
		case in.kind == waveform || in.kind == ids && n <= 2:
			return in.dims[n-1]
		case in.kind == features && n == 3:
			return in.dims[3-in.axis]
		}
	}
	return usual
}

// Sample makes the inputs of run i.
func (p *Plan) Sample(i int) ([]*execute.Tensor, error) {
	var list []*execute.Tensor
	for k, in := range p.inputs {
		rng := rand.New(rand.NewPCG(p.seed, uint64(k)|uint64(i)<<32))
		t, err := in.make(rng, p.seed, i)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", strconv.Quote(in.name), err)
		}
		t.Name = in.name
		list = append(list, t)
	}
	return list, nil
}

// Made says what the values of each input are.
func (p *Plan) Made() []string {
	var texts []string
	for _, in := range p.inputs {
		texts = append(texts, in.String())
	}
	return texts
}

// States returns the names of the outputs that a model takes as inputs of its next run.
func States(m *modelfile.Model) (names []string) {
	for _, s := range Carried(m) {
		names = append(names, s.Output)
	}
	return names
}

// A Pair is an input whose next value is an output.
type Pair struct{ Input, Output string }

// Carried returns the inputs of a model that outputs of the run before are.
func Carried(m *modelfile.Model) (pairs []Pair) {
	g := newGraph(m)
	subjects, err := g.subjects()
	if err != nil {
		return nil
	}
	for _, s := range g.states(subjects) {
		pairs = append(pairs, Pair{subjects[s.input].name, g.proto.GetOutput()[s.output].GetName()})
	}
	return pairs
}

// subjects finds out what each input is.
func (g *graph) subjects() (list []*subject, err error) {
	for _, info := range g.inputs {
		s, err := g.subject(info)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", strconv.Quote(info.GetName()), err)
		}
		list = append(list, s)
	}
	return list, nil
}

// Carry replaces the states among the inputs of the next run by what the model returned for them.
func (p *Plan) Carry(next, outputs []*execute.Tensor) {
	for _, s := range p.states {
		if s.output >= len(outputs) {
			continue
		}
		if from, to := outputs[s.output], next[s.input]; from.DType == to.DType && slices.Equal(from.Dims, to.Dims) {
			next[s.input] = &execute.Tensor{Name: to.Name, DType: to.DType, Dims: to.Dims, Data: from.Data}
		}
	}
}

// The numbers of samples: enough for a hundred decisions, and some different images.
const (
	wantedRows   = 100
	fewestImages = 3
	mostSamples  = 128
)

// Samples returns how many samples show enough decisions, from the outputs of the first.
func (p *Plan) Samples(outputs []*execute.Tensor) int {
	rows, bytes := 1, 1
	for i, t := range outputs {
		bytes += len(t.Data)
		if n := len(t.Dims); n > 0 && t.Len() > 0 && !slices.ContainsFunc(p.states, func(s state) bool { return s.output == i }) {
			classes := t.Dims[n-1]
			if p.images && n == 4 {
				classes = t.Dims[1]
			}
			rows = max(rows, t.Len()/int(classes))
		}
	}
	n := (wantedRows + rows - 1) / rows
	if p.images {
		n = max(n, fewestImages)
	}
	for _, in := range p.inputs {
		bytes += len(in.dims) // at least one
		if size, err := execute.Elements(in.typ, in.dims); err == nil {
			bytes += int(size) * int(in.typ.Bits()/8)
		}
	}
	return max(min(n, mostSamples, mostBytes/2/bytes), 1)
}

// Inputs makes one sample of the sizes that are tried first.
func Inputs(m *modelfile.Model, opts Options) ([]*execute.Tensor, error) {
	plans, err := Plans(m, opts)
	if err != nil {
		return nil, err
	}
	return plans[0].Sample(0)
}

// make makes the value of an input.
func (in *input) make(rng *rand.Rand, seed uint64, i int) (*execute.Tensor, error) {
	n, err := execute.Elements(in.typ, in.dims)
	if err != nil {
		return nil, err
	}
	var x []float64
	switch in.kind {
	case image:
		x = in.pictures(rng, i)
	case waveform:
		x = in.waves(rng, seed, i)
	case spectrum:
		x = in.spectra(rng, seed, i)
	case features:
		x = in.mel(rng, seed, i)
	case memory:
		x = make([]float64, n)
	case values:
		x = in.normal(rng, int(n))
	default:
		whole := in.integers(rng, int(n))
		if !in.typ.Float() {
			return execute.FromInt64s(in.typ, in.dims, whole)
		}
		x = make([]float64, n)
		for k, v := range whole {
			x[k] = float64(v)
		}
	}
	if in.typ.Float() {
		return execute.FromFloat64s(in.typ, in.dims, x)
	}
	whole := make([]int64, n)
	for k, v := range x {
		whole[k] = int64(v)
	}
	return execute.FromInt64s(in.typ, in.dims, whole)
}

// normal makes numbers of a normal distribution, with the mean and deviation that the model divides out.
func (in *input) normal(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
		if c := len(in.mean); c > 0 {
			x[i] = in.mean[i%c] + in.deviation[i%c]*x[i]
		}
	}
	return x
}

var errNotTensor = errors.New("not a tensor; give inputs in files (--inputs)")

func checkType(typ dtype.DType) error {
	if !typ.Float() && !typ.Integer() && typ != dtype.Bool { // string, complex, float8
		return fmt.Errorf("no random inputs of type %v; give inputs in files (--inputs)", typ)
	}
	return nil
}
