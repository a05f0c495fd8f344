package ggml

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/golden"
)

func TestGoldenGGML(t *testing.T) {
	funcs := map[string]golden.Func{}
	for _, e := range All() {
		funcs[e.Name] = func(c *golden.Case) (golden.Arrays, error) { return both(e, c) }
	}
	golden.Run(t, "ggml", funcs)
}

// both quantizes the input of a case, and dequantizes what that gives.
func both(e *Encoding, c *golden.Case) (golden.Arrays, error) {
	in := c.Inputs["x"]
	shape, err := e.PackedShape(in.Shape)
	if err != nil {
		return nil, err
	}
	back, err := e.Shape(shape)
	if err != nil || back[0] != in.Shape[0] || back[1] != in.Shape[1] {
		return nil, fmt.Errorf("packed shape %v has the shape %v, %v", shape, back, err)
	}
	x := floats(in.Data)
	var importance []float32
	if w, ok := c.Inputs["imatrix"]; ok {
		importance = floats(w.Data)
	}
	columns, packed, y := in.Shape[1], make([]byte, shape[0]*shape[1]), make([]float32, len(x))
	if err := e.Quantize(packed, x, columns, importance, 1); err != nil {
		return nil, err
	}
	if err := e.Dequantize(y, c.Outputs["packed"].Data, columns, 1); err != nil {
		return nil, err
	}
	raw := make([]byte, 4*len(y))
	encodeF32(raw, y, nil)
	return golden.Arrays{
		"packed":      {DType: "uint8", Shape: shape, Data: packed},
		"dequantized": {DType: "float32", Shape: in.Shape, Data: raw},
	}, nil
}

func floats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	dtype.Float32.Decode(x, b)
	return x
}
