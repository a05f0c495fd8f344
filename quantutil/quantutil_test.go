package quantutil_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	. "onnxquant/quantutil"
)

func must(t testing.TB) func(x *Tensor, err error) *Tensor {
	return func(x *Tensor, err error) *Tensor {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

var types = []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Float64, dtype.Int8, dtype.Uint8, dtype.Int16, dtype.Int32}

// The types in which numpy 2 with ml_dtypes multiplies two arrays.
func TestPromote(t *testing.T) {
	for i, row := range strings.Split(`float32 float32 float32 float64 float32 float32 float32 float64
float32 float16 float32 float64 float16 float16 float32 float64
float32 float32 bfloat16 float64 bfloat16 bfloat16 float32 float64
float64 float64 float64 float64 float64 float64 float64 float64
float32 float16 bfloat16 float64 int8 int16 int16 int32
float32 float16 bfloat16 float64 int16 uint8 int16 int32
float32 float32 float32 float64 int16 int16 int16 int32
float64 float64 float64 float64 int32 int32 int32 int32`, "\n") {
		for j, want := range strings.Fields(row) {
			if got := Promote(types[i], types[j]); TypeName(got) != want {
				t.Errorf("%v and %v meet in %v, want %v", types[i], types[j], got, want)
			}
		}
	}
}

func TestDTypeNames(t *testing.T) {
	for _, d := range types {
		if got, ok := ParseDType(TypeName(d)); !ok || got != d {
			t.Errorf("%v is read as %v, %t", d, got, ok)
		}
	}
	if _, ok := ParseDType("float8"); ok {
		t.Error("float8 is a type")
	}
	if s := TypeName(99); s != "type 99" {
		t.Errorf("type 99 is %q", s)
	}
}

func TestTensorBytes(t *testing.T) {
	for _, c := range []struct {
		dtype dtype.DType
		data  []float64
		raw   []byte
	}{
		{dtype.Float32, []float64{1, -2}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}},
		{dtype.Float16, []float64{1, -2}, []byte{0, 0x3c, 0, 0xc0}},
		{dtype.BFloat16, []float64{1, -2}, []byte{0x80, 0x3f, 0, 0xc0}},
		{dtype.Float64, []float64{1, -2}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0}},
		{dtype.Int8, []float64{1, -2}, []byte{1, 0xfe}},
		{dtype.Uint8, []float64{1, 254}, []byte{1, 0xfe}},
		{dtype.Int16, []float64{1, -2}, []byte{1, 0, 0xfe, 0xff}},
		{dtype.Int32, []float64{1, -2}, []byte{1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff}},
	} {
		x := must(t)(NewTensor(c.dtype, c.data, 2))
		if got := x.Bytes(); !bytes.Equal(got, c.raw) {
			t.Errorf("%v %v has bytes % x, want % x", c.dtype, c.data, got, c.raw)
		}
		y := must(t)(FromBytes(c.dtype, c.raw, 2))
		if !slices.Equal(y.Data, c.data) {
			t.Errorf("%v % x has values %v, want %v", c.dtype, c.raw, y.Data, c.data)
		}
	}
}

func TestAstype(t *testing.T) {
	x := must(t)(FromFloat32([]float32{1.7, -1.7, 300, float32(math.NaN())}, 4))
	for typ, want := range map[dtype.DType][]float64{
		dtype.Int8:  {1, -1, 44, 0},
		dtype.Uint8: {1, 255, 44, 0},
		dtype.Int32: {1, -1, 300, 0},
	} {
		if got := must(t)(x.Astype(typ)); !slices.Equal(got.Data, want) {
			t.Errorf("%v as %v is %v, want %v", x.Data, typ, got.Data, want)
		}
	}
}

