package sensitivity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// narrowedFit has weights of 7 bits as if sums of 8 had overflowed, and a least SQNR.
func narrowedFit(t *testing.T, fallback bool) *static {
	t.Helper()
	built, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	const samples, width = 12, 64
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }\n", samples, width)
	raw := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	raw = append(raw, header...)
	for i := range samples * width {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(math.Sin(float64(i*i)))))
	}
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(data, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &StaticFit{Options: onnxq.Options{Activations: spec.Static, AllowFallback: fallback}, Limits: Limits{SQNR: new(0.0)}}
	s := &static{fitting: fitting{path: modeltest.Write(t, built), data: calibrate.Options{Data: []string{data}, Engine: "go"}, options: &f.Options, limits: f.Limits}, fit: f}
	t.Cleanup(s.close)
	for _, step := range []func() error{func() error { return s.open(t.Context()) }, func() error { return s.ranges(t.Context()) }, func() error { return s.run(t.Context()) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	f.Options.ReduceRange, f.Options.FullTables, f.EightBits, f.SevenBits = true, true, &onnxq.OutputLoss{}, &onnxq.OutputLoss{}
	return s
}

// limit sets the least SQNR, as a share of the way from what 7 bits have to what 8 have, and to more.
func (s *static) limit(t *testing.T, at float64) {
	t.Helper()
	seven, err := s.lossOfAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eight, err := s.held.lossOfOutput(t.Context(), s.model, ofEight(s.fit.Options))
	if err != nil {
		t.Fatal(err)
	}
	if *eight.SQNR < *seven.SQNR+0.1 {
		t.Fatalf("SQNR %g, with 7 bits %g", *eight.SQNR, *seven.SQNR)
	}
	*s.limits.SQNR = *seven.SQNR + at*(*eight.SQNR-*seven.SQNR)
}

// Weights get 8 bits again if the user's limits hold then, and not with 7.
func TestEightBits(t *testing.T) {
	for _, c := range []struct {
		at    float64
		wider bool
	}{{-1, false}, {0.5, true}, {1.5, false}} {
		s := narrowedFit(t, false)
		s.limit(t, c.at)
		if err := s.eightBits(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f := s.fit; f.wider != c.wider || f.Options.ReduceRange == c.wider || (f.EightBits == nil) != c.wider {
			t.Errorf("%g: %+v", c.at, f)
		}
	}
}

// If the limits do not hold with any activations in float, 8 bits are tried, and the message says so.
func TestMixOfBoth(t *testing.T) {
	s := narrowedFit(t, false)
	*s.limits.SQNR = 200
	if err := s.mixOfBoth(t.Context()); !errors.Is(err, ErrLimit) || !strings.HasSuffix(err.Error(), "weights of 7 and of 8 bits were tried") {
		t.Error(err)
	}
	s = narrowedFit(t, true)
	*s.limits.SQNR = 200
	if err := s.mixOfBoth(t.Context()); err != nil || len(s.fit.Warnings) != 1 {
		t.Errorf("%v, %q", err, s.fit.Warnings)
	}
	s = narrowedFit(t, false)
	s.fit.exact = true
	*s.limits.SQNR = 200
	if err := s.mixOfBoth(t.Context()); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "--format int8") {
		t.Error(err)
	}
	s = narrowedFit(t, false)
	s.fit.EightBits = nil
	*s.limits.SQNR = 200
	if err := s.mixOfBoth(t.Context()); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "--reduce-range") {
		t.Error(err)
	}
}
