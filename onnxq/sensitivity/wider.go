package sensitivity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"onnxquant/onnxq"
)

// narrowed reports whether weights have 7 bits for which limits of the user may not hold, and which the user did not ask for.
// Where pure Go measured, nothing shows what 8 bits lose by overflows.
func (s *static) narrowed() bool {
	f := s.fit
	return s.held != nil && s.limits.given() && f.EightBits != nil && f.Options.ReduceRange && !f.exact
}

// eightBits gives weights 8 bits again if limits of the user hold then with all activations in codes, and not with 7 bits.
func (s *static) eightBits(ctx context.Context) error {
	if !s.narrowed() {
		return nil
	}
	seven, err := s.lossOfAll(ctx)
	if err != nil || s.limits.hold(seven) {
		return err
	}
	o := ofEight(s.fit.Options)
	eight, err := s.held.lossOfOutput(ctx, s.model, o)
	if err == nil && s.limits.hold(eight) {
		s.widen(o)
		s.loss = &eight
	}
	return err
}

// ofEight returns options with weights of 8 bits in place of 7. Codes that were found are of 7 bits.
func ofEight(o onnxq.Options) onnxq.Options {
	o.ReduceRange, o.FullTables, o.Codes = false, false, nil
	return o
}

// widen takes options with weights of 8 bits.
func (s *static) widen(o onnxq.Options) {
	f := s.fit
	f.Options, f.wider, f.EightBits, f.SevenBits, f.Codes, s.loss = o, true, nil, nil, nil, nil
}

// mixOfBoth finds the activations that stay in float. If limits of the user do not hold with weights of 7 bits, it tries 8, and
// takes what loses less.
func (s *static) mixOfBoth(ctx context.Context) error {
	f := s.fit
	f.Warnings = slices.Clip(f.Warnings)
	before, loss := *f, s.loss
	err := s.mix(ctx)
	switch {
	case err != nil && !errors.Is(err, ErrLimit), f.Met:
		return err
	case !s.narrowed():
		return f.nameSeven(err)
	}
	seven := *f
	*f = before
	s.widen(ofEight(f.Options))
	errOfEight := s.mix(ctx)
	if errOfEight != nil && !errors.Is(errOfEight, ErrLimit) {
		return errors.Join(errOfEight, seven.Close())
	}
	if f.Met || f.Loss.Damage < seven.Loss.Damage {
		err = errors.Join(errOfEight, seven.Close())
	} else {
		*f, s.loss = seven, loss
	}
	if err != nil {
		return fmt.Errorf("%w; weights of 7 and of 8 bits were tried", err)
	}
	return nil
}

// nameSeven names weights of 7 bits in an error about limits, which may hold with 8.
func (f *StaticFit) nameSeven(err error) error {
	switch {
	case err == nil || !f.Options.ReduceRange:
		return err
	case f.EightBits == nil:
		return fmt.Errorf("%w; weights have 7 bits, without --reduce-range 8", err)
	}
	return fmt.Errorf("%w; weights have 7 bits, because sums of products overflow on this processor; with --format int8 they have 8", err)
}
