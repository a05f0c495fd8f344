package ort

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/ort/wire"
	"onnxquant/internal/run/synth"
	"onnxquant/internal/testing/modeltest"
)

// runner builds onnxquant-ort and finds ONNX Runtime. The tests in Python name the library of
// their environment.
func runner(t *testing.T) *Runner {
	t.Helper()
	if _, err := findLibrary(t.Context(), ""); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	build := exec.Command("go", "build", "-o", folder+string(filepath.Separator), "../../../../cmd/onnxquant-ort")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	r, err := Find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func inputs(t *testing.T, path string, seed uint64) []*execute.Tensor {
	t.Helper()
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	list, err := synth.Inputs(m, synth.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSessions(t *testing.T) {
	r := runner(t)
	t.Run("many runs", r.testRuns)
	t.Run("errors", r.testErrors)
	t.Run("cancelled", r.testCancelled)
	t.Run("endless", r.testEndless)
	t.Run("crash", r.testCrash)
	t.Run("memory", r.testMemory)
	t.Run("timed", r.testTimed)
}

// A session runs many times. It returns the outputs, or values inside the graph on request,
// as the other engine computes them.
func (r *Runner) testRuns(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	value := m.Proto.Graph.Node[0].Output[0]
	output := m.Proto.Graph.Output[0].GetName()
	m.Close()
	s, err := r.Open(t.Context(), path, value)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for seed := range uint64(3) {
		in := inputs(t, path, seed)
		want, err := evaluate.Go.Run(t.Context(), path, in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Run(in)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d outputs, %v", len(got), err)
		}
		c, err := execute.Compare([][]*execute.Tensor{want}, [][]*execute.Tensor{got})
		if err != nil || c[0].SQNR < 100 {
			t.Errorf("%+v, %v", c, err)
		}
		both, err := s.Run(in, value, output)
		if err != nil || len(both) != 2 || both[0].Name != value || both[0].Len() == 0 || !slices.Equal(both[1].Data, got[0].Data) {
			t.Errorf("%d values, %v", len(both), err)
		}
	}
}

// An error leaves the session as it was.
func (r *Runner) testErrors(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	s, err := r.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := inputs(t, path, 1)
	if _, err := s.Run(in, "missing"); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("an unknown output: %v", err)
	}
	if _, err := s.Run(nil); err == nil {
		t.Error("no inputs are no error")
	}
	if _, err := s.Run(in); err != nil {
		t.Error(err)
	}
	if _, err := r.Open(t.Context(), filepath.Join(t.TempDir(), "missing.onnx")); err == nil || !strings.Contains(err.Error(), "missing.onnx") {
		t.Errorf("a missing model: %v", err)
	}
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("This is no library."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Runner{helper: r.helper, library: text}).Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "text.so") || strings.Contains(err.Error(), "\n") {
		t.Errorf("no library: %v", err)
	}
}

// A session measures runs. A profile is a file of the given name.
func (r *Runner) testTimed(t *testing.T) {
	path, folder := modeltest.Build(t, "mlp"), t.TempDir()
	s, err := r.AsUsers().Threads(1).Profiling(filepath.Join(folder, "profile")).Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Time(wire.Time{Most: 1}); err == nil || !strings.Contains(err.Error(), "no inputs") {
		t.Errorf("without inputs: %v", err)
	}
	if err := s.Bind(inputs(t, path, 1)); err != nil {
		t.Fatal(err)
	}
	timing, peak, err := s.Time(wire.Time{Warm: time.Millisecond, For: time.Minute, Most: 7})
	if err != nil || len(timing.Runs) != 7 || slices.Min(timing.Runs) <= 0 || timing.CPU < 0 || s.Loaded <= 0 {
		t.Errorf("%+v, loaded in %v, %v", timing, s.Loaded, err)
	}
	if runtime.GOOS != "windows" && (peak < 1<<20 || peak > 1<<34) {
		t.Errorf("%d bytes of memory", peak)
	}
	if timing, _, err := s.Time(wire.Time{Most: 7}); err != nil || len(timing.Runs) != 1 {
		t.Errorf("in no time: %+v, %v", timing, err)
	}
	file, err := s.EndProfile()
	text, err2 := os.ReadFile(file)
	if err != nil || err2 != nil || filepath.Dir(file) != folder || !strings.Contains(string(text), `"op_name"`) {
		t.Errorf("%s: %v, %v: %.300s", file, err, err2, text)
	}
}

// endless writes a model that never ends.
func endless(t *testing.T) string {
	t.Helper()
	scalar := func(name string, typ dtype.DType) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(typ)), Shape: &onnxpb.TensorShapeProto{}},
		}}}
	}
	body := modeltest.GraphAttr("body", nil, modeltest.Node("Identity", "more", "cond"), modeltest.Node("Neg", "next", "v"))
	body.G.Input = []*onnxpb.ValueInfoProto{scalar("n", dtype.Int64), scalar("cond", dtype.Bool), scalar("v", dtype.Float32)}
	body.G.Output = []*onnxpb.ValueInfoProto{scalar("more", dtype.Bool), scalar("next", dtype.Float32)}
	m := modeltest.Model(nil, modeltest.Nodes{modeltest.Node("Loop", "y", "_ _ x", body)})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	return modeltest.Write(t, m)
}

