package onnxq_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// FuzzConvert converts anything that is a model, with many options. There are two allowed outcomes.
// Either there is an error of one line, and no file. Or the output was verified, has the planned
// size, and contains all tensors that were not to be quantized. The input does not change, and any
// number of threads gives the same bytes.
func FuzzConvert(f *testing.F) {
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i * 37)
	}
	which := uint32(0)
	for _, model := range testmodels.Seeds() {
		f.Add(model, data, which)
		which += 0x01234567
	}
	f.Fuzz(func(t *testing.T, model, data []byte, which uint32) {
		folder := t.TempDir()
		in := filepath.Join(folder, "in.onnx")
		modeltest.WriteFuzzed(t, in, model, data)
		before := contentsOf(t, folder)

		opts := fuzzedOptions(which)
		out := filepath.Join(t.TempDir(), "out.onnx")
		r, err := onnxq.Convert(context.Background(), in, out, opts)
		if after := contentsOf(t, folder); !bytes.Equal(after, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if left := modeltest.List(t, filepath.Dir(out)); len(left) > 0 {
				t.Errorf("%v, and %q is left", err, left)
			}
			if msg := err.Error(); len(msg) > 2000 || strings.ContainsFunc(msg, unicode.IsControl) {
				t.Errorf("error of %d bytes: %.2000q", len(msg), msg)
			}
			return
		}
		if !r.Verified {
			t.Error("not verified")
		}
		modeltest.CheckSizes(t, r)
		checkUntouched(t, in, out, r)
		checkDecoded(t, in, out, r)

		opts.Threads = 4
		again := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, in, again, opts)
		if !bytes.Equal(contentsOf(t, filepath.Dir(out)), contentsOf(t, filepath.Dir(again))) {
			t.Error("four threads give other bytes")
		}
	})
}

// fuzzedOptions derives options from a number.
func fuzzedOptions(which uint32) onnxq.Options {
	take := func(n int) int {
		v := which % uint32(n)
		which /= uint32(n)
		return int(v)
	}
	formats := spec.Formats()
	return onnxq.Options{
		Format:       formats[take(len(formats))],
		Block:        []int{0, spec.PerChannel, 2, 3, 16, 32, 1 << 20}[take(7)],
		ExternalData: []spec.ExternalData{spec.ExternalNever, spec.ExternalAlways}[take(2)],
		Target:       []spec.Target{spec.Portable, spec.ORT}[take(2)],
		Ops:          [][]string{nil, {"all"}}[take(2)],
		ZeroPoint:    take(2) == 1,
		Strict:       take(4) == 1,
		Threads:      1 + take(3),
		Style:        []spec.Style{spec.DQ, spec.DQ, spec.QDQ, spec.NBits}[take(4)],
	}
}

// contentsOf returns the names and the contents of a folder's files.
func contentsOf(t *testing.T, folder string) []byte {
	t.Helper()
	var all []byte
	for _, name := range modeltest.List(t, folder) {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		all = fmt.Appendf(all, "%s %d %s\n", name, len(b), b)
	}
	return all
}

// checkUntouched checks that the output has every tensor that was to be kept, with its name, type,
// dimensions and contents, and the parts of the model around the graph.
func checkUntouched(t *testing.T, in, out string, r *onnxq.Report) {
	t.Helper()
	quantized := map[string]bool{}
	for _, p := range r.Plan.Tensors {
		if p.Decision == onnxq.Quantize {
			quantized[p.Name] = true
		}
	}
	a, b := modeltest.Open(t, in), modeltest.Open(t, out)
	left := tensorsOf(t, b)
	for key, n := range tensorsOf(t, a) {
		if !quantized[key.name] && left[key] < n {
			t.Errorf("%d of %d tensors %+v are left", left[key], n, key)
		}
	}
	was, is := outside(a.Graph().File.Proto), outside(b.Graph().File.Proto)
	if !proto.Equal(was, is) {
		t.Errorf("the model around the graph was\n%v, is\n%v", was, is)
	}
}

// checkDecoded checks that the decoded weights have the errors that the report states.
func checkDecoded(t *testing.T, in, out string, r *onnxq.Report) {
	t.Helper()
	a, b := modeltest.Open(t, in), modeltest.Open(t, out)
	decoded := map[string]*recognize.Weight{}
	for _, w := range recognize.Weights(b.Graph()) {
		decoded[w.Name] = w
	}
	for _, want := range r.Tensors {
		if want.Form != "DequantizeLinear" {
			continue // operators that read codes leave no decoded weight
		}
		w := decoded[want.Name]
		if w == nil {
			t.Errorf("%s is not recognized", want.Name)
			continue
		}
		modeltest.CheckErrors(t, modeltest.Numbers(t, a, want.Name), w, want)
	}
}

type tensorKey struct {
	name, dims, content string
	dtype               dtype.DType
}

func tensorsOf(t *testing.T, m *onnxq.Model) map[tensorKey]int {
	t.Helper()
	count := map[tensorKey]int{}
	for where, w := range modelfile.Tensors(m.Graph().File.Proto) {
		key := tensorKey{name: w.GetName(), dims: fmt.Sprint(w.Dims), dtype: dtype.DType(w.GetDataType())}
		p, err := m.Graph().File.Payload(w)
		if err != nil {
			t.Fatal(err)
		}
		if p != nil {
			b := make([]byte, p.Size())
			if err := buffer.ReadFull(p, b, 0); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			key.content = string(b)
		}
		count[key]++
	}
	return count
}

// outside returns a model without nodes and tensors, and without versions, which conversions
// change.
func outside(m *onnxpb.ModelProto) *onnxpb.ModelProto {
	m = proto.Clone(m).(*onnxpb.ModelProto)
	m.IrVersion, m.OpsetImport, m.Functions, m.TrainingInfo = nil, nil, nil, nil
	if g := m.Graph; g != nil {
		g.Node, g.Initializer, g.SparseInitializer = nil, nil, nil
		g.Input = nil // up to IR 3, weights are inputs
	}
	return m
}
