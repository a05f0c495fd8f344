package quantutil_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/x448/float16"

	"onnxquant/internal/golden"
	"onnxquant/internal/kernels"
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
					y = binary.LittleEndian.AppendUint16(y, Float16BitsFromFloat64(v64))
				case to == "float16":
					y = binary.LittleEndian.AppendUint16(y, Float16Bits(v))
				case to == "bfloat16":
					y = binary.LittleEndian.AppendUint16(y, BFloat16Bits(v))
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

// Every float16, the midpoints of neighbours, and what is nearest to these.
func TestFloat16Bits(t *testing.T) {
	for h := uint16(0); h <= 0x7c00; h++ {
		v := float64(float16.Frombits(h).Float32())
		next := float64(float16.Frombits(h + 1).Float32())
		if h == 0x7bff {
			next = 65536
		}
		if h == 0x7c00 {
			next = v
		}
		mid := v + (next-v)/2
		even := h + h&1
		for _, c := range []struct {
			x    float64
			want uint16
		}{
			{v, h}, {mid, even}, {math.Nextafter(mid, 0), h}, {math.Nextafter(mid, math.Inf(1)), h + 1},
		} {
			if h == 0x7c00 && !math.IsInf(c.x, 0) {
				continue
			}
			if h == 0x7c00 {
				c.want = h
			}
			if got := Float16BitsFromFloat64(c.x); got != c.want {
				t.Fatalf("%v is %#x, want %#x", c.x, got, c.want)
			}
			if got := Float16BitsFromFloat64(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v is %#x, want %#x", -c.x, got, c.want|0x8000)
			}
		}
	}
}

// Every bfloat16, the midpoints of neighbours, and what is nearest to these.
func TestBFloat16Bits(t *testing.T) {
	for h := uint32(0); h < 0x7f80; h++ {
		for _, c := range []struct{ x, want uint32 }{
			{h << 16, h}, {h<<16 | 0x7fff, h}, {h<<16 | 0x8000, h + h&1}, {h<<16 | 0x8001, h + 1},
		} {
			for _, sign := range []uint32{0, 1} {
				x := math.Float32frombits(c.x | sign<<31)
				want := uint16(c.want | sign<<15)
				if got := BFloat16Bits(x); got != want {
					t.Fatalf("%v is %#x, want %#x", x, got, want)
				}
				if got := math.Float32bits(RoundBFloat16(x)); got != uint32(want)<<16 {
					t.Fatalf("%v rounds to %#x, want %#x", x, got, uint32(want)<<16)
				}
			}
		}
	}
}

// Casts of tensors round once.
func TestAstypeFloat16(t *testing.T) {
	x := 1 + 0x1p-11 + 0x1p-40 // above the midpoint of float16s, and that midpoint in float32
	wide, err := NewTensor(Float64, []float64{x}, 1)
	if err != nil {
		t.Fatal(err)
	}
	half, err := wide.Astype(Float16)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 0x1p-10; half.Data[0] != want {
		t.Errorf("%v became %v, want %v", x, half.Data[0], want)
	}
}

func TestRoundAll(t *testing.T) {
	for _, dtype := range []DType{Float32, Float16, BFloat16} {
		x := []float32{1.0001, -3.14159, 1e-6, 1e30, 0}
		want, err := NewTensor(dtype, []float64{float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3]), 0}, 5)
		if err != nil {
			t.Fatal(err)
		}
		dtype.RoundAll(x)
		if !slices.Equal(x, want.Float32s()) {
			t.Errorf("%s: %v, want %v", dtype, x, want.Float32s())
		}
	}
}

func cast(t DType, v float64) float64 {
	x, err := NewTensor(t, []float64{v}, 1)
	if err != nil {
		panic(err)
	}
	return x.Data[0]
}

