package evaluate

import (
	"errors"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/modeltest"
)

// Sizes of recurrents that no element is behind make no tensors.
func TestRecurrentSizes(t *testing.T) {
	const many = 1 << 33
	stored := func(name string, typ onnxpb.TensorProto_DataType, bytes int, dims ...int64) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: &name, DataType: new(int32(typ)), Dims: dims, RawData: make([]byte, bytes)}
	}
	codes := modeltest.Node("DynamicQuantizeLSTM", "y", "x")
	codes.Input = []string{"x", "w", "r", "", "", "", "", "", "s", "", "s"}
	codes.Domain = new("com.microsoft")
	for name, c := range map[string]struct {
		node   *onnxpb.NodeProto
		w, r   *onnxpb.TensorProto
		inputs []int64
	}{
		"codes": {codes, stored("w", onnxpb.TensorProto_UINT8, 0, 1, 0, many), stored("r", onnxpb.TensorProto_UINT8, 0, 1, 0, many), []int64{1, 1, 0}},
		"batch": {modeltest.Node("LSTM", "y", "x w r"), stored("w", onnxpb.TensorProto_FLOAT, 32, 1, 4, 2), stored("r", onnxpb.TensorProto_FLOAT, 16, 1, 4, 1), []int64{0, many, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			path := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{c.w, c.r, stored("s", onnxpb.TensorProto_FLOAT, 4, 1)}, []*onnxpb.NodeProto{c.node}))
			in := &execute.Tensor{Name: "x", DType: 1, Dims: c.inputs}
			if _, err := Bounded.Run(t.Context(), path, []*execute.Tensor{in}); !errors.Is(err, execute.ErrUnsupported) && !errors.Is(err, ErrBudget) {
				t.Errorf("error %v", err)
			}
		})
	}
}
