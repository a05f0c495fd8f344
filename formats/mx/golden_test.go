package mx

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/golden"
	"onnxquant/quantutil"
)

func TestGoldenMX(t *testing.T) {
	golden.Run(t, "mx", map[string]golden.Func{
		"mxfp8_encode": mxfp8,
		"mxfp4_encode": mxfp4,
		"get_amax":     nil, // package quantutil
		"compute_e8m0": nil,
	})
}

// mxfp8 is ModelOpt's way from a weight to codes, by the exponents that package
// quantutil finds. It checks that the codec takes the same way, except for the types
// and blocks that are not its own.
func mxfp8(c *golden.Case) (golden.Arrays, error) {
	var axis, block int
	if err := c.Param("quant_axis", &axis); err != nil {
		return nil, err
	}
	if err := c.Param("block_size", &block); err != nil {
		return nil, err
	}
	w := tensor(c.Inputs["w"])
	amax, err := quantutil.GetAmax(w, axis, block)
	if err != nil {
		return nil, err
	}
	e, err := quantutil.ComputeE8M0(amax, w.Shape, axis, block)
	if err != nil {
		return nil, err
	}
	strided := axis == 0 && w.Shape[0] > block // blocks are not contiguous there
	codec := Codec{Format: MXFP8E4M3, Type: w.DType}
	exponents, codes := make([]byte, len(e.Data)), make([]byte, len(w.Data))
	scaled := &quantutil.Tensor{DType: quantutil.Promote(w.DType, dtype.Float32), Shape: w.Shape, Data: make([]float64, len(w.Data))}
	for b, at := range cutBlocks(w.Shape, axis, block) {
		x := make([]float32, len(at))
		for i, j := range at {
			x[i] = float32(w.Data[j])
		}
		scale := []float32{DecodeE8M0(byte(e.Data[b]))}
		exponents[b] = byte(e.Data[b])
		if w.DType != dtype.Float64 && !strided {
			own := []float32{0}
			codec.ObserveBlocks(nil, own, x, len(x), len(x))
			if !codec.Scales(own, nil, nil, own) || own[0] != scale[0] {
				return nil, fmt.Errorf("block %d has the scale %v, the codec gives %v", b, scale, own)
			}
		}
		q := make([]byte, len(x))
		codec.EncodeBlocks(q, x, scale, nil, len(x), len(x))
		for i, j := range at {
			s := w.Data[j] / float64(scale[0])
			if scaled.DType == dtype.Float32 {
				s = float64(float32(s))
			}
			scaled.Data[j], codes[j] = s, q[i]
			if want := kernels.E4M3FN.Code(float32(s), 1); q[i] != want {
				return nil, fmt.Errorf("%v has code %#x, the codec gives %#x", s, want, q[i])
			}
		}
	}
	out := golden.Arrays{
		"e8m0":   {DType: "uint8", Shape: e.Shape, Data: exponents},
		"codes":  {DType: "float8_e4m3fn", Shape: w.Shape, Data: codes},
		"scaled": {DType: quantutil.TypeName(scaled.DType), Shape: w.Shape, Data: scaled.Bytes()},
	}
	if _, ok := c.Outputs["scaled"]; !ok {
		delete(out, "scaled")
	}
	return out, nil
}

func mxfp4(c *golden.Case) (golden.Arrays, error) {
	var block int
	if err := c.Param("block_size", &block); err != nil {
		return nil, err
	}
	w := tensor(c.Inputs["w"])
	rows, k := w.Shape[0], w.Shape[1]
	n := (k + block - 1) / block
	codec := Codec{Format: MXFP4, Type: w.DType}
	x, scale := w.Float32s(), make([]float32, rows*n)
	codec.ObserveBlocks(nil, scale, x, k, block)
	if !codec.Scales(scale, nil, nil, scale) {
		return nil, fmt.Errorf("not finite")
	}
	exponents, codes, packed := make([]byte, rows*n), make([]byte, len(x)), make([]byte, (len(x)+1)/2)
	for i, s := range scale {
		exponents[i] = ScaleByte(s)
	}
	codec.EncodeBlocks(codes, x, scale, nil, k, block)
	kernels.Pack4(packed, codes)
	return golden.Arrays{
		"e8m0":   {DType: "uint8", Shape: []int{rows, n}, Data: exponents},
		"codes":  {DType: "uint8", Shape: w.Shape, Data: codes},
		"packed": {DType: "uint8", Shape: []int{len(packed)}, Data: packed},
	}, nil
}