// Wrong arguments are errors, whatever the routine.
func TestErrors(t *testing.T) {
	good := must(t)(FromFloat32([]float32{1, 2, 3, 4}, 2, 2))
	scale := must(t)(FromFloat32([]float32{1, 1}, 1, 2))
	codes := must(t)(good.Astype(dtype.Int8))
	long := must(t)(FromFloat32(make([]float32, 6), 3, 2))
	bad := map[string]*Tensor{
		"nil":                nil,
		"no shape":           {DType: dtype.Float32, Data: []float64{1, 2}},
		"negative dimension": {DType: dtype.Float32, Shape: []int{-1, -4}, Data: good.Data},
		"huge dimensions":    {DType: dtype.Float32, Shape: []int{1 << 40, 1 << 40}, Data: good.Data},
		"unknown type":       {DType: 99, Shape: []int{2, 2}, Data: good.Data},
	}
	calls := map[string]func() error{
		"block 0":           func() error { _, _, err := FindScales(good, 0, 0, 1, false, 4); return err },
		"block -1":          func() error { _, _, err := FindScales(good, -1, 0, 1, false, 4); return err },
		"axis -1":           func() error { _, _, err := FindScales(good, 2, -1, 1, false, 4); return err },
		"axis 2":            func() error { _, err := RTN(good, scale, 2, 2, nil, 4); return err },
		"1 bit":             func() error { _, _, err := FindScales(good, 2, 0, 1, false, 1); return err },
		"9 bits":            func() error { _, err := RTN(good, scale, 2, 0, nil, 9); return err },
		"codes for weights": func() error { _, _, err := FindScales(codes, 2, 0, 1, false, 4); return err },
		"too many scales":   func() error { _, err := RTN(good, long, 2, 0, nil, 4); return err },
		"too many zeros":    func() error { _, err := RTN(good, scale, 2, 0, long, 4); return err },
		"scales of one axis": func() error {
			_, err := DQTensor(codes, must(t)(FromFloat32([]float32{1, 1}, 2)), 2, 0, nil)
			return err
		},
		"zeros of other axis": func() error {
			_, err := DQTensor(codes, scale, 2, 0, must(t)(FromFloat32(make([]float32, 3), 1, 3)))
			return err
		},
		"odd first dimension": func() error { _, err := PackWeightsToInt4(long); return err },
		"no first dimension":  func() error { _, err := PackWeightsToInt4(must(t)(FromFloat32([]float32{1}))); return err },
		"odd bfloat16": func() error {
			_, err := PackFloat32To4BitOptimized(must(t)(NewTensor(dtype.BFloat16, []float64{1}, 1)), true)
			return err
		},
		"amax of 3 on 0": func() error {
			_, err := GetAmax(must(t)(FromFloat32(make([]float32, 8), 2, 2, 2)), 0, 2)
			return err
		},
		"amax of a rest":        func() error { _, err := GetAmax(long, 0, 2); return err },
		"amax of block 0":       func() error { _, err := GetAmax(long, 0, 0); return err },
		"exponents of a number": func() error { _, err := ComputeE8M0(scale, []int{2, 4}, 1, 2); return err },
		"exponents on axis 5":   func() error { _, err := ComputeE8M0(scale, []int{2, 2}, 5, 2); return err },
		"negative magnitude": func() error {
			_, err := ComputeE8M0(must(t)(FromFloat32([]float32{-1}, 1)), []int{2}, 0, 2)
			return err
		},
		"nvfp4 scales of a rest": func() error { _, err := Quantize(good, 2, scale, 1); return err },
		"layer without bits":     func() error { _, err := GetNumBits(LayerInfo{"w": {}}, "w"); return err },
		"block on axis 2":        func() error { _, err := UpdateBlockSize(-1, nil, "w", 2, []int{3, 4}); return err },
		"old block on axis -3":   func() error { _, err := UpdateBlockSizeForBits(8, 32, -3, []int{3, 4}); return err },
		"odd bytes":              func() error { _, err := FromBytes(dtype.Float32, make([]byte, 5), 1); return err },
		"bytes of no type":       func() error { _, err := FromBytes(99, nil, 0); return err },
	}
	for name, x := range bad {
		calls["find_scales of "+name] = func() error { _, _, err := FindScales(x, 2, 0, 1, false, 4); return err }
		calls["rtn of "+name] = func() error { _, err := RTN(x, scale, 2, 0, nil, 4); return err }
		calls["rtn by "+name] = func() error { _, err := RTN(good, x, 2, 0, nil, 4); return err }
		calls["quant_tensor of "+name] = func() error { _, _, _, err := QuantTensor(x, 2, 0, 1, true, 4); return err }
		calls["dq_tensor of "+name] = func() error { _, err := DQTensor(x, scale, 2, 0, nil); return err }
		calls["dq_tensor by "+name] = func() error { _, err := DQTensor(codes, x, 2, 0, nil); return err }
		calls["pack of "+name] = func() error { _, err := PackFloat32To4BitOptimized(x, true); return err }
		calls["cpp pack of "+name] = func() error { _, err := PackFloat32To4BitCppBased(x, true); return err }
		calls["weights pack of "+name] = func() error { _, err := PackWeightsToInt4(x); return err }
		calls["reshape of "+name] = func() error {
			_, err := ReshapeScalesForPerChannelNodes(map[string]*Tensor{"w": x}, -1, nil)
			return err
		}
		calls["amax of "+name] = func() error { _, err := GetAmax(x, 0, 2); return err }
		calls["e8m0 of "+name] = func() error { _, err := ComputeE8M0(x, []int{2, 2}, 0, 2); return err }
		calls["nvfp4 tensor scale of "+name] = func() error { _, err := GetWeightsScalingFactor2(x); return err }
		calls["nvfp4 scales of "+name] = func() error { _, err := GetWeightsScalingFactor(x, 2, 1); return err }
		calls["nvfp4 of "+name] = func() error { _, err := Quantize(x, 2, scale, 1); return err }
		calls["nvfp4 by "+name] = func() error { _, err := Quantize(good, 2, x, 1); return err }
		if x != nil {
			calls["new "+name] = func() error { _, err := NewTensor(x.DType, x.Data, x.Shape...); return err }
		}
	}
	for name, call := range calls {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error of several lines: %v", name, err)
		}
	}
}

