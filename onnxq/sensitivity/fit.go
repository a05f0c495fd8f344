package sensitivity

import (
	"context"
	"errors"
	"slices"

	"onnxquant/internal/journal"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/rules"
	"onnxquant/spec"
)

// A Fit is what Static or Dynamic found; the other one is nil.
type Fit struct {
	Static  *StaticFit
	Dynamic *DynamicFit

	journal *journal.Journal
	done    bool
}

// Fits reports whether data decide how activations of a conversion are quantized: they are static; or they are dynamic, and
// no algorithm needs the data for codes.
func Fits(o onnxq.Options) bool {
	calibrated := func(e rules.PrecisionEntry) bool {
		return e.Override.Algorithm != nil && e.Override.Algorithm.Calibrated()
	}
	switch o.Activations {
	case spec.Static:
		return true
	case spec.Dynamic:
		return !o.Algorithm.Calibrated() && !slices.ContainsFunc(o.Precision.Entries(), calibrated)
	}
	return false
}

// FitActivations calls Static or Dynamic, as the options say. folder is for what is measured, or "". It stays until Done,
// and with o.Resume the same search of the same version of the program goes on from there; an error then wraps onnxq.ErrKept.
func FitActivations(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits, folder, version string) (f *Fit, err error) {
	at := state{folder, version}
	f = &Fit{}
	if o.Activations == spec.Dynamic {
		f.Dynamic, f.journal, err = fitDynamic(ctx, path, o, opts, limits, at)
	} else {
		f.Static, f.journal, err = fitStatic(ctx, path, o, opts, limits, at)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Options returns the options of the conversion, and warnings.
func (f *Fit) Options() (o onnxq.Options, warnings []string) {
	if f.Dynamic != nil {
		return f.Dynamic.Options, f.Dynamic.Warnings
	}
	return f.Static.Options, f.Static.Warnings
}

// Note has a plan say what was found. A nil f says nothing.
func (f *Fit) Note(p *onnxq.Plan) {
	switch {
	case f == nil:
	case f.Dynamic != nil:
		p.Dynamic = &f.Dynamic.DynamicActivations
	default:
		p.Activations = &f.Static.StaticActivations
	}
}

// Summary is that of what was found. A nil f has none.
func (f *Fit) Summary() [][2]string {
	switch {
	case f == nil:
		return nil
	case f.Dynamic != nil:
		return f.Dynamic.Summary()
	}
	return f.Static.Summary()
}

// Done notes that the model is converted: Close then removes what was measured.
func (f *Fit) Done() {
	if f != nil {
		f.done = true
	}
}

// Close removes files of what was found. The options are then of no more use.
func (f *Fit) Close() error {
	if f == nil {
		return nil
	}
	return errors.Join(f.Static.Close(), f.journal.Close(!f.done))
}
