package calibrate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// interrupted are samples whose models run so many times.
type interrupted struct {
	*calibrate.Data
	left int
}

var errStopped = errors.New("stopped")

func (i *interrupted) Run(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	if i.left--; i.left < 0 {
		return errStopped
	}
	return i.Data.Run(ctx, parts, wanted, do)
}

// A calibration that was interrupted goes on where it was, and ends with the same bytes. One with
// other options begins anew. A success leaves nothing behind.
func TestResume(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	const width = 64
	model := testmodels.MLP(1, width, width, width, width)
	model.Proto.Graph.Initializer = append(model.Proto.Graph.Initializer, &onnxpb.TensorProto{
		Name: new("words"), Dims: []int64{1}, DataType: new(int32(onnxpb.TensorProto_STRING)), StringData: [][]byte{[]byte("word")},
	})
	if err := errors.Join(model.Write(in), modeltest.WriteSamples(samples, 40, width)); err != nil {
		t.Fatal(err)
	}
	stopWriting := false
	// convert runs models so many times, and returns how many times are left.
	convert := func(out string, runs int, o onnxq.Options) (int, error) {
		data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
		if err := data.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		i := &interrupted{data, runs}
		o.Algorithm, o.Calibration = spec.Best, i
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		o.Progress = func(done, total int64) {
			if stopWriting {
				stop(errStopped)
			}
		}
		_, err := onnxq.Convert(ctx, in, filepath.Join(folder, out), o)
		return i.left, err
	}
	files := func(out string) (n int) {
		found, err := filepath.Glob(filepath.Join(folder, out+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	const groups, checks = 3, 3 // a group for each layer; the check of the outputs runs three models
	const runs = groups + checks
	// The codes, the record of them, and values between two parts of the model while parts are left.
	kept := []int{0, 3, 3, 2}
	block := onnxq.Options{Block: 32}
	if left, err := convert("whole.onnx", runs, block); err != nil || left != 0 || files("whole.onnx") != 1 {
		t.Fatalf("%v, %d runs left, %d files", err, left, files("whole.onnx"))
	}
	want, err := os.ReadFile(filepath.Join(folder, "whole.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for done := range groups + 1 {
		if _, err := convert("out.onnx", done, block); !errors.Is(err, errStopped) || files("out.onnx") != kept[done] {
			t.Fatalf("%d groups: %v, %d files", done, err, files("out.onnx"))
		}
		block.Resume = true
		left, err := convert("out.onnx", runs, block)
		block.Resume = false
		got, readErr := os.ReadFile(filepath.Join(folder, "out.onnx"))
		if err != nil || readErr != nil || left != done || !bytes.Equal(got, want) || files("out.onnx") != 1 {
			t.Fatalf("after %d groups: %v, %v, %d runs left, equal: %v, %d files", done, err, readErr, left, bytes.Equal(got, want), files("out.onnx"))
		}
		os.Remove(filepath.Join(folder, "out.onnx"))
	}
	stopWriting = true
	if _, err := convert("out.onnx", runs, block); !errors.Is(err, errStopped) || !errors.Is(err, onnxq.ErrKept) || files("out.onnx") != 2 {
		t.Fatalf("stopped while writing: %v, %d files", err, files("out.onnx"))
	}
	stopWriting, block.Resume = false, true
	if left, err := convert("out.onnx", checks, block); err != nil || left != 0 || files("out.onnx") != 1 {
		t.Fatalf("stopped while writing, resumed: %v, %d runs left, %d files", err, left, files("out.onnx"))
	}
	os.Remove(filepath.Join(folder, "out.onnx"))
	block.Resume = false
	convert("out.onnx", 2, block)
	var told []string
	other := onnxq.Options{Block: 16, Resume: true, Notify: func(text string) { told = append(told, text) }}
	if left, err := convert("out.onnx", runs, other); err != nil || left != 0 || len(told) != 1 || !strings.HasPrefix(told[0], "nothing to resume: ") {
		t.Errorf("other options: %v, %d runs left, told %q", err, left, told)
	}
}

// Outputs of which the same weights get the same codes are calibrated once, and get the bytes that they
// have alone.
func TestSharedCalibration(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(testmodels.MLP(1, 64, 64, 64).Write(in), modeltest.WriteSamples(samples, 40, 64)); err != nil {
		t.Fatal(err)
	}
	data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
	if err := data.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := onnxq.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// convert returns how often models ran, and the outputs.
	convert := func(name string, types ...spec.FloatType) (runs int, contents []string) {
		counted := &nested{data, func() { runs++ }}
		var outputs []onnxq.Output
		for _, typ := range types {
			p, err := m.Plan(onnxq.Options{Bits: 4, Block: 32, FloatType: typ, Algorithm: spec.Best, Calibration: counted})
			if err != nil {
				t.Fatal(err)
			}
			outputs = append(outputs, onnxq.Output{Plan: p, Path: filepath.Join(folder, name+string(typ)+".onnx")})
		}
		for i, made := range onnxq.ConvertAll(t.Context(), outputs) {
			content, err := os.ReadFile(outputs[i].Path)
			if err = errors.Join(made.Err, err); err != nil {
				t.Fatal(err)
			}
			contents = append(contents, string(content))
		}
		return runs, contents
	}
	_, half := convert("alone", spec.Float16)
	alone, single := convert("alone", "")
	both, contents := convert("both", "", spec.Float16)
	if both != alone || contents[0] != single[0] || contents[1] != half[0] {
		t.Errorf("%d runs for two, %d for one; equal: %v, %v", both, alone, contents[0] == single[0], contents[1] == half[0])
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*~*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// nested are samples that begin another calibration while they are asked for.
type nested struct {
	*calibrate.Data
	begin func()
}

func (n *nested) Run(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	n.begin()
	return n.Data.Run(ctx, parts, wanted, do)
}

// A calibration waits for another one to the same output, and does not touch what that has found.
func TestOneCalibrationAtATime(t *testing.T) {
	folder := t.TempDir()
	in, out, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "out.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(testmodels.MLP(1, 64, 64, 64).Write(in), modeltest.WriteSamples(samples, 40, 64)); err != nil {
		t.Fatal(err)
	}
	data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
	if err := data.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits, stop := 0, func() {}
	notify := func(text string) {
		if strings.HasPrefix(text, "another process calibrates for out.onnx") {
			waits++
			stop()
		}
	}
	convert := func(ctx context.Context, begin func()) error {
		_, err := onnxq.Convert(ctx, in, out, onnxq.Options{Algorithm: spec.Best, Calibration: &nested{data, begin}, Notify: notify})
		return err
	}
	if err := os.MkdirAll(out+".~calib.models/left", 0o777); err != nil { // by a process that died
		t.Fatal(err)
	}
	others := 0
	err := convert(t.Context(), func() {
		others++
		var ctx context.Context
		ctx, stop = context.WithCancel(t.Context()) // it ends when it is told that it waits
		defer stop()
		if err := convert(ctx, func() { t.Error("another calibration runs") }); !errors.Is(err, context.Canceled) {
			t.Errorf("another calibration: %v", err)
		}
	})
	if err != nil || others == 0 || waits != others {
		t.Errorf("%v, begun %d times, told %d times that it waits", err, others, waits)
	}
	if left, _ := filepath.Glob(out + ".*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
