// Package bench measures how fast models run in ONNX Runtime, beside each other.
//
// [Models] gets the paths of models that take the same inputs, which it only reads, and returns a
// [Report], which the caller owns. Each model is loaded in a process of its own, with the options that
// ONNX Runtime has by default. The models run in turns, A B A B, until the figures settle or the time is
// over. Before that, each model runs a few times with ONNX Runtime's profile, for the time of each operator.
//
// profile.go reads the profile, settle.go has the statistics, report.go the result.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/execute/ort/wire"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/run/synth"
	"onnxquant/onnxq"
)

// Options are the options of Models. The zero value has the defaults.
type Options struct {
	ORTLibrary string // path of ONNX Runtime's shared library; "": search the usual places
	Threads    int    // of a session; 0: as ONNX Runtime chooses

	// Inputs are files and folders with inputs, as in package onnxq/verify; the first sample is used.
	// Without files, inputs are random.
	Inputs []string
	Dims   map[string]int64 // sizes of symbolic dimensions of random inputs

	Duration time.Duration // of the measurement, without loading and profiling; 0: DefaultDuration

	// Progress, if set, is called with the name of a stage, and its progress. total is 0 if it is unknown.
	Progress func(stage string, done, total int64)

	clear func(all []series) bool // after each round: whether more are not needed; nil: if the figures are settled
}

// DefaultDuration is the time of a measurement that does not settle before.
const DefaultDuration = 10 * time.Second

// A turn is a model's runs before it is the turn of the next model.
const (
	warmTurn    = 60 * time.Millisecond // unmeasured; threads of ONNX Runtime spin for up to 50 ms after a run
	turn        = 100 * time.Millisecond
	turnRuns    = 2000
	mostRounds  = 1000
	profileTime = time.Second
	profileRuns = 50
	profileSize = 100_000 // events, about
)

