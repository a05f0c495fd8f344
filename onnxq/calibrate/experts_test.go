package calibrate_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Sizes of the MoE in these tests. The last expert gets no rows.
const (
	testExperts = 4
	testHidden  = 64
	testInner   = 32
)

// random is a tensor of random elements.
func random(name string, scale float32, shape ...int64) *onnxpb.TensorProto {
	r, n := rand.New(rand.NewPCG(1, uint64(shape[0]+shape[1]))), int64(1)
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * scale
	}
	raw := make([]byte, 4*n)
	dtype.Float32.Encode(raw, x)
	return &onnxpb.TensorProto{Name: &name, Dims: shape, DataType: new(int32(dtype.Float32)), RawData: raw}
}

// mixture writes a model of one MoE, and samples. It returns their paths.
func mixture(t *testing.T, kind string) (in, samples string) {
	t.Helper()
	wide, inputs := int64(testInner), "x r fc1 b1 fc2"
	attrs := []*onnxpb.AttributeProto{modeltest.StringAttr("activation_type", "silu"), modeltest.IntAttr("k", 2)}
	tensors := modeltest.Tensors{random("fc2", .2, testExperts, testHidden, testInner), random("gate", .1, testHidden, testExperts)}
	switch kind {
	case "swiglu":
		wide *= 2
		attrs[0] = modeltest.StringAttr("activation_type", "swiglu")
		attrs = append(attrs, modeltest.IntAttr("swiglu_fusion", 1))
	case "fc3":
		inputs += " _ fc3"
		tensors = append(tensors, random("fc3", .1, testExperts, testInner, testHidden))
	}
	tensors = append(tensors, random("fc1", .2, testExperts, wide, testHidden), random("b1", .1, testExperts, wide))
	bias := make([]byte, 4*testExperts)
	dtype.Float32.Encode(bias, []float32{0, 0, 0, -100})
	tensors = append(tensors, &onnxpb.TensorProto{Name: new("gb"), Dims: []int64{testExperts}, DataType: new(int32(dtype.Float32)), RawData: bias})
	folder := t.TempDir()
	in, samples = filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	model := modeltest.Model(tensors, modeltest.Nodes{
		modeltest.Node("MatMul", "p", "x gate"), modeltest.Node("Add", "r", "p gb"), modeltest.Node("com.microsoft.MoE", "y", inputs, attrs...),
	})
	g := model.Proto.Graph
	g.Input = g.Input[:1]
	g.Input[0].Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
		ElemType: new(int32(dtype.Float32)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
			{}, {Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: testHidden}},
		}},
	}}}
	if err := errors.Join(model.Write(in), modeltest.WriteSamples(samples, 160, testHidden)); err != nil {
		t.Fatal(err)
	}
	return in, samples
}

// opened returns samples for the pure Go engine.
func opened(t *testing.T, in, samples string) *calibrate.Data {
	t.Helper()
	data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Samples: 160, Engine: "go"})
	if err := data.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return data
}

// Experts get codes by the rows that the router gives them, and one without rows is named. The codes are the same if the
// moments of few experts fit into memory, and in shares.
func TestExperts(t *testing.T) {
	for _, kind := range []string{"silu", "swiglu", "fc3"} {
		for _, algorithm := range []spec.Algorithm{spec.GPTQ, spec.Best, spec.AWQ} {
			if testing.Short() && (kind != "swiglu" || algorithm == spec.Best) {
				continue
			}
			t.Run(kind+" "+string(algorithm), func(t *testing.T) { testMixture(t, kind, algorithm) })
		}
	}
}

