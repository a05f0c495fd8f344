package sensitivity

import (
	"context"
	"errors"

	"onnxquant/internal/journal"
	"onnxquant/internal/layerfit"
	runsamples "onnxquant/internal/run/samples"
	"onnxquant/internal/run/synth"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
)

// fitting is what Static and Dynamic share: a model, its samples, and the float model's outputs for them.
type fitting struct {
	path    string
	all     *calibrate.Data
	data    calibrate.Options // of the samples that are not held out, once open has run
	model   *onnxq.Model
	held    *Sensitivity   // the float model's outputs; nil if none can be compared
	options *onnxq.Options // of the fit
	limits  Limits
	apart   int // samples that are held out
	state   state
	journal *journal.Journal

	journalKey string
	searches   int // for codes so far

	algorithm spec.Algorithm // that the user asks for, or ""
}

// state says where a journal is.
type state struct {
	folder  string // "": there is none
	version string // of the program
}

func (s *fitting) close() {
	if s.held != nil {
		s.held.Close()
	}
	if s.model != nil {
		s.model.Close()
	}
}

// open opens the model, and divides the samples.
func (s *fitting) open(ctx context.Context) (err error) {
	if s.model, err = s.float(*s.options); err != nil {
		return err
	}
	s.all = calibrate.New(s.path, s.data)
	if err := s.all.Open(ctx); err != nil {
		return err
	}
	s.apart = s.all.Len() / 4
	s.data.Samples = s.all.Len() - s.apart
	return s.keep(ctx)
}

// keep opens the journal, if there is a folder for it.
func (s *fitting) keep(ctx context.Context) error {
	if s.state.folder == "" {
		return nil
	}
	asked := *s.options
	asked.Algorithm = s.algorithm
	key, err := journalKey(ctx, s.state.version, s.model, s.all, asked, s.limits)
	if err != nil {
		return err
	}
	s.journalKey = key
	s.journal, err = journal.Open(ctx, s.state.folder, key, journalOptions(s.state.folder, s.options))
	s.options.Resume = false // it is not of the conversion
	return err
}

// failed ends a search that an error ended. What was measured is kept, unless the search is finished or needs other samples.
func (s *fitting) failed(err error) error {
	if s.journal == nil || errors.Is(err, ErrLimit) || errors.Is(err, runsamples.ErrOutputs) {
		return errors.Join(err, s.journal.Close(false))
	}
	return errors.Join(layerfit.Keep(err), s.journal.Close(true))
}

// float opens the model, folded and with factors if options say so. The values of the folded model are values of the model at
// the path, which the samples run through.
func (s *fitting) float(o onnxq.Options) (*onnxq.Model, error) {
	m, err := onnxq.Open(s.path)
	if err != nil {
		return nil, err
	}
	made := m
	if o.Fold {
		made, err = m.Folded()
	}
	if err == nil {
		made, err = withBalance(made, o)
	}
	if err != nil {
		m.Close()
	}
	return made, err
}

// run runs the float model on all samples.
func (s *fitting) run(ctx context.Context) (err error) {
	s.held, err = s.heldOut(ctx)
	return err
}

// heldOut runs the float model on all samples. It returns nil if no output can be compared.
func (s *fitting) heldOut(ctx context.Context) (held *Sensitivity, err error) {
	engine := s.all.Engine()
	if fp8(*s.options) {
		engine = engine.Plain() // ONNX Runtime's optimizations make operators of FP8 codes that it has not
	}
	held = &Sensitivity{path: s.path, opts: s.data, engine: engine, all: true, journal: s.journal}
	if s.journal != nil {
		held.store.parent = s.journal.Folder()
	}
	m := s.model.Graph().File
	if held.outputs = all(m.Proto.GetGraph()); len(held.outputs) == 0 {
		return nil, nil
	}
	if held.session, err = held.engine.Open(ctx, s.path); err == nil {
		err = held.run(ctx, s.all)
	}
	if err == nil {
		held.states = synth.Carried(m)
		err = held.link(ctx)
	}
	if held.session != nil { // its process takes memory
		held.session.Close()
		held.session = nil
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}
