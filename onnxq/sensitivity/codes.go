package sensitivity

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
)

// codes finds the codes of weights by the inputs that they get in the quantized model, and corrects biases. They are
// kept if the held-out samples lose less than with weights that are rounded to nearest.
func (s *static) codes(ctx context.Context) error {
	if s.held == nil || s.algorithm == "" || s.fit.HeldOut == 0 {
		return nil // nothing shows a gain, or none is asked for
	}
	plain := s.fit.Options
	plain.Codes = nil
	p, err := s.model.Plan(plain)
	if err != nil {
		return err
	}
	data := calibrate.New(s.path, s.data)
	if err := data.Open(ctx); err != nil {
		return err
	}
	var progress func(done, total int64)
	if s.data.Progress != nil {
		progress = func(done, total int64) {
			s.data.Progress("finding codes", int(time.Duration(done).Milliseconds()), int(time.Duration(total).Milliseconds()))
		}
	}
	o := onnxq.CodesOptions{Algorithm: s.algorithm, Progress: progress}
	if s.journal != nil {
		o.Folder, o.Key = s.codesFolder()
	}
	found, err := p.FindCodes(ctx, data, o)
	if err != nil || found == nil {
		return err
	}
	kept, err := s.keepCodes(ctx, plain, found)
	if !kept {
		found.Close()
	}
	return err
}

// codesFolder returns a folder for a search for codes, and the key of its result.
func (s *fitting) codesFolder() (folder, key string) {
	s.searches++
	return filepath.Join(s.journal.Folder(), fmt.Sprintf("codes-%d", s.searches)), fmt.Sprintf("%s %d", s.journalKey, s.searches)
}

// codesAgain finds codes for what is left in codes, if some activations stay in float.
func (s *static) codesAgain(ctx context.Context) error {
	if len(s.fit.Float) == 0 {
		return nil
	}
	return s.codes(ctx)
}

// keepCodes takes codes that were found for options if the held-out samples lose less.
func (s *static) keepCodes(ctx context.Context, plain onnxq.Options, found *onnxq.Codes) (kept bool, err error) {
	f := s.fit
	have, mixed := f.Loss, len(f.Float) > 0
	if !mixed {
		if have, err = s.lossOfAll(ctx); err != nil {
			return false, err
		}
	}
	made := &onnxq.FoundCodes{Algorithm: s.algorithm, Tried: found.Weights(), Before: have, After: have}
	if f.Options.Codes != nil { // of the model with all activations in codes
		made.Weights, made.Biases = f.Options.Codes.Weights(), f.Options.Codes.Biases()
		if made.Before, err = s.held.lossOfOutput(ctx, s.model, plain); err != nil {
			return false, err
		}
		if made.Before.Damage <= have.Damage { // floats among activations have undone the gain
			f.Options.Codes.Close()
			f.Options, have = plain, made.Before
			made.Weights, made.Biases, made.After = 0, 0, have
			f.settle(have)
		}
	}
	f.Codes = made
	plain.Codes = found
	after, err := s.held.lossOfOutput(ctx, s.model, plain)
	if err != nil || !(after.Damage < have.Damage*(1-leastGain)) {
		return false, err
	}
	f.Options.Codes.Close()
	f.Options.Codes = found
	made.Weights, made.Biases, made.After = found.Weights(), found.Biases(), after
	if mixed {
		f.settle(after)
	} else {
		s.loss = &after
	}
	return true, nil
}

// settle notes the loss of the held-out samples, and whether the limits hold.
func (f *StaticFit) settle(loss onnxq.OutputLoss) {
	x := &mix{limits: f.Limits, loss: &outcome{limit: f.Limit}}
	x.settle(loss)
	f.Loss, f.Met = loss, x.loss.met
}

// codesText says what codes gained that data found.
func (f *StaticFit) codesText() string {
	c := f.Codes
	if c.Weights == 0 {
		return fmt.Sprintf("%s does not lower the loss: weights are rounded to nearest", c.Algorithm)
	}
	text := fmt.Sprintf("%s for %s", c.Algorithm, english.Plural(c.Weights, "weight", ""))
	if c.Biases > 0 {
		text += fmt.Sprintf(", %s corrected", english.Plural(c.Biases, "bias", "biases"))
	}
	return fmt.Sprintf("%s: damage %.2g, rounded to nearest %.2g", text, c.After.Damage, c.Before.Damage)
}

// Close removes the codes that were found. The options are then of no more use.
func (f *StaticFit) Close() error {
	if f == nil {
		return nil
	}
	return f.Options.Codes.Close()
}