// RoundAll gives the bits of Round: around every float16 and midpoint, and between.
func TestRoundAllFloat16(t *testing.T) {
	var x []float32
	for h := range uint16(0x7c01) {
		b := math.Float32bits(float16.Frombits(h).Float32())
		for _, d := range []uint32{0, 1, 1<<12 - 1, 1 << 12, 1<<12 + 1, 1<<13 - 1, 3 << 20} {
			x = append(x, math.Float32frombits(b+d), -math.Float32frombits(b+d))
		}
	}
	for i := range 100 { // halves of the least float16, and less
		x = append(x, float32(i)*0x1p-26, -float32(i)*0x1p-26, math.Nextafter32(float32(i)*0x1p-25, 1))
	}
	y := slices.Clone(x)
	Float16.RoundAll(y)
	for i, v := range x {
		got, want := math.Float32bits(y[i]), math.Float32bits(Float16.Round(v))
		if got != want && v == v {
			t.Fatalf("%v rounds to %#x, want %#x", v, got, want)
		}
		if v != v && y[i] == y[i] {
			t.Fatalf("NaN rounds to %v", y[i])
		}
	}
}

// The scale fits amax as well as its type allows, and no code overflows.
func TestScaleFor(t *testing.T) {
	for _, c := range []struct {
		dtype   DType
		largest float32
		steps   float64 // of relative size that a scale has at least
	}{{Float32, math.MaxFloat32, 0x1p24}, {Float16, 65504, 0x1p11}, {BFloat16, 0x1.fep127, 0x1p8}} {
		for _, top := range []float32{1, 6, 7, 240, 448, 57344} {
			for amax := c.largest; amax > 0; amax = float32(cast(c.dtype, float64(amax)/2.37)) {
				s := ScaleFor(c.dtype, amax, top)
				if s != float32(cast(c.dtype, float64(s))) {
					t.Fatalf("%s: the scale %v of %v is not of that type", c.dtype, s, amax)
				}
				if y := cast(c.dtype, float64(top*s)); y <= 0 || math.IsInf(y, 0) {
					t.Fatalf("%s: %v times the scale %v of %v is %v", c.dtype, top, s, amax, y)
				}
				exact, least := float64(amax)/float64(top), 0x1p-126
				if c.dtype == Float16 {
					least = 0x1p-14
				}
				off := (float64(s) - exact) / exact
				switch {
				case exact >= least && math.Abs(off) > 1/c.steps && amax < c.largest/2:
					t.Fatalf("%s: the scale of %v is %v, want %v", c.dtype, amax, s, exact)
				case exact < least && c.dtype == Float16 && (off < 0 || float64(s)-exact >= 0x1p-24):
					t.Fatalf("%s: the scale of %v is %v, want %v rounded up", c.dtype, amax, s, exact)
				case exact < least && c.dtype != Float16 && s != 0x1p-126:
					t.Fatalf("%s: the scale of %v is %v, want 2^-126", c.dtype, amax, s)
				}
			}
			if s := ScaleFor(c.dtype, 0, top); s != 1 {
				t.Errorf("%s: the scale of 0 is %v", c.dtype, s)
			}
		}
	}
}

// The standard saturates where its reference wraps around.
func TestQuantizeLinearNonFinite(t *testing.T) {
	x, _ := NewTensor(Float32, []float64{math.Inf(1), math.Inf(-1), 3e38, -3e38, math.NaN()}, 5)
	scale, _ := NewTensor(Float32, []float64{0.5}, 1)
	zero, _ := NewTensor(Int8, []float64{-3}, 1)
	y, err := QuantizeLinear(x, scale, zero, 0, 0, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{7, -8, 7, -8, -3}; !slices.Equal(y.Data, want) {
		t.Errorf("codes %v, want %v", y.Data, want)
	}
}

func TestLinearErrors(t *testing.T) {
	x, _ := NewTensor(Float32, make([]float64, 12), 3, 4)
	q, _ := NewTensor(Int8, make([]float64, 12), 3, 4)
	vector, _ := NewTensor(Float32, make([]float64, 4), 4)
	blocks, _ := NewTensor(Float32, make([]float64, 8), 2, 4)
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
