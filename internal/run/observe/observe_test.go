package observe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/run/synth"
	"onnxquant/internal/testing/modeltest"
)

// engines are pure Go and, if it is found, ONNX Runtime.
func engines(t *testing.T) []*Engine {
	t.Helper()
	folder := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", folder+string(filepath.Separator), "../../../cmd/onnxquant-ort").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	list := []*Engine{{}}
	if e, err := Find(t.Context(), ORT, ""); err == nil {
		list = append(list, e)
	} else {
		t.Log(err)
	}
	return list
}

// data are three samples for the model at path, which has one input x [batch, k].
func data(t *testing.T, path string) *samples.Samples {
	t.Helper()
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	inputs, err := synth.Inputs(m, synth.Options{Seed: 1, Dims: map[string]int64{"batch": 3}})
	if err != nil {
		t.Fatal(err)
	}
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (3, %d), }\n", inputs[0].Dims[1])
	file := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(file, slices.Concat([]byte("\x93NUMPY\x01\x00"), []byte{byte(len(header)), 0}, []byte(header), inputs[0].Data), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := samples.Open(m, []string{file}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Both engines hand on the same values, in groups of any size.
func TestValues(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	s := data(t, path)
	names := []string{"x", "m0", "h0", "y"}
	var want map[string][]float32
	for _, e := range engines(t) {
		for _, memory := range []int64{0, 1} {
			got, runs := map[string][]float32{}, 0
			opts := Options{Memory: memory, Progress: func(done, total int) { runs = total }}
			err := e.Values(t.Context(), path, s, names, opts, func(v *execute.Tensor) error {
				got[v.Name] = append(got[v.Name], v.Float32s()...)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			for _, name := range names {
				near := slices.EqualFunc(got[name], want[name], func(a, b float32) bool { return a-b < 1e-4 && b-a < 1e-4 })
				if len(got[name]) == 0 || !near {
					t.Errorf("go %v, memory %d: %s differs", e.IsGo(), memory, name)
				}
			}
			if expect := map[bool]int{true: 3, false: 12}[e.IsGo() || memory == 0]; runs != expect {
				t.Errorf("go %v, memory %d: %d runs, want %d", e.IsGo(), memory, runs, expect)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	for _, e := range engines(t) {
		err := e.Values(t.Context(), path, data(t, path), []string{"missing"}, Options{}, nil)
		if err == nil || !strings.Contains(err.Error(), "missing") || strings.Contains(err.Error(), "\n") {
			t.Errorf("go %v: %v", e.IsGo(), err)
		}
	}
	if _, err := Find(t.Context(), ORT, filepath.Join(t.TempDir(), "missing.so")); err == nil {
		t.Error("a missing library is no error")
	}
	if _, err := (&Engine{}).OpenWith(t.Context(), path, nil); err != ErrGo {
		t.Error(err)
	}
}

func TestGrouped(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for limit, want := range map[int64]string{1: "[[a] [b] [c] [d]]", 5: "[[a b] [c] [d]]", 100: "[[a b c d]]"} {
		if got := fmt.Sprint(grouped(names, []int64{2, 3, 9, 1}, limit)); got != want {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
	}
}

// What is missing is told, unless pure Go was asked for.
func TestLacked(t *testing.T) {
	t.Setenv("PATH", "") // the test has no onnxquant-ort beside it
	for name, want := range map[string]string{Auto: "put the program onnxquant-ort, ", Go: ""} {
		e, err := Find(t.Context(), name, "")
		if err != nil || !e.IsGo() {
			t.Fatalf("%s: %v", name, err)
		}
		if got := e.Lacked(); (got != nil) != (want != "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
