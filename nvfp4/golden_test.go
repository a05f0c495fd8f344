package nvfp4

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/golden"
	"onnxquant/quantutil"
)

func TestGoldenNVFP4(t *testing.T) {
	golden.Run(t, "nvfp4", map[string]golden.Func{
		"nvfp4_encode":                 encode,
		"encode_nvfp4_block_scale":     encodeBlockScale,
		"cast_fp4_exporter":            cast(EncodeE2M1),
		"cast_fp4_ml_dtypes":           nil, // package mx
		"get_weights_scaling_factor_2": nil, // package quantutil
		"get_weights_scaling_factor":   nil,
		"nvfp4_quantize":               nil,
	})
}

// encode is the reference exporter's way from a weight to packed codes. It has
// bounds that ours has not: two axes, blocks without a rest, an even number of rows.
func encode(c *golden.Case) (golden.Arrays, error) {
	var block int
	if err := c.Param("block_size", &block); err != nil {
		return nil, err
	}
	in := c.Inputs["w"]
	if len(in.Shape) != 2 || in.Shape[0]%2 != 0 {
		return nil, fmt.Errorf("shape %v", in.Shape)
	}
	rows, k := in.Shape[0], in.Shape[1]
	if block < 1 || k%block != 0 {
		return nil, fmt.Errorf("blocks of %d do not divide rows of %d", block, k)
	}
	w := values(in)
	e, err := Encode(w, k, block)
	if err != nil {
		return nil, err
	}
	n := k / block
	codec := Codec{TensorScale: e.TensorScale}
	var unrounded, rounded, scaled []float32
	for i, b := range e.Scales {
		unrounded = append(unrounded, codec.blockScale(kernels.AbsMax(0, w[i*block:][:block])))
		rounded = append(rounded, kernels.E4M3FN.Values[b])
	}
	for i, v := range w {
		scaled = append(scaled, v/float32(rounded[i/block]*e.TensorScale))
	}
	codes, dtypes := make([]byte, len(w)), make([]byte, len(w))
	kernels.Unpack4(codes, e.Packed, false)
	out := golden.Arrays{
		"ws2":                 {DType: "float32", Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(e.TensorScale))},
		"block_scale_f32":     array(unrounded, rows, n),
		"block_scale_rounded": array(rounded, rows, n),
		"block_scale_codes":   {DType: "float8_e4m3fn", Shape: []int{rows, n}, Data: e.Scales},
		"scaled":              array(scaled, rows, k),
		"packed":              {DType: "uint8", Shape: []int{rows / 2, k}, Data: e.Packed},
		"codes":               {DType: "uint8", Shape: in.Shape, Data: codes},
	}
	for i, v := range scaled { // what a plain cast gives; package mx compares it
		dtypes[i] = kernels.E2M1.Code(v, 1)
	}
	out["codes_ml_dtypes"] = golden.Array{DType: "uint8", Shape: in.Shape, Data: dtypes}
	for _, optional := range []string{"scaled", "codes", "codes_ml_dtypes"} {
		if _, ok := c.Outputs[optional]; !ok {
			delete(out, optional)
		}
	}
	return out, nil
}

// encodeBlockScale refuses, as the reference does, what no block of ours has.
func encodeBlockScale(c *golden.Case) (golden.Arrays, error) {
	var rounded []float32
	var codes []byte
	for _, s := range values(c.Inputs["ws"]) {
		if !kernels.IsFinite(s) || s < 0 {
			return nil, fmt.Errorf("scale %v", s)
		}
		codes = append(codes, ScaleByte(s))
		rounded = append(rounded, kernels.E4M3FN.Values[ScaleByte(s)])
	}
	return golden.Arrays{
		"rounded": array(rounded, len(rounded)),
		"codes":   {DType: "float8_e4m3fn", Shape: []int{len(codes)}, Data: codes},
	}, nil
}

func cast(encode func(float32) byte) golden.Func {
	return func(c *golden.Case) (golden.Arrays, error) {
		x := values(c.Inputs["x"])
		codes := make([]byte, len(x))
		for i, v := range x {
			codes[i] = encode(v)
		}
		return golden.Arrays{"codes": {DType: "uint8", Shape: c.Inputs["x"].Shape, Data: codes}}, nil
	}
}

// values reads an array of floats, each rounded to float32.
func values(a golden.Array) []float32 {
	typ, ok := quantutil.ParseDType(a.DType)
	if !ok {
		panic("no tensor of " + a.DType)
	}
	x, err := quantutil.FromBytes(typ, a.Data, a.Shape...)
	if err != nil {
		panic(err)
	}
	return x.Float32s()
}

func array(x []float32, shape ...int) golden.Array {
	a := golden.Array{DType: "float32", Shape: shape}
	for _, v := range x {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(v))
	}
	return a
}