// A block far longer than the axis is padded in words only.
func TestHugeBlock(t *testing.T) {
	w := must(t)(FromFloat32([]float32{7, 14, -7, 0}, 2, 2))
	for _, axis := range []int{0, 1} {
		wq, s, _, err := QuantTensor(w, math.MaxInt, axis, 1, false, 4)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int][]float64{0: {7, 7, -7, 0}, 1: {4, 7, -7, 0}}[axis] // 3.5 goes to 4
		if !slices.Equal(wq.Data, want) {
			t.Errorf("axis %d: codes %v with scales %v, want %v", axis, wq.Data, s.Data, want)
		}
	}
}

func TestEmpty(t *testing.T) {
	for _, shape := range [][]int{{0}, {0, 3}, {3, 0}, {2, 0, 3}, {1 << 40, 3, 0}} {
		w := must(t)(FromFloat32(nil, shape...))
		for axis := range shape {
			wq, _, _, err := QuantTensor(w, 2, axis, 1, true, 4)
			if err == nil && (len(wq.Data) != 0 || !slices.Equal(wq.Shape, shape)) {
				t.Errorf("%v along %d: %d codes of shape %v", shape, axis, len(wq.Data), wq.Shape)
			}
		}
	}
}

func TestNVFP4OfZeros(t *testing.T) {
	w := must(t)(FromFloat32(make([]float32, 32), 2, 16))
	s2, err := GetWeightsScalingFactor2(w)
	if err != nil || s2 != 1 {
		t.Fatalf("tensor scale %v, %v, want 1", s2, err)
	}
	s := must(t)(GetWeightsScalingFactor(w, 16, s2))
	if !slices.Equal(s.Data, []float64{1, 1}) {
		t.Errorf("block scales %v, want 1", s.Data)
	}
	inf := must(t)(FromFloat32([]float32{float32(math.Inf(-1)), 1}, 1, 2))
	if s2, err := GetWeightsScalingFactor2(inf); err == nil {
		t.Errorf("an infinite weight has the scale %v", s2)
	}
}

// In E8M0, 448 fits the scale 1, and anything above needs 2, except for what log2
// rounds away.
func TestComputeE8M0(t *testing.T) {
	amax := must(t)(FromFloat32([]float32{0, 448, 449, 0.875, 896, math.Nextafter32(448, 1000), 1e-45}, 7))
	e := must(t)(ComputeE8M0(amax, []int{7, 32}, -1, 32))
	if want := []float64{0, 127, 128, 118, 128, 128, 0}; !slices.Equal(e.Data, want) || !slices.Equal(e.Shape, []int{7, 1}) {
		t.Errorf("codes %v of shape %v, want %v", e.Data, e.Shape, want)
	}
}

// The reference's blocks on axis 0 of two are rows of like number modulo d0/block.
func TestGetAmaxOnAxis0(t *testing.T) {
	w := must(t)(FromFloat32([]float32{1, -2, 3, -4, 5, -6, 7, -8}, 4, 2))
	if got := must(t)(GetAmax(w, 0, 2)); !slices.Equal(got.Data, []float64{5, 6, 7, 8}) {
		t.Errorf("magnitudes %v", got.Data)
	}
	if got := must(t)(GetAmaxContiguous(w, 0, 2)); !slices.Equal(got.Data, []float64{3, 4, 7, 8}) {
		t.Errorf("magnitudes of neighbours %v", got.Data)
	}
}