// The end of the context ends a run, and its cause is the error.
func (r *Runner) testCancelled(t *testing.T) {
	path := endless(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := r.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
	if _, err := s.Run(inputs(t, path, 1)); err != cause {
		t.Error(err)
	}
	if _, err := s.Run(inputs(t, path, 1)); err != cause {
		t.Errorf("afterwards: %v", err)
	}
}

// A run without end is stopped, if nobody sets a limit of time.
func (r *Runner) testEndless(t *testing.T) {
	path := endless(t)
	s, err := r.Within(time.Second).Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(inputs(t, path, 1)); err == nil || !strings.Contains(err.Error(), "loop without end") {
		t.Error(err)
	}
}

// A crash is an error of one line. A process that is killed has not crashed.
func (r *Runner) testCrash(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	path := endless(t)
	for signal, suffix := range map[syscall.Signal]string{syscall.SIGABRT: ": SIGABRT: abort", syscall.SIGKILL: ": signal: killed"} {
		s, err := r.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.AfterFunc(100*time.Millisecond, func() { s.cmd.Process.Signal(signal) })
		_, err = s.Run(inputs(t, path, 1))
		if err == nil || !strings.HasPrefix(err.Error(), "the process of ONNX Runtime ended: ") || !strings.HasSuffix(err.Error(), suffix) {
			t.Error(err)
		}
		if errors.Is(err, ErrKilled) != (signal == syscall.SIGKILL) {
			t.Errorf("%v: killed?", err)
		}
		if _, again := s.Run(nil); again != err {
			t.Errorf("afterwards: %v", again)
		}
	}
}

// A model that wants more memory than there is gets an error, before the system is out of it.
func (r *Runner) testMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no limit")
	}
	m := modeltest.Model(modeltest.Tensors{modeltest.Integers("shape", 1<<38)}, modeltest.Nodes{modeltest.Node("Expand", "h", "x shape"), modeltest.Node("Exp", "y", "h")})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	s, err := r.Open(t.Context(), modeltest.Write(t, m))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.cmd.Process.Pid))
	if err != nil || !regexp.MustCompile(`Max data size +\d+ `).Match(limits) {
		t.Errorf("%v\n%s", err, limits)
	}
	if _, err := s.Run([]*execute.Tensor{{Name: "x", DType: dtype.Float32, Data: make([]byte, 4)}}); err == nil || !strings.Contains(err.Error(), "Failed to allocate memory") {
		t.Error(err)
	}
}
