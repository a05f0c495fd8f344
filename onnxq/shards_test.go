package onnxq_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// A browser cannot read a file of 2 GiB or more, so data are split into shards.
func TestShardsForBrowsers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the data would not be sparse")
	}
	const side = 1 << 14 // 1 GiB of floats
	tensors := modeltest.Tensors{}
	for _, name := range []string{"u", "v", "w"} {
		tensors = append(tensors, &onnxpb.TensorProto{
			Name: &name, DataType: new(int32(dtype.Float32)), Dims: []int64{side, side}, DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
			ExternalData: []*onnxpb.StringStringEntryProto{{Key: new("location"), Value: new("in.data")}},
		})
	}
	path := modeltest.Write(t, modeltest.Model(tensors, modeltest.Nodes{
		modeltest.Node("MatMul", "p", "x u"), modeltest.Node("MatMul", "q", "p v"), modeltest.Node("MatMul", "y", "q w"),
	}))
	data := filepath.Join(filepath.Dir(path), "in.data")
	if err := os.WriteFile(data, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(data, 4*side*side); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts onnxq.Options
		want []string
		most int64
	}{
		{onnxq.Options{Target: spec.ORT}, []string{"model.onnx.data"}, 4 << 30},
		{onnxq.Options{Target: spec.ORTWeb}, []string{"model.onnx.data", "model.onnx.data_1", "model.onnx.data_2"}, 1<<31 - 1},
		{onnxq.Options{Target: spec.ORTWeb, ShardSize: 2 << 30}, []string{"model.onnx.data", "model.onnx.data_1"}, 2 << 30},
	} {
		c.opts.MinElements = 1 << 40
		plan, err := modeltest.Open(t, path).Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		out := plan.Stages().Output
		if got := out.Data(); !slices.Equal(got, c.want) || out.DataBytes() > c.most {
			t.Errorf("%s, %d: %q with up to %d bytes, want %q with up to %d", c.opts.Target, c.opts.ShardSize, got, out.DataBytes(), c.want, c.most)
		}
	}
}