// Integers have the magnitudes that numpy finds in their type; the least int8 stays negative.
func TestMagnitudesOfIntegers(t *testing.T) {
	for _, c := range []struct {
		typ         dtype.DType
		amax, codes []float64
	}{
		{dtype.Int8, []float64{-128, 4}, nil},
		{dtype.Uint8, []float64{128, 252}, []float64{126, 127}},
		{dtype.Int16, []float64{128, 4}, []float64{126, 121}},
		{dtype.Int32, []float64{128, 4}, []float64{126, 121}},
	} {
		w := must(t)(NewTensor(c.typ, []float64{-128, -128, 3, -4}, 2, 2))
		amax := must(t)(GetAmax(w, -1, 2))
		if !slices.Equal(amax.Data, c.amax) || amax.DType != c.typ {
			t.Errorf("%s: magnitudes %v of type %s, want %v", TypeName(c.typ), amax.Data, TypeName(amax.DType), c.amax)
		}
		e, err := ComputeE8M0(amax, w.Shape, -1, 2)
		if c.codes == nil {
			if err == nil {
				t.Errorf("%s: codes %v of %v", TypeName(c.typ), e.Data, amax.Data)
			}
			continue
		}
		if err != nil || !slices.Equal(e.Data, c.codes) || e.DType != dtype.Float64 || !slices.Equal(e.Shape, []int{2, 1}) {
			t.Errorf("%s: codes %v, %v, want %v", TypeName(c.typ), e, err, c.codes)
		}
	}
}

// The reference takes any alpha: what is not positive gives the smallest scale.
func TestStrangeAlphas(t *testing.T) {
	w := must(t)(FromFloat32([]float32{1, 2, 3, -4}, 2, 2))
	least, saturated := float64(float32(1e-5)), []float64{7, 7, 7, -8}
	for alpha, want := range map[float64]struct {
		scale float64
		codes []float64
	}{
		0: {least, saturated}, -1: {least, saturated}, math.Inf(-1): {least, saturated},
		math.Inf(1): {math.Inf(1), []float64{0, 0, 0, 0}}, math.NaN(): {math.NaN(), []float64{0, 0, 0, 0}},
	} {
		q, s, _, err := QuantTensor(w, 2, 0, alpha, false, 4)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(q.Data, want.codes) || s.Data[0] != want.scale && !math.IsNaN(want.scale+s.Data[0]) {
			t.Errorf("alpha %v: codes %v, scales %v, want %v of %v", alpha, q.Data, s.Data, want.codes, want.scale)
		}
		_, s, zp, err := QuantTensor(w, 2, 0, alpha, true, 4)
		if err != nil {
			t.Fatal(err)
		}
		if zeros := []float64{0, 10}; !slices.Equal(zp.Data, zeros) || s.Data[1] != float64(float32(0.4)) {
			t.Errorf("alpha %v: zero points %v, scales %v, which take no notice of it", alpha, zp.Data, s.Data)
		}
	}
}

// FuzzQuantTensor: no argument panics, and ordinary weights come back to within
// half a step.
func FuzzQuantTensor(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, uint8(0), int8(2), int8(3), int8(0), int8(2), int8(0), int8(4), false)
	f.Add([]byte{0xff, 0x7f, 1, 2, 3, 4, 5, 6}, uint8(1), int8(2), int8(2), int8(1), int8(3), int8(1), int8(8), true)
	f.Add([]byte("\xff\x7f\x01\x02\x03\x04\x01\xca\xff\xff\x7f\xff\xca\xca\xca\x06"), uint8(0), int8(2), int8(2), int8(22), int8(23), int8(1), int8(8), false)
	f.Fuzz(func(t *testing.T, raw []byte, typ uint8, d0, d1, d2, block, axis, bits int8, useZeroPoint bool) {
		shape := []int{int(d0), int(d1), int(d2)}[:len(raw)%3+1]
		w, err := FromBytes(append(types, 0, 99)[typ%10], raw, shape...)
		if err != nil {
			return
		}
		wq, s, zp, err := QuantTensor(w, int(block), int(axis), 1, useZeroPoint, int(bits))
		if err != nil {
			return
		}
		back, err := DQTensor(wq, s, int(block), int(axis), zp)
		if err != nil {
			t.Fatalf("%v: codes of QuantTensor cannot be decoded: %v", w.Shape, err)
		}
		if !slices.Equal(wq.Shape, w.Shape) || !slices.Equal(back.Shape, w.Shape) {
			t.Fatalf("%v became %v and %v", w.Shape, wq.Shape, back.Shape)
		}
		if useZeroPoint || w.DType != dtype.Float32 && w.DType != dtype.Float64 {
			return
		}
		step, most := slices.Max(append(s.Data, 0)), math.MaxFloat64
		if w.DType == dtype.Float32 {
			most = math.MaxFloat32
		}
		for i, v := range back.Data {
			if math.Abs(w.Data[i])+step/2 > most {
				continue // the nearest multiple of the scale may be beyond the type
			}
			if e := math.Abs(v - w.Data[i]); e > 0.501*step {
				t.Fatalf("%v with scales %v became %v", w.Data[i], s.Data, v)
			}
		}
	})
}
