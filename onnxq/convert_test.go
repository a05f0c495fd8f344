package onnxq_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/commit"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/quantutil"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// The streaming converter agrees with the reference's routine for whole tensors, for every kind of
// model and any tiles.
func TestConvertAgreesWithReference(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "nan" || kind.Name == "bfloat16" { // the reference has no bfloat16 scales
			continue
		}
		for _, opts := range []onnxq.Options{
			{Bits: 4, Block: 32}, {Bits: 4, Block: 3}, {Bits: 8, Block: spec.PerChannel}, {Bits: 4, Block: spec.PerChannel},
			{Bits: 2, Block: 16, Range: spec.Range{Kind: spec.MinMax}}, {Bits: 4, Block: 32, Ops: []string{"all"}},
		} {
			for _, limit := range []int64{8, 500, modeltest.LargestTile} {
				t.Run(fmt.Sprintf("%s/%d bits/block %d/limit %d", kind.Name, opts.Bits, opts.Block, limit), func(t *testing.T) {
					in := modeltest.Open(t, modeltest.Build(t, kind.Name))
					r, out := modeltest.ConvertInTiles(t, in, opts, limit)
					want := weightsOf[kind.Name]
					if len(opts.Ops) > 0 {
						want += othersOf[kind.Name]
					}
					if len(r.Plan.Stages().Weights) != want {
						t.Errorf("%d weights, want %d", len(r.Plan.Stages().Weights), want)
					}
					q := modeltest.Open(t, out)
					for _, w := range r.Plan.Stages().Weights {
						compareWithReference(t, in, q, w)
					}
				})
			}
		}
	}
}

// The number of weights of MatMul and Gemm in each kind of model, and of other
// operators.
var (
	weightsOf = map[string]int{
		"mlp": 3, "odd": 1, "behind": 1, "gemm": 1, "gemm_transb": 1, "embedding": 1, "tied": 1, "shared": 1, "if": 1,
		"float16": 3, "float64": 3, "external": 3, "opset11": 1, "names": 2,
	}
	othersOf = map[string]int{"embedding": 1, "conv": 3}
)

func compareWithReference(t *testing.T, in, out *onnxq.Model, w rewrite.Weight) {
	t.Helper()
	_, src := modeltest.Tensor(t, in, w.Value.Name)
	tensor, err := quantutil.FromBytes(w.DType, src, ints(w.Choice.Operand.View)...)
	if err != nil {
		t.Fatal(err)
	}
	if w.DType == dtype.Float64 { // the converter rounds to float32 first; ONNX has no float64 scales
		if tensor, err = tensor.Astype(dtype.Float32); err != nil {
			t.Fatal(err)
		}
	}
	wq, scale, _, err := quantutil.QuantTensor(tensor, int(min(w.Form.Block, w.Form.K)), w.Choice.Operand.Axis, 1, false, w.Choice.Format.Bits())
	if err != nil {
		t.Fatal(err)
	}
	_, gotScale := modeltest.Tensor(t, out, w.Tensors.Scales.GetName())
	if !bytes.Equal(gotScale, scale.Bytes()) {
		t.Errorf("%s: scales differ", w.Value.Name)
	}
	codes := make([]byte, len(wq.Data))
	for i, v := range wq.Data {
		codes[i] = byte(int8(v))
	}
	want := make([]byte, int4.PackedLen(len(codes), w.Choice.Format.Bits()))
	int4.Pack(want, codes, w.Choice.Format.Bits())
	if _, got := modeltest.Tensor(t, out, w.Tensors.Codes.GetName()); !bytes.Equal(got, want) {
		t.Errorf("%s: codes differ", w.Value.Name)
	}
}

func TestSameBytesAtAnyThreadCount(t *testing.T) {
	in := modeltest.Write(t, testmodels.MLP(7, 333, 777, 55))
	for _, zero := range []bool{false, true} {
		for _, external := range []spec.ExternalData{spec.ExternalNever, spec.ExternalAlways} {
			var want []byte
			for _, threads := range []int{1, 2, 3, 8, 16, 16} {
				got := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{Block: 5, ZeroPoint: zero, Threads: threads, ExternalData: external})
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d threads give other bytes", threads)
				}
			}
		}
	}
}

// Replacing an output and its external data gives the bytes of a conversion into an empty folder,
// and leaves no other file. This holds for the same options and for others.
func TestReplaceExternalPair(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	folder := t.TempDir()
	out := filepath.Join(folder, "out.onnx")
	for _, opts := range []onnxq.Options{{Block: 32}, {Block: 32}, {Block: 16}, {Bits: 8, Block: spec.PerChannel}} {
		opts.ExternalData = spec.ExternalAlways
		want := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), opts)
		if got := modeltest.Convert(t, in, out, opts); !bytes.Equal(got, want) {
			t.Errorf("%+v: other bytes than in an empty folder", opts)
		}
		if names := msg.List(modeltest.List(t, folder)); names != "out.onnx, out.onnx.data" {
			t.Errorf("the folder holds %s", names)
		}
	}
}

