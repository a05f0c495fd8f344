package fp8

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/x448/float16"

	"onnxquant/internal/testing/golden"
)

var all = []Format{E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ}

// layout is the package comment's table.
var layout = map[Format]struct {
	fraction, bias int
	max            float64
	negativeZero   bool
	infinite       bool
}{
	E4M3FN:   {3, 7, 448, true, false},
	E5M2:     {2, 15, 57344, true, true},
	E4M3FNUZ: {3, 8, 240, false, false},
	E5M2FNUZ: {2, 16, 57344, false, false},
}

// values is what codes stand for.
var values = func() (v [4][256]float64) {
	for _, f := range all {
		for code := range 256 {
			v[f][code] = value(f, byte(code))
		}
	}
	return v
}()

// value is the package comment's formula.
func value(f Format, code byte) float64 {
	l := layout[f]
	e, m := int(code&0x7f)>>l.fraction, float64(code&(1<<l.fraction-1))
	v := math.Ldexp(1+m/float64(int(1)<<l.fraction), e-l.bias)
	if e == 0 {
		v = math.Ldexp(m/float64(int(1)<<l.fraction), 1-l.bias)
	}
	switch {
	case !l.negativeZero && code == 0x80, f == E4M3FN && code&0x7f == 0x7f, f == E5M2 && code&0x7f > 0x7c:
		v = math.NaN()
	case f == E5M2 && code&0x7f == 0x7c:
		v = math.Inf(1)
	}
	if code >= 0x80 {
		v = -v
	}
	return v
}

// same holds numbers against each other by their bits, but NaN equals NaN.
func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

func TestDecode(t *testing.T) {
	for _, f := range all {
		for code := range 256 {
			if got, want := float64(f.Decode(byte(code))), value(f, byte(code)); !same(got, want) {
				t.Errorf("%s: code %#x is %v, want %v", f, code, got, want)
			}
		}
		if got := float64(f.Max()); got != layout[f].max {
			t.Errorf("%s: the largest number is %v, want %v", f, got, layout[f].max)
		}
	}
}

// want finds the code by search.
func want(f Format, x float64, saturate bool) byte {
	var sign byte
	if math.Signbit(x) {
		sign = 0x80
	}
	nan := [...]byte{E4M3FN: 0x7f, E5M2: 0x7e, E4M3FNUZ: 0x80, E5M2FNUZ: 0x80}[f]
	if x != x {
		return nan | sign
	}
	// The largest number, and the midpoint to what would follow it.
	a, top := math.Abs(x), byte(0x7f)
	for !(values[f][top] < math.Inf(1)) {
		top--
	}
	end := values[f][top] + (values[f][top]-values[f][top-1])/2
	beyond := a > end || a == end && top%2 == 1
	switch {
	case beyond && !saturate && f == E5M2:
		return 0x7c | sign
	case beyond && !saturate:
		return nan | sign
	case beyond:
		return top | sign
	}
	best := byte(0)
	for code := range int(top) + 1 {
		d, least := math.Abs(values[f][code]-a), math.Abs(values[f][best]-a)
		if d < least || d == least && code%2 == 0 {
			best = byte(code)
		}
	}
	if best == 0 && !layout[f].negativeZero {
		return 0
	}
	return best | sign
}

func checkEncode(t *testing.T, f Format, x float32) {
	t.Helper()
	for _, saturate := range []bool{false, true} {
		if got, want := f.Encode(x, saturate), want(f, float64(x), saturate); got != want {
			t.Fatalf("%s, saturate=%t: %v has code %#x, want %#x", f, saturate, x, got, want)
		}
	}
}

func TestEncodeAllFloat16(t *testing.T) {
	for _, f := range all {
		for h := range 1 << 16 {
			checkEncode(t, f, float16.Frombits(uint16(h)).Float32())
		}
	}
}

func TestEncodeMidpoints(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, f := range all {
		for code := range byte(0x80) {
			a, b := f.Decode(code), f.Decode(code+1)
			if !(b > a) || b == inf {
				a, b = f.Max(), 2*f.Max()-f.Decode(f.Encode(f.Max(), true)-1)
			}
			for _, v := range []float32{a, b, (a + b) / 2} {
				for _, x := range []float32{v, math.Nextafter32(v, inf), math.Nextafter32(v, -inf)} {
					checkEncode(t, f, x)
					checkEncode(t, f, -x)
				}
			}
		}
		for _, x := range []float32{0, math.SmallestNonzeroFloat32, 0x1p-126, math.MaxFloat32, inf, float32(math.NaN())} {
			checkEncode(t, f, x)
			checkEncode(t, f, -x)
		}
	}
}

func TestCodesSurvive(t *testing.T) {
	for _, f := range all {
		for code := range 256 {
			x := f.Decode(byte(code))
			if x != x {
				continue
			}
			if got := f.Encode(x, false); got != byte(code) {
				t.Errorf("%s: code %#x became %#x", f, code, got)
			}
		}
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range all {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("%s: %v, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("float8_e8m0fnu"); err == nil {
		t.Error("no error for an unknown name")
	}
}

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
			f, err := ParseFormat(to)
			if err != nil {
				return nil, golden.ErrSkip // packages mx and quantutil
			}
			saturate := mode == "onnx_sat" || mode == "torch_clamp448" || mode == "torch" && f == E4M3FN
			if !saturate && !slices.Contains([]string{"ml_dtypes", "onnx_nosat", "torch"}, mode) {
				t.Errorf("%s: mode %q is not known", c.Name, mode)
			}
			var y []byte
			for _, x := range float32s(c.Inputs["x"]) {
				code := f.Encode(x, saturate)
				if mode == "torch" && f == E5M2 && x != x {
					code |= 0x7f // its NaN
				}
				y = append(y, code)
			}
			return golden.Arrays{"y": {DType: "uint8", Shape: c.Inputs["x"].Shape, Data: y}}, nil
		},
		"decode": func(c *golden.Case) (golden.Arrays, error) {
			var from string
			if err := c.Param("from", &from); err != nil {
				return nil, err
			}
			f, err := ParseFormat(from)
			if err != nil {
				return nil, golden.ErrSkip
			}
			var x []byte
			for _, code := range c.Inputs["codes"].Data {
				x = binary.LittleEndian.AppendUint32(x, math.Float32bits(f.Decode(code)))
			}
			return golden.Arrays{"x": {DType: "float32", Shape: c.Inputs["codes"].Shape, Data: x}}, nil
		},
	})
}

// float32s reads an array of float32 or float64.
func float32s(a golden.Array) []float32 {
	var x []float32
	for raw := a.Data; len(raw) > 0; {
		if strings.HasSuffix(a.DType, "64") {
			x = append(x, float32(math.Float64frombits(binary.LittleEndian.Uint64(raw))))
			raw = raw[8:]
		} else {
			x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			raw = raw[4:]
		}
	}
	return x
}
