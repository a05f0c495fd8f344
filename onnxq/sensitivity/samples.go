package sensitivity

import (
	"context"
	"os"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/kept"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
)

// Sizes of samples together with the outputs of the float model: those above inMemory are in files, and fewer samples are taken above
// maxKept, or above maxOnDisk where samples also decide about activations.
const (
	inMemory  = 64 << 20
	maxKept   = 512 << 20
	maxOnDisk = 4 << 30
)

const samplesPrefix = "onnxquant-samples-" // of the folders with files

// samples are runs of a model.
type samples struct {
	list    []*sample
	carried bool // each run reads the states that the run before made
}

// first returns the first n samples.
func (x samples) first(n int) samples { return samples{x.list[:min(n, len(x.list))], x.carried} }

// sample has inputs of a model, and the outputs of the float model for them, in memory or in a file.
type sample struct {
	inputs, want []*execute.Tensor // nil: in the file
	folder       string
	number       int
	split        int // inputs in the file
}

// load returns inputs and outputs.
func (s *sample) load() (inputs, want []*execute.Tensor, err error) {
	if s.folder == "" {
		return s.inputs, s.want, nil
	}
	all, err := kept.Read(s.folder, s.number)
	if err != nil {
		return nil, nil, err
	}
	return all[:s.split], all[s.split:], nil
}

// store has what samples are made of.
type store struct {
	parent string // of the folder of its files; "": the usual place of temporary files
	folder string // "" without files
	files  int
	bytes  int64
}

// add makes a sample.
func (s *store) add(inputs, want []*execute.Tensor) (*sample, error) {
	inputs = slices.DeleteFunc(slices.Clone(inputs), func(t *execute.Tensor) bool { return t == nil })
	all, small := slices.Concat(inputs, want), false
	for _, t := range all {
		s.bytes += int64(len(t.Data))
		small = small || t.List != nil || t.DType == dtype.String // files have numbers only
	}
	if small || s.bytes <= inMemory {
		return &sample{inputs: inputs, want: want}, nil
	}
	if s.folder == "" {
		var err error
		if s.folder, err = os.MkdirTemp(s.parent, samplesPrefix); err != nil {
			return nil, err
		}
	}
	s.files++
	return &sample{folder: s.folder, number: s.files, split: len(inputs)}, kept.Write(s.folder, s.files, all)
}

// close removes the files.
func (s *store) close() {
	if s.folder != "" {
		os.RemoveAll(s.folder)
	}
}

// each runs a model on samples, and hands on the outputs of the float model and of this one for each. more are further inputs of each
// run.
func (s *Sensitivity) each(ctx context.Context, session execute.Session, x samples, do func(want, got []*execute.Tensor) error, more ...*execute.Tensor) error {
	var before []*execute.Tensor
	for _, one := range x.list {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		inputs, want, err := one.load()
		if err != nil {
			return err
		}
		inputs = slices.Clone(inputs)
		if x.carried && before != nil {
			s.carry(inputs, before)
		}
		got, err := session.Run(append(inputs, more...), s.names()...)
		if err != nil {
			return asDefect(ctx, err)
		}
		if err := do(want, got); err != nil {
			return err
		}
		before = got
	}
	return nil
}

// damageOn runs a model on samples.
func (s *Sensitivity) damageOn(ctx context.Context, session execute.Session, x samples, more ...*execute.Tensor) (float64, error) {
	d := s.damages()
	err := s.each(ctx, session, x, d.add, more...)
	return d.total(), err
}

// lossOn runs a model on samples, compares all outputs, and judges those of the first samples: as many as memory may hold.
func (s *Sensitivity) lossOn(ctx context.Context, session execute.Session, x samples) (loss onnxq.OutputLoss, err error) {
	l, bytes := s.losses(), 0
	var want, got [][]*execute.Tensor
	err = s.each(ctx, session, x, func(w, g []*execute.Tensor) error {
		for _, t := range slices.Concat(w, g) {
			bytes += len(t.Data)
		}
		if bytes <= inMemory || len(want) == 0 {
			want, got = append(want, w), append(got, g)
		}
		return l.add(w, g)
	})
	if err != nil {
		return loss, err
	}
	var states []string
	for _, pair := range s.states {
		states = append(states, pair.Output)
	}
	loss = l.loss()
	loss.Poor = verify.WhyPoor(want, got, states)
	return loss, nil
}