func TestRefusedTargets(t *testing.T) {
	for _, c := range []struct {
		name string
		opts onnxq.Options
		out  func(t *testing.T, in string) string
		want string
	}{
		{"the input", onnxq.Options{}, func(t *testing.T, in string) string { return in }, "file of the input model"},
		{"a link to the input", onnxq.Options{}, func(t *testing.T, in string) string {
			link := filepath.Join(t.TempDir(), "link.onnx")
			if err := os.Symlink(in, link); err != nil {
				t.Skip(err)
			}
			return link
		}, "file of the input model"},
		{"the input's data", onnxq.Options{}, func(t *testing.T, in string) string { return filepath.Join(filepath.Dir(in), "weights.bin") }, "file of the input model"},
		{"a folder", onnxq.Options{}, func(t *testing.T, in string) string { return t.TempDir() }, "a folder"},
		{"no folder", onnxq.Options{}, func(t *testing.T, in string) string { return filepath.Join(t.TempDir(), "none", "out.onnx") }, "no such file"},
		{"data of another model", onnxq.Options{ExternalData: spec.ExternalAlways}, func(t *testing.T, in string) string {
			out := filepath.Join(t.TempDir(), "out.onnx")
			if err := os.WriteFile(out+".data", []byte("precious"), 0o666); err != nil {
				t.Fatal(err)
			}
			return out
		}, "belongs to no model of that name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := modeltest.Build(t, "external")
			before := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), c.opts)
			out := c.out(t, in)
			names := modeltest.List(t, filepath.Dir(in))
			_, err := onnxq.Convert(context.Background(), in, out, c.opts)
			if err == nil || !errors.Is(err, commit.ErrTarget) && !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if after := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), c.opts); !bytes.Equal(before, after) {
				t.Error("the input was changed")
			}
			if now := modeltest.List(t, filepath.Dir(in)); !slices.Equal(names, now) {
				t.Errorf("the input's folder holds %v", now)
			}
		})
	}
}

func TestNaNStaysFloat(t *testing.T) {
	in := modeltest.Build(t, "nan")
	out := filepath.Join(t.TempDir(), "out.onnx")
	r, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Plan.Warnings) != 1 || !strings.Contains(r.Plan.Warnings[0], `"w1"`) || len(r.Tensors) != 2 {
		t.Errorf("warnings %q, %d tensors quantized", r.Plan.Warnings, len(r.Tensors))
	}
	_, before := modeltest.Tensor(t, modeltest.Open(t, in), "w1")
	if _, after := modeltest.Tensor(t, modeltest.Open(t, out), "w1"); !bytes.Equal(before, after) {
		t.Error("the weight was changed")
	}
	folder := t.TempDir()
	_, err = onnxq.Convert(context.Background(), in, filepath.Join(folder, "out.onnx"), onnxq.Options{Block: 32, Strict: true})
	if !errors.Is(err, onnxq.ErrStrict) || !strings.Contains(err.Error(), `"w1"`) {
		t.Errorf("strict: %v", err)
	}
	if names := modeltest.List(t, folder); len(names) > 0 {
		t.Errorf("strict: left %v", names)
	}
}

// A weight whose codes would all be 0 is not quantized.
func TestTinyWeightsStayFloat(t *testing.T) {
	m := testmodels.MLP(1, 8, 4)
	for _, w := range m.Proto.Graph.Initializer {
		if len(w.Dims) == 2 {
			w.RawData = bytes.Repeat([]byte{1, 0, 0, 0}, 32) // 2^-149
		}
	}
	r, err := onnxq.Convert(context.Background(), modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tensors) != 0 || !strings.Contains(strings.Join(r.Plan.Warnings, " "), "too small") {
		t.Errorf("%d tensors quantized, warnings %q", len(r.Tensors), r.Plan.Warnings)
	}
}

// The parts of the model besides weights are written unchanged.
func TestNothingIsLost(t *testing.T) {
	m := testmodels.MLP(3, 64, 32)
	m.Proto.MetadataProps = []*onnxpb.StringStringEntryProto{{Key: new("k"), Value: new("v")}}
	m.Proto.DocString = new("doc")
	m.Proto.ProtoReflect().SetUnknown([]byte{0xc0, 0x99, 0x04, 7})
	m.Proto.Graph.Node[0].DocString = new("node doc")
	m.Proto.Graph.Initializer = append(m.Proto.Graph.Initializer,
		&onnxpb.TensorProto{Name: new("ints"), DataType: new(int32(onnxpb.TensorProto_INT64)), Dims: []int64{2}, Int64Data: []int64{1, -1}})
	in := modeltest.Write(t, m)
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})

	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	quantized := func(name string) bool {
		return slices.Contains([]string{"w0", "w0_i4", "w0_scale", "w0_DequantizeLinear"}, name)
	}
	got.Graph.Initializer = slices.DeleteFunc(got.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return quantized(t.GetName()) })
	got.Graph.Node = slices.DeleteFunc(got.Graph.Node, func(n *onnxpb.NodeProto) bool { return quantized(n.GetName()) })
	want := proto.Clone(m.Proto).(*onnxpb.ModelProto)
	want.Graph.Initializer = slices.DeleteFunc(want.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return quantized(t.GetName()) })
	if !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestErrorStatistics(t *testing.T) {
	in := modeltest.Build(t, "odd")
	out := filepath.Join(t.TempDir(), "out.onnx")
	r, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	w := r.Tensors[0]
	_, src := modeltest.Tensor(t, modeltest.Open(t, in), w.Name)
	x := make([]float32, len(src)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	shape := []int{int(w.Shape[0]), int(w.Shape[1])}
	tensor, _ := quantutil.FromFloat32(x, shape...)
	q, s, _, err := quantutil.QuantTensor(tensor, 32, 0, 1, false, 4)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := quantutil.DQTensor(q, s, 32, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var squares, errs, most float64
	for i, v := range decoded.Float32s() {
		d := float64(x[i]) - float64(v)
		squares += float64(x[i]) * float64(x[i])
		errs += d * d
		most = max(most, math.Abs(d))
	}
	if w.MaxError != most || math.Abs(w.MSE-errs/float64(len(x))) > 1e-12 || math.Abs(w.SQNR-10*math.Log10(squares/errs)) > 1e-9 {
		t.Errorf("max %g, MSE %g, SQNR %g; want %g, %g, %g", w.MaxError, w.MSE, w.SQNR, most, errs/float64(len(x)), 10*math.Log10(squares/errs))
	}
}