// Models measures models. They must take the same inputs.
func Models(ctx context.Context, paths []string, opts Options) (*Report, error) {
	if len(paths) == 0 {
		return nil, errors.New("no model is given")
	}
	b := &bench{ctx: ctx, opts: opts, report: &Report{Threads: opts.Threads}}
	trials, err := b.open(paths)
	if err != nil {
		return nil, err
	}
	runner, err := ort.Find(ctx, opts.ORTLibrary)
	if err != nil {
		return nil, err
	}
	b.runner = runner.AsUsers().Threads(opts.Threads)
	b.report.Library = runner.Library()
	folder, err := os.MkdirTemp("", "onnxquant-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	for i := range b.report.Models {
		m := &b.report.Models[i]
		b.stage("profiling "+filepath.Base(m.Path), 0, 0)
		used, err := b.profile(m, trials, folder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		trials = []trial{used}
	}
	b.describe(trials[0])
	b.stage("loading", 0, 0)
	if err := b.measure(trials[0].inputs); err != nil {
		return nil, err
	}
	return b.report, nil
}

type bench struct {
	ctx    context.Context
	opts   Options
	runner *ort.Runner
	report *Report
}

func (b *bench) stage(text string, done, total int64) {
	if b.opts.Progress != nil {
		b.opts.Progress(text, done, total)
	}
}

// trial has inputs. sizes are the symbolic dimensions of random ones.
type trial struct {
	inputs []*execute.Tensor
	sizes  string
}

// open reads the models' structures. It returns inputs that all of them take: random ones in several
// sizes.
func (b *bench) open(paths []string) (trials []trial, err error) {
	var refused error
	for i, path := range paths {
		m, err := onnxq.Open(path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		file := m.Graph().File
		b.report.Models = append(b.report.Models, Model{Path: path, Bytes: file.Size(), nodes: len(file.Proto.GetGraph().GetNode())})
		if i == 0 {
			if trials, err = b.trials(m); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		trials = slices.DeleteFunc(trials, func(t trial) bool {
			err := takes(execute.ModelInputs(file.Proto.GetGraph()), t.inputs)
			if err != nil && refused == nil {
				refused = fmt.Errorf("%s takes other inputs than %s: %w", path, paths[0], err)
			}
			return err != nil
		})
		if len(trials) == 0 {
			return nil, refused
		}
	}
	return trials, nil
}

// trials returns the inputs to try for a model.
func (b *bench) trials(m *onnxq.Model) (trials []trial, err error) {
	file := m.Graph().File
	if len(execute.ModelInputs(file.Proto.GetGraph())) == 0 {
		return nil, errors.New("the model has no inputs")
	}
	if len(b.opts.Inputs) > 0 {
		if len(b.opts.Dims) > 0 {
			return nil, errors.New("sizes of dimensions are for random inputs, not for inputs from files")
		}
		data, err := samples.OpenWhole(file, b.opts.Inputs, 1)
		if err != nil {
			return nil, err
		}
		for inputs, err := range data.All() {
			return []trial{{inputs: inputs}}, err
		}
		return nil, errors.New("the data have no sample")
	}
	plans, err := synth.Plans(file, synth.Options{Dims: b.opts.Dims, Single: true})
	if err != nil {
		return nil, err
	}
	for i, plan := range plans {
		inputs, err := plan.Sample(0)
		if err != nil && i == 0 {
			return nil, err
		}
		if err == nil {
			trials = append(trials, trial{inputs, plan.Sizes})
		}
	}
	return trials, nil
}

// takes returns an error if a model's inputs cannot have these values.
func takes(infos []*onnxpb.ValueInfoProto, values []*execute.Tensor) error {
	if len(infos) != len(values) {
		return fmt.Errorf("it has %d, not %d", len(infos), len(values))
	}
	for _, t := range values {
		i := slices.IndexFunc(infos, func(info *onnxpb.ValueInfoProto) bool { return info.GetName() == t.Name })
		if i < 0 {
			return fmt.Errorf("it has no input %s", msg.Quote(t.Name))
		}
		typ := infos[i].GetType().GetTensorType()
		if typ == nil || typ.GetElemType() != int32(t.DType) {
			if typ.GetElemType() == int32(onnxpb.TensorProto_INT8) && t.IsFloat() {
				return fmt.Errorf("input %s takes codes of int8, as key-value caches of --kv-cache: models with such caches cannot be compared with others", msg.Quote(t.Name))
			}
			return fmt.Errorf("input %s is not of type %v", msg.Quote(t.Name), t.DType)
		}
		if typ.Shape == nil {
			continue
		}
		fits := len(typ.Shape.Dim) == len(t.Dims)
		for k := 0; fits && k < len(t.Dims); k++ {
			size, fixed := execute.FixedSize(typ.Shape.Dim[k])
			fits = !fixed || size == t.Dims[k]
		}
		if !fits {
			return fmt.Errorf("input %s does not take the shape %s", msg.Quote(t.Name), msg.Shape(t.Dims, "x"))
		}
	}
	return nil
}

// describe describes the inputs in the report.
func (b *bench) describe(t trial) {
	b.report.Sizes, b.report.Random = t.sizes, len(b.opts.Inputs) == 0
	for _, x := range t.inputs {
		b.report.Inputs = append(b.report.Inputs, Input{x.Name, x.DType.String(), x.Dims})
	}
}

// profile runs a model with a profile. It returns the first inputs that the model runs on.
func (b *bench) profile(m *Model, trials []trial, folder string) (used trial, err error) {
	s, err := b.runner.Profiling(filepath.Join(folder, "profile")).Open(b.ctx, m.Path)
	if err != nil {
		return used, err
	}
	defer s.Close()
	b.report.Runtime, m.Load = "ONNX Runtime "+s.Version, milliseconds(s.Loaded)
	used, err = firstThatRuns(s, trials)
	if err != nil {
		return used, err
	}
	start := time.Now()
	if _, _, err := s.Time(wire.Time{Warm: turn, Most: 1}); err != nil {
		return used, err
	}
	runs := max(min(profileRuns, profileSize/max(m.nodes, 1)), 1)
	if time.Since(start) > profileTime {
		runs = 1
	}
	timing, _, err := s.Time(wire.Time{For: profileTime, Most: runs})
	if err != nil {
		return used, err
	}
	path, err := s.EndProfile()
	if err != nil {
		return used, err
	}
	f, err := os.Open(path)
	if err != nil {
		return used, err
	}
	defer os.Remove(path)
	defer f.Close()
	m.Profile, err = readProfile(f, len(timing.Runs))
	return used, err
}

// firstThatRuns binds the first inputs that a model runs with. If there are none, the error is that of the
// first.
func firstThatRuns(s *ort.Session, trials []trial) (used trial, err error) {
	var first error
	for _, t := range trials {
		err := s.Bind(t.inputs)
		if err == nil {
			_, _, err = s.Time(wire.Time{Most: 1})
		}
		if err == nil {
			return t, nil
		}
		if t.sizes != "" {
			err = fmt.Errorf("%w; the sizes were %s, --dim NAME=N sets others", err, t.sizes)
		}
		if first == nil {
			first = err
		}
	}
	return used, first
}

// measure runs the models in turns. How fast a process is depends a little on where its memory lies, so the
// models get new processes now and then, if loading takes little of the time.
func (b *bench) measure(inputs []*execute.Tensor) error {
	limit := b.opts.Duration
	if limit <= 0 {
		limit = DefaultDuration
	}
	all, sessions := make([]series, len(b.report.Models)), []*ort.Session(nil)
	defer func() { closeAll(sessions) }()
	r, start, opened, loading := b.report, time.Now(), time.Time{}, time.Duration(0)
	for done := false; r.Rounds < mostRounds && (r.Rounds == 0 || !done && time.Since(start) < limit); {
		if time.Since(opened) >= 2*loading {
			closeAll(sessions)
			var err error
			begun := time.Now()
			if sessions, err = b.load(inputs); err != nil {
				return err
			}
			opened = time.Now()
			loading = opened.Sub(begun)
			if r.Rounds == 0 {
				start = opened
			}
		}
		for i, s := range sessions {
			timing, peak, err := s.Time(wire.Time{Warm: warmTurn, For: turn, Most: turnRuns})
			if err != nil {
				return fmt.Errorf("%s: %w", r.Models[i].Path, err)
			}
			all[i].add(timing)
			r.Models[i].PeakMemory = max(r.Models[i].PeakMemory, peak)
			b.stage("measuring", min(time.Since(start), limit).Milliseconds(), limit.Milliseconds())
		}
		r.Rounds++
		r.Uncertainty = uncertainty(all)
		r.Settled = r.Rounds >= leastRounds && r.Uncertainty <= settledAt
		done = r.Settled
		if b.opts.clear != nil {
			clear := b.opts.clear(all) // which sees each round
			done = clear && r.Rounds >= leastRounds
		}
	}
	r.Seconds = time.Since(start).Seconds()
	for i := range all {
		all[i].fill(&r.Models[i], &all[0])
	}
	return nil
}

// load opens the models and warms them up. The caller closes the sessions, also after an error.
func (b *bench) load(inputs []*execute.Tensor) (sessions []*ort.Session, err error) {
	for i := range b.report.Models {
		m := &b.report.Models[i]
		s, err := b.runner.Open(b.ctx, m.Path)
		if err == nil {
			sessions = append(sessions, s)
			m.Load = min(m.Load, milliseconds(s.Loaded))
			err = s.Bind(inputs)
		}
		if err == nil {
			_, _, err = s.Time(wire.Time{Warm: turn, Most: 1})
		}
		if err != nil {
			return sessions, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return sessions, nil
}

func closeAll(sessions []*ort.Session) {
	for _, s := range sessions {
		s.Close()
	}
}