func testMixture(t *testing.T, kind string, algorithm spec.Algorithm) {
	in, samples := mixture(t, kind)
	out := filepath.Join(t.TempDir(), "out.onnx")
	options := func(memory int64) onnxq.Options {
		return onnxq.Options{
			Block: 32, Ops: []string{"MoE"}, MinElements: 1, Target: spec.ORT, Algorithm: algorithm, Memory: memory,
			Calibration: opened(t, in, samples),
		}
	}
	r, err := onnxq.Convert(t.Context(), in, out, options(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	c, weights := r.Calibration, 2
	if kind == "fc3" {
		weights = 3
	}
	if c == nil || c.Layers != weights || c.Error >= c.MSE || c.Output >= c.OutputMSE || len(c.Experts) != weights {
		t.Fatalf("%+v", c)
	}
	for _, e := range c.Experts {
		if !slices.Equal(e.Few, []int{testExperts - 1}) || e.Part != "expert" {
			t.Errorf("%+v", e)
		}
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if algorithm == spec.GPTQ {
		if _, err := onnxq.Convert(t.Context(), in, out, options(96<<10)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("other bytes with little memory, or %v", err)
		}
		checkShares(t, in, out, options(64<<20), want)
	}
}

// checkShares finds the codes of two shares.
func checkShares(t *testing.T, in, out string, o onnxq.Options, want []byte) {
	t.Helper()
	o.CalibrationStore = t.TempDir()
	for i := range 2 {
		plan, err := modeltest.Open(t, in).Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.FindShare(t.Context(), out, spec.Share{I: i, N: 2}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := onnxq.Convert(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) || len(r.Calibration.Experts) < 2 {
		t.Errorf("other bytes in shares, or %v; %+v", err, r.Calibration)
	}
}

// A calibration of experts that was interrupted goes on, with the same bytes.
func TestResumeExperts(t *testing.T) {
	in, samples := mixture(t, "swiglu")
	out := filepath.Join(t.TempDir(), "out.onnx")
	convert := func(runs int, resume bool) error {
		o := onnxq.Options{
			Block: 32, Ops: []string{"MoE"}, MinElements: 1, Target: spec.ORT, Algorithm: spec.Best, Resume: resume,
			Calibration: &interrupted{opened(t, in, samples), runs},
		}
		_, err := onnxq.Convert(context.Background(), in, out, o)
		return err
	}
	if err := convert(10, false); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := convert(1, false); !errors.Is(err, errStopped) || !errors.Is(err, onnxq.ErrKept) {
		t.Fatal(err)
	}
	if err := convert(10, true); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes, or %v", err)
	}
}

// All matrices without codes by data are named, each with its reason. If that is all of them, the note says why.
func TestFallbackExperts(t *testing.T) {
	const rows = 40
	all := func(int) bool { return true }
	added := func(row int) bool { return row%10 != 9 } // the others are held out
	few := func(row int) bool { return row < 5 }
	for _, c := range []struct {
		first func(row int) bool // rows that the first matrix gets
		few   []int
		note  string
	}{
		{all, []int{2}, ""},
		{few, []int{0, 2}, "algorithm mse: fewer than 32 rows reach some of its matrices; no row is held out of some of its matrices; the inputs of the layer are zero, NaN or infinite"},
	} {
		on, mask := random("on", 0, testExperts, rows, 1), make([]float32, testExperts*rows)
		for i := range mask {
			if reach := []func(int) bool{c.first, added, few, all}[i/rows]; reach(i % rows) {
				mask[i] = 1
			}
			if i/rows == 3 {
				mask[i] = 1e-30 // its square is 0
			}
		}
		dtype.Float32.Encode(on.RawData, mask)
		model := modeltest.Model(modeltest.Tensors{random("w", .2, testExperts, testHidden, testInner), modeltest.Integers("s", testExperts, rows, testHidden), on}, modeltest.Nodes{
			modeltest.Node("Reshape", "q", "x s"), modeltest.Node("Mul", "p", "q on"), modeltest.Node("MatMul", "y", "p w"),
		})
		model.Proto.Graph.Input = model.Proto.Graph.Input[:1]
		r := calibrated(t, model, 1, testExperts*rows*testHidden)
		if e := r.Calibration.Experts; len(e) != 1 || e[0].Part != "matrix" || !slices.Equal(e[0].Few, c.few) || !slices.Equal(e[0].NotHeldOut, []int{1}) || !slices.Equal(e[0].Unsolved, []int{3}) || e[0].UnsolvedWhy == "" {
			t.Errorf("%+v", e)
		}
		if note := r.Tensors[0].Note; note != c.note {
			t.Errorf("note %q", note)
		}
	}
}

// A weight [1, K, N] is a matrix for all rows, and a vector is a row for all matrices.
func TestStackOfOne(t *testing.T) {
	for _, c := range []struct {
		weight, shape []int64
	}{
		{[]int64{1, 16, testInner}, []int64{4, -1, 16}},
		{[]int64{2, testHidden, testInner}, []int64{testHidden}},
	} {
		model := modeltest.Model(modeltest.Tensors{random("w", .2, c.weight...), modeltest.Integers("s", c.shape...)}, modeltest.Nodes{
			modeltest.Node("Reshape", "p", "x s"), modeltest.Node("MatMul", "y", "p w"),
		})
		model.Proto.Graph.Input = model.Proto.Graph.Input[:1]
		if r := calibrated(t, model, 160, testHidden); r.Calibration.Layers != 1 || len(r.Calibration.Experts) != 0 {
			t.Errorf("%v: %+v, %+v", c.weight, r.Calibration, r.Tensors)
		}
	}
}

// calibrated converts a model by gptq, with samples of one row each.
func calibrated(t *testing.T, model *testmodels.Model, samples, columns int) *onnxq.Report {
	t.Helper()
	folder := t.TempDir()
	in, data := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(model.Write(in), modeltest.WriteSamples(data, samples, columns)); err != nil {
		t.Fatal(err)
	}
	r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), onnxq.Options{
		Block: 16, MinElements: 1, Algorithm: spec.GPTQ, Calibration: opened(t, in, data),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Matrices that one MatMul multiplies, such as those of experts, are calibrated apart. Rows of zeros do not count.
func TestStack(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	model := modeltest.Model(modeltest.Tensors{random("w", .2, testExperts, testHidden, testInner), modeltest.Integers("s", -1, testExperts, 1, testHidden), random("on", 0, testExperts, 1, 1)}, modeltest.Nodes{
		modeltest.Node("Reshape", "q", "x s"), modeltest.Node("Mul", "p", "q on"), modeltest.Node("MatMul", "y", "p w"),
	})
	g := model.Proto.Graph
	dtype.Float32.Encode(g.Initializer[2].RawData, []float32{1, 1, 0, 1}) // the third expert gets nothing
	g.Input = g.Input[:1]
	if err := errors.Join(model.Write(in), modeltest.WriteSamples(samples, 160, testExperts*testHidden)); err != nil {
		t.Fatal(err)
	}
	var outs [2][]byte
	for i, memory := range []int64{64 << 20, 48 << 10} {
		out := filepath.Join(folder, "out.onnx")
		r, err := onnxq.Convert(t.Context(), in, out, onnxq.Options{
			Block: 32, MinElements: 1, Algorithm: spec.GPTQ, Calibration: opened(t, in, samples), Memory: memory,
		})
		if err != nil {
			t.Fatal(err)
		}
		c := r.Calibration
		if c == nil || c.Layers != 1 || c.Error >= .7*c.MSE || c.Output >= .7*c.OutputMSE || len(c.Experts) != 1 || !slices.Equal(c.Experts[0].Few, []int{2}) || c.Experts[0].Part != "matrix" {
			t.Fatalf("%+v", c)
		}
		if outs[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(outs[0], outs[1]) {
		t.Error("other bytes with little memory")
	}
}

// Experts that a Gather takes out of a stack are calibrated by the rows that the router gives them, whichever factor they are.
func TestGatheredExperts(t *testing.T) {
	const top = 2
	bias := random("gb", 0, 1, testExperts)
	bestOf := modeltest.Node("TopK", "v", "r two")
	bestOf.Output = []string{"v", "at"}
	dtype.Float32.Encode(bias.RawData, []float32{0, 0, 0, -100})
	for _, c := range []struct {
		gather string
		w      []int64
		x      []int64 // the shape of the input beside the chosen matrices
		turns  bool    // a Cast passes them on, and a Transpose turns them
		first  bool    // they are the first factor
		axis   int
	}{
		{"Gather", []int64{testExperts, testInner, testHidden}, []int64{-1, 1, testHidden, 1}, false, true, 2},
		{"GatherND", []int64{testExperts, testHidden, testInner}, []int64{-1, 1, 1, testHidden}, false, false, 1},
		{"Gather", []int64{testExperts, testInner, testHidden}, []int64{-1, 1, 1, testHidden}, true, false, 2},
	} {
		indices, axes := "at", modeltest.Integers("axes", -1)
		nodes := modeltest.Nodes{
			modeltest.Node("MatMul", "p", "x gate"), modeltest.Node("Add", "r", "p gb"), bestOf,
			modeltest.Node("Reshape", "q", "x s"),
		}
		if c.gather == "GatherND" {
			indices = "apart"
			nodes = append(nodes, modeltest.Node("Unsqueeze", "apart", "at axes"))
		}
		nodes = append(nodes, modeltest.Node(c.gather, "chosen", "w "+indices))
		if c.turns {
			nodes = append(nodes, modeltest.Node("Cast", "cast", "chosen", modeltest.IntAttr("to", int64(dtype.Float32))), modeltest.Node("Transpose", "turned", "cast", modeltest.IntsAttr("perm", 0, 1, 3, 2)))
		}
		factors := map[[2]bool]string{{false, true}: "chosen q", {false, false}: "q chosen", {true, false}: "q turned"}[[2]bool{c.turns, c.first}]
		nodes = append(nodes, modeltest.Node("MatMul", "y", factors))
		model := modeltest.Model(modeltest.Tensors{
			random("w", .2, c.w...), random("gate", .1, testHidden, testExperts), bias, modeltest.Integers("s", c.x...), modeltest.Integers("two", top), axes,
		}, nodes)
		model.Proto.Graph.Input = model.Proto.Graph.Input[:1]
		folder := t.TempDir()
		in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
		if err := errors.Join(model.Write(in), modeltest.WriteSamples(samples, 160, testHidden)); err != nil {
			t.Fatal(err)
		}
		r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), onnxq.Options{
			Block: 32, MinElements: 1, Ops: []string{c.gather}, Algorithm: spec.GPTQ, Calibration: opened(t, in, samples),
		})
		if err != nil {
			t.Fatal(err)
		}
		done := r.Calibration
		if done == nil || done.Layers != 1 || done.Error >= .8*done.MSE || len(done.Experts) != 1 || !slices.Equal(done.Experts[0].Few, []int{testExperts - 1}) {
			t.Fatalf("%s: %+v, %+v", factors, done, r.Tensors)
		}
		if r.Tensors[0].Axis != c.axis {
			t.Errorf("%s: axis %d, want %d", factors, r.Tensors[0].Axis, c.axis)
		}
	}
}