// cutBlocks returns the indices of each block's elements.
func cutBlocks(shape []int, axis, block int) [][]int {
	if axis < 0 {
		axis += len(shape)
	}
	inner, total := 1, 1
	for i, d := range shape {
		total *= d
		if i > axis {
			inner *= d
		}
	}
	at := make([][]int, total/block)
	for i := range total {
		b := i/(block*inner)*inner + i%inner
		at[b] = append(at[b], i)
	}
	return at
}

// The casts of this package's types. Package fp8 and quantutil compare the others.
func TestGoldenCasts(t *testing.T) {
	golden.Run(t, "casts", map[string]golden.Func{
		"cast": func(c *golden.Case) (golden.Arrays, error) {
			var to, mode string
			if err := c.Param("to", &to); err != nil {
				return nil, err
			}
			if err := c.Param("mode", &mode); err != nil {
				return nil, err
			}
			var encode func(float32) byte
			switch to {
			case "float4_e2m1fn":
				encode = EncodeE2M1
			case "float8_e8m0fnu":
				encode = e8m0Modes[mode]
			default:
				return nil, golden.ErrSkip
			}
			if encode == nil {
				return nil, fmt.Errorf("mode %q is not known", mode)
			}
			x := tensor(c.Inputs["x"]).Float32s()
			return golden.Arrays{"y": {DType: "uint8", Shape: c.Inputs["x"].Shape, Data: each(x, encode)}}, nil
		},
		"decode": func(c *golden.Case) (golden.Arrays, error) {
			var from string
			if err := c.Param("from", &from); err != nil {
				return nil, err
			}
			decode := map[string]func(byte) float32{"float4_e2m1fn": DecodeE2M1, "float8_e8m0fnu": DecodeE8M0}[from]
			if decode == nil {
				return nil, golden.ErrSkip
			}
			var x []byte
			for _, code := range c.Inputs["codes"].Data {
				x = binary.LittleEndian.AppendUint32(x, math.Float32bits(decode(code)))
			}
			return golden.Arrays{"x": {DType: "float32", Shape: c.Inputs["codes"].Shape, Data: x}}, nil
		},
	})
}

// The plain cast of NVFP4's golden data is the one of this package.
func TestGoldenNVFP4(t *testing.T) {
	golden.Run(t, "nvfp4", map[string]golden.Func{
		"cast_fp4_ml_dtypes": func(c *golden.Case) (golden.Arrays, error) {
			x := tensor(c.Inputs["x"]).Float32s()
			return golden.Arrays{"codes": {DType: "uint8", Shape: c.Inputs["x"].Shape, Data: each(x, EncodeE2M1)}}, nil
		},
		"nvfp4_encode":                 nil, // package nvfp4
		"encode_nvfp4_block_scale":     nil,
		"cast_fp4_exporter":            nil,
		"get_weights_scaling_factor_2": nil, // package quantutil
		"get_weights_scaling_factor":   nil,
		"nvfp4_quantize":               nil,
	})
}

var e8m0Modes = map[string]func(float32) byte{
	"onnx_up_sat":        func(x float32) byte { return EncodeE8M0(x, Up, true) },
	"onnx_up_nosat":      func(x float32) byte { return EncodeE8M0(x, Up, false) },
	"onnx_down_sat":      func(x float32) byte { return EncodeE8M0(x, Down, true) },
	"onnx_down_nosat":    func(x float32) byte { return EncodeE8M0(x, Down, false) },
	"onnx_nearest_sat":   func(x float32) byte { return EncodeE8M0(x, Nearest, true) },
	"onnx_nearest_nosat": func(x float32) byte { return EncodeE8M0(x, Nearest, false) },
	"ml_dtypes": func(x float32) byte { // has no code for what is not positive
		if !(x > 0) {
			return NaN
		}
		return EncodeE8M0(x, Nearest, false)
	},
}

func each(x []float32, encode func(float32) byte) []byte {
	q := make([]byte, len(x))
	for i, v := range x {
		q[i] = encode(v)
	}
	return q
}

func tensor(a golden.Array) *quantutil.Tensor {
	typ, ok := quantutil.ParseDType(a.DType)
	if !ok {
		panic("no tensor of " + a.DType)
	}
	x, err := quantutil.FromBytes(typ, a.Data, a.Shape...)
	if err != nil {
		panic(err)
	}
	return x
}
