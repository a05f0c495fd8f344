package sensitivity_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
)

// A search that was interrupted goes on where it was, also behind a measurement that was cut, and finds the same. One with other
// options begins anew. A conversion that is done leaves nothing behind.
func TestResume(t *testing.T) {
	path, data := outlierProducts(t)
	for name, o := range map[string]onnxq.Options{
		"static":  {Activations: spec.Static},
		"gptq":    {Activations: spec.Static, Algorithm: spec.GPTQ},
		"dynamic": {Activations: spec.Dynamic},
	} {
		state := filepath.Join(t.TempDir(), "state")
		stopped := errors.New("stopped")
		// fit stops at a call of Progress, and returns the bytes of the output, or none, and the number of calls.
		version := "1"
		fit := func(o onnxq.Options, state string, stop int) (out []byte, calls int, err error) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			opts := calibrate.Options{Data: []string{data}, Engine: "go", Progress: func(string, int, int) {
				if calls++; calls == stop {
					cancel(stopped)
				}
			}}
			f, err := sensitivity.FitActivations(ctx, path, o, opts, sensitivity.Limits{}, state, version)
			if err != nil {
				return nil, calls, err
			}
			defer f.Close()
			options, _ := f.Options()
			to := filepath.Join(t.TempDir(), "out.onnx")
			if _, err := onnxq.Convert(t.Context(), path, to, options); err != nil {
				return nil, calls, err
			}
			f.Done()
			out, err = os.ReadFile(to)
			return out, calls, err
		}
		want, calls, err := fit(o, "", 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, part := range []int{6, 8} {
			stop := max(calls*part/9, 1)
			if _, _, err := fit(o, state, stop); !errors.Is(err, stopped) || !errors.Is(err, onnxq.ErrKept) {
				t.Fatalf("%s, stopped at %d of %d: %v", name, stop, calls, err)
			}
			cut(t, filepath.Join(state, "measured"))
			var told []string
			again := o
			again.Resume, again.Notify = true, func(text string) { told = append(told, text) }
			got, _, err := fit(again, state, 0)
			if err != nil || !bytes.Equal(got, want) || len(told) != 1 || !strings.HasPrefix(told[0], "going on behind ") {
				t.Errorf("%s, resumed at %d of %d: %v, equal: %v, told %q", name, stop, calls, err, bytes.Equal(got, want), told)
			}
			if _, err := os.Stat(state); err == nil {
				t.Errorf("%s: %s is left", name, state)
			}
		}
		for what, change := range map[string]func(o *onnxq.Options){
			"elements":  func(o *onnxq.Options) { o.MinElements = 1 },
			"algorithm": func(o *onnxq.Options) { o.Algorithm = spec.MSE },
			"version":   func(*onnxq.Options) { version = "2" },
		} {
			version = "1"
			fit(o, state, calls/2)
			told := 0
			other := o
			other.Resume, other.Notify = true, func(string) { told++ }
			if change(&other); other.Activations == spec.Dynamic && what == "algorithm" {
				continue
			}
			if _, _, err := fit(other, state, 0); err != nil || told != 1 {
				t.Errorf("%s, other %s: %v, told %d times", name, what, err, told)
			}
		}
	}
}

// cut takes the last byte of a file, as a crash may.
func cut(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-1)
	}
	if err != nil {
		t.Fatal(err)
	}
}
