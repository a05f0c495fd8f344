package quantutil_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/golden"
	. "onnxquant/quantutil"
)

func TestGoldenONNX(t *testing.T) {
	golden.Run(t, "onnx_qdq", map[string]golden.Func{
		"QuantizeLinear": func(c *golden.Case) (golden.Arrays, error) {
			p, err := onnxParams(c)
			if err != nil {
				return nil, err
			}
			y, err := QuantizeLinear(tensor(c, "x"), tensor(c, "scale"), tensor(c, "zero_point"), p.axis, p.block, p.bits, p.signed)
			if err != nil {
				return nil, err
			}
			packed, err := packed(y, p.bits)
			return golden.Arrays{"y": array(y), "y_packed": packed}, err
		},
		"DequantizeLinear": func(c *golden.Case) (golden.Arrays, error) {
			p, err := onnxParams(c)
			if err != nil {
				return nil, err
			}
			y := tensor(c, "y")
			if packed, err := packed(y, p.bits); err != nil || string(packed.Data) != string(c.Inputs["y_packed"].Data) {
				return nil, fmt.Errorf("the codes packed are not those given: %v", err)
			}
			x, err := DequantizeLinear(y, tensor(c, "scale"), tensor(c, "zero_point"), p.axis, p.block)
			return arrays("x", x), err
		},
	})
}

type onnxParam struct {
	axis, block, bits int
	signed            bool
}

func onnxParams(c *golden.Case) (p onnxParam, err error) {
	var kind, mode string
	if err := params(c, "type", &kind, "mode", &mode, "axis", &p.axis, "block_size", &p.block); err != nil {
		return p, err
	}
	switch mode {
	case "tensor", "axis", "block":
	default:
		return p, fmt.Errorf("mode %q is not known", mode)
	}
	p.signed = !strings.HasPrefix(kind, "u")
	_, err = fmt.Sscanf(strings.TrimPrefix(kind, "u"), "int%d", &p.bits)
	return p, err
}

// packed returns codes as ONNX stores them.
func packed(y *Tensor, bits int) (golden.Array, error) {
	q := y.Bytes()
	p := make([]byte, (len(q)*bits+7)/8)
	switch bits {
	case 2:
		kernels.Pack2(p, q)
	case 4:
		kernels.Pack4(p, q)
	case 8:
		copy(p, q)
	default:
		return golden.Array{}, fmt.Errorf("codes of %d bits", bits)
	}
	return golden.Array{DType: "uint8", Shape: []int{len(p)}, Data: p}, nil
}

// TestGoldenCasts compares casts to float16 and bfloat16, and makes sure that the
// others are those that other packages compare.
func TestGoldenCasts(t *testing.T) {
	others := []string{"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"}
	golden.Run(t, "casts", map[string]golden.Func{
		"cast": func(c *golden.Case) (golden.Arrays, error) {
			var to string
			if err := c.Param("to", &to); err != nil {
				return nil, err
			}
			if slices.Contains(others, to) {
				return nil, golden.ErrSkip
			}
			x := c.Inputs["x"]
			wide := x.DType == "float64"
			var y []byte
			for raw := x.Data; len(raw) > 0; {
				var v float32
				var v64 float64
				if wide {
					v64 = math.Float64frombits(binary.LittleEndian.Uint64(raw))
					v, raw = float32(v64), raw[8:]
				} else {
					v, raw = math.Float32frombits(binary.LittleEndian.Uint32(raw)), raw[4:]
				}
				switch {
				case to == "float16" && wide:
					y = binary.LittleEndian.AppendUint16(y, dtype.Float16BitsFromFloat64(v64))
				case to == "float16":
					y = binary.LittleEndian.AppendUint16(y, dtype.Float16Bits(v))
				case to == "bfloat16":
					y = binary.LittleEndian.AppendUint16(y, dtype.BFloat16Bits(v))
				default:
					return nil, fmt.Errorf("type %q is not known", to)
				}
			}
			return golden.Arrays{"y": {DType: "uint16", Shape: x.Shape, Data: y}}, nil
		},
		"decode": func(c *golden.Case) (golden.Arrays, error) {
			var from string
			if err := c.Param("from", &from); err != nil {
				return nil, err
			}
			if !slices.Contains(others, from) {
				return nil, fmt.Errorf("type %q is not known", from)
			}
			return nil, golden.ErrSkip
		},
	})
}

// Casts of tensors round once.
func TestAstypeFloat16(t *testing.T) {
	x := 1 + 0x1p-11 + 0x1p-40 // above the midpoint of float16s, and that midpoint in float32
	wide, err := NewTensor(dtype.Float64, []float64{x}, 1)
	if err != nil {
		t.Fatal(err)
	}
	half, err := wide.Astype(dtype.Float16)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 0x1p-10; half.Data[0] != want {
		t.Errorf("%v became %v, want %v", x, half.Data[0], want)
	}
}

// The standard saturates where its reference wraps around.
func TestQuantizeLinearNonFinite(t *testing.T) {
	x, _ := NewTensor(dtype.Float32, []float64{math.Inf(1), math.Inf(-1), 3e38, -3e38, math.NaN()}, 5)
	scale, _ := NewTensor(dtype.Float32, []float64{0.5}, 1)
	zero, _ := NewTensor(dtype.Int8, []float64{-3}, 1)
	y, err := QuantizeLinear(x, scale, zero, 0, 0, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{7, -8, 7, -8, -3}; !slices.Equal(y.Data, want) {
		t.Errorf("codes %v, want %v", y.Data, want)
	}
}

func TestLinearErrors(t *testing.T) {
	x, _ := NewTensor(dtype.Float32, make([]float64, 12), 3, 4)
	q, _ := NewTensor(dtype.Int8, make([]float64, 12), 3, 4)
	vector, _ := NewTensor(dtype.Float32, make([]float64, 4), 4)
	blocks, _ := NewTensor(dtype.Float32, make([]float64, 8), 2, 4)
	for name, err := range map[string]error{
		"bits":        second(QuantizeLinear(x, vector, nil, 1, 0, 3, true)),
		"axis":        second(QuantizeLinear(x, vector, nil, 2, 0, 4, true)),
		"other axis":  second(QuantizeLinear(x, vector, nil, 0, 0, 4, true)),
		"block":       second(QuantizeLinear(x, blocks, nil, 0, 1, 4, true)),
		"negative":    second(QuantizeLinear(x, blocks, nil, 0, -2, 4, true)),
		"zero point":  second(QuantizeLinear(x, blocks, q, 0, 2, 4, true)),
		"integers":    second(QuantizeLinear(q, vector, nil, 1, 0, 4, true)),
		"no scale":    second(QuantizeLinear(x, nil, nil, 1, 0, 4, true)),
		"floats":      second(DequantizeLinear(x, vector, nil, 1, 0)),
		"no codes":    second(DequantizeLinear(nil, vector, nil, 1, 0)),
		"wrong scale": second(DequantizeLinear(q, blocks, nil, 1, 2)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := QuantizeLinear(x, blocks, nil, -2, 2, 4, true); err != nil {
		t.Errorf("axis -2: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
