package main

import (
	"archive/zip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Models of a folder get static activations and a cache of int8. What was measured is removed.
func TestCachesOfFolder(t *testing.T) {
	in, data := t.TempDir(), filepath.Join(t.TempDir(), "x.npz")
	out := filepath.Join(t.TempDir(), "out")
	m := graphtext.Model(t, 18, "x:float[1,2,1,2] past:float[1,2,1,2] w:float[2,3]=1,-0.5,0.25", "y = Relu(x)\npresent = Concat<axis=2>(past, y)\nz = MatMul(y, w)", "z:float present:float")
	if err := (&testmodels.Model{Proto: m}).Write(filepath.Join(in, "m.onnx")); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(data)
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(file)
	for _, name := range []string{"x.npy", "past.npy"} {
		w, err := archive.Create(name)
		if err == nil {
			_, err = w.Write(array("<f4", "8x2x1x2", slices.Repeat([]float32{1, -2, 3, 0.5}, 8)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := exec.Command("onnxquant", "--activations", "static", "--kv-cache", "int8:per-head", "--calib", data, in, out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	made := modeltest.Read(t, filepath.Join(out, "m.onnx")).Graph
	if typ := made.Input[1].GetType().GetTensorType().GetElemType(); typ != int32(onnxpb.TensorProto_INT8) {
		t.Errorf("the cache has type %d", typ)
	}
	pairs := slices.DeleteFunc(slices.Clone(made.Node), func(n *onnxpb.NodeProto) bool { return n.GetOpType() != "QuantizeLinear" })
	if len(pairs) < 2 { // in front of the product, and that of the cache
		t.Errorf("%v\n%s", pairs, b)
	}
	if left, _ := filepath.Glob(out + ".*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
}
