package verify_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

func TestParseGate(t *testing.T) {
	for text, want := range map[string]verify.Verdict{
		"verdict>=sound": verify.Sound, "verdict >= Poor": verify.Poor, "failed": verify.Failed,
		"passed": "", "verdict>sound": "", "": "", "sqnr>=20": "",
	} {
		got, err := verify.ParseGate(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// A gate lets sound outputs pass. Of others nothing is written, and no file is left.
func TestGate(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	for _, c := range []struct {
		bits   int
		format spec.Format
		want   verify.Verdict
	}{{8, "", verify.Sound}, {2, "", verify.Sound}} {
		m, err := onnxq.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var judged *verify.Judged
		folder := t.TempDir()
		out := filepath.Join(folder, "out.onnx")
		opts := onnxq.Options{Bits: c.bits, Format: c.format, Block: 32}
		opts.Try = verify.Gate(in, c.want, verify.Options{}, func(j *verify.Judged) { judged = j })
		p, err := m.Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Convert(t.Context(), out)
		files, _ := os.ReadDir(folder)
		switch {
		case judged == nil || judged.SQNR == nil:
			t.Fatalf("%d bits: nothing was judged: %v", c.bits, err)
		case judged.Verdict.AtLeast(c.want) != (err == nil) || err != nil && !errors.Is(err, verify.ErrGate):
			t.Errorf("%d bits: %+v, error %v", c.bits, judged, err)
		case err != nil && len(files) > 0, err == nil && len(files) != 1:
			t.Errorf("%d bits: %v are there", c.bits, files)
		case err != nil && !strings.Contains(err.Error(), "the verdict is poor"):
			t.Errorf("%d bits: %v", c.bits, err)
		}
		t.Logf("%d bits: %s %v %.1f", c.bits, judged.Verdict, judged.Reasons, *judged.SQNR)
	}
}

// Sizes that OUT fixes, and with which it does not run, are a failure: tinygpt has 128 positions.
func TestSizesThatDoNotRun(t *testing.T) {
	in := "../../testmodels/tinygpt/model.onnx"
	for size, want := range map[int64]verify.Verdict{64: verify.Sound, 200: verify.Failed} {
		out := filepath.Join(t.TempDir(), "out.onnx")
		if _, err := onnxq.Convert(t.Context(), in, out, onnxq.Options{Bits: 8, Block: 32, FixDims: map[string]int64{"t": size}}); err != nil {
			t.Fatal(err)
		}
		r, err := verify.Models(t.Context(), in, out, verify.Options{ORTLibrary: "missing"})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != want || want == verify.Failed && !strings.Contains(r.Reasons()[0], "ids:1=200") {
			t.Errorf("%d: %s %q", size, r.Verdict, r.Reasons())
		}
	}
}
