package verify_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"onnxquant/onnxq/verify"
	"onnxquant/testmodels"
)

// FuzzModels compares whatever are models, and runs them in pure Go. There is an error
// of one line, or a report that can be printed.
func FuzzModels(f *testing.F) {
	var last []byte
	i := 0
	for _, model := range testmodels.Seeds() { // a part, for each is folded, compared and run
		switch i++; i % 8 {
		case 0:
			f.Add(last, model)
		case 4:
			f.Add(model, model)
		}
		last = model
	}
	f.Fuzz(func(t *testing.T, float, quantized []byte) {
		folder := t.TempDir()
		in, out := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "out.onnx")
		for path, model := range map[string][]byte{in: float, out: quantized} {
			if err := os.WriteFile(path, model, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go})
		if err != nil {
			if msg := err.Error(); len(msg) > 5000 || strings.ContainsFunc(msg, unicode.IsControl) {
				t.Errorf("error of %d bytes: %.2000q", len(msg), msg)
			}
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// A model that is in order is what it is itself, whatever form its weights have.
func TestSeedsAreThemselves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.onnx")
	compared := 0
	for name, model := range testmodels.Seeds() {
		if !strings.HasPrefix(name, "structures/") {
			continue
		}
		if err := os.WriteFile(path, model, 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := verify.Models(t.Context(), path, path, verify.Options{Engine: verify.None})
		if err != nil {
			continue // external data, which the seeds do not have
		}
		compared++
		if !r.Passed {
			t.Errorf("%s: %q", name, r.Failures)
		}
	}
	if compared < 40 {
		t.Errorf("only %d models were compared", compared)
	}
}
