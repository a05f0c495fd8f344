package dtype_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	. "onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// The types are those of ONNX, by number and by name.
func TestTypes(t *testing.T) {
	for n, name := range onnxpb.TensorProto_DataType_name {
		if got := DType(n).String(); got != name {
			t.Errorf("type %d is %s, want %s", n, got, name)
		}
	}
	for typ, want := range map[DType]onnxpb.TensorProto_DataType{
		Float32: onnxpb.TensorProto_FLOAT, Float16: onnxpb.TensorProto_FLOAT16,
		BFloat16: onnxpb.TensorProto_BFLOAT16, Float64: onnxpb.TensorProto_DOUBLE,
		Int8: onnxpb.TensorProto_INT8, Uint8: onnxpb.TensorProto_UINT8,
		Int16: onnxpb.TensorProto_INT16, Uint16: onnxpb.TensorProto_UINT16,
		Int32: onnxpb.TensorProto_INT32, Uint32: onnxpb.TensorProto_UINT32,
		Int64: onnxpb.TensorProto_INT64, Uint64: onnxpb.TensorProto_UINT64,
		Int4: onnxpb.TensorProto_INT4, Uint4: onnxpb.TensorProto_UINT4,
		Int2: onnxpb.TensorProto_INT2, Uint2: onnxpb.TensorProto_UINT2,
		Bool: onnxpb.TensorProto_BOOL, String: onnxpb.TensorProto_STRING,
		Complex64: onnxpb.TensorProto_COMPLEX64, Complex128: onnxpb.TensorProto_COMPLEX128,
		Float8E4M3FN: onnxpb.TensorProto_FLOAT8E4M3FN, Float8E4M3FNUZ: onnxpb.TensorProto_FLOAT8E4M3FNUZ,
		Float8E5M2: onnxpb.TensorProto_FLOAT8E5M2, Float8E5M2FNUZ: onnxpb.TensorProto_FLOAT8E5M2FNUZ,
		Float8E8M0: onnxpb.TensorProto_FLOAT8E8M0, Float4E2M1: onnxpb.TensorProto_FLOAT4E2M1,
		Float6E2M3: onnxpb.TensorProto_FLOAT6E2M3, Float6E3M2: onnxpb.TensorProto_FLOAT6E3M2,
	} {
		if int32(typ) != int32(want) {
			t.Errorf("%v is %d, want %d", typ, typ, want)
		}
	}
	for _, n := range []DType{-1, 99} {
		if n.Bits() != 0 || n.Float() || n.Integer() {
			t.Errorf("%v has %d bits", n, n.Bits())
		}
	}
	if s := DType(99).String(); s != "type 99" {
		t.Errorf("type 99 is %q", s)
	}
}

func TestLimits(t *testing.T) {
	for typ, want := range map[DType]struct {
		lo int64
		hi uint64
	}{
		Int2: {-2, 1}, Uint2: {0, 3}, Int4: {-8, 7}, Uint4: {0, 15},
		Int8: {-128, 127}, Uint8: {0, 255}, Int16: {-32768, 32767}, Uint16: {0, 65535},
		Int32: {math.MinInt32, math.MaxInt32}, Uint32: {0, math.MaxUint32},
		Int64: {math.MinInt64, math.MaxInt64}, Uint64: {0, math.MaxUint64},
		Bool: {0, 0}, Float32: {0, 0},
	} {
		if lo, hi := typ.Limits(); lo != want.lo || hi != want.hi {
			t.Errorf("%v: %d … %d, want %v", typ, lo, hi, want)
		}
		if typ.Signed() != (want.lo < 0) {
			t.Errorf("%v: signed is %v", typ, typ.Signed())
		}
	}
}

func TestBytes(t *testing.T) {
	for typ, want := range map[DType]int64{Float64: 40, Float16: 10, Int8: 5, Int4: 3, Uint2: 2} {
		if got := typ.Bytes(5); got != want {
			t.Errorf("5 elements of %v take %d bytes, want %d", typ, got, want)
		}
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want int64
	}{{nil, 1}, {[]int64{2, 3}, 6}, {[]int64{1 << 40, 0, 1 << 40}, 0}} {
		if got, err := Elements(c.dims); err != nil || got != c.want {
			t.Errorf("%v: %d, %v; want %d", c.dims, got, err, c.want)
		}
	}
	for _, dims := range [][]int64{{-1}, {0, -1}, {1 << 31, 1 << 31}} {
		if n, err := Elements(dims); err == nil {
			t.Errorf("%v: %d, want an error", dims, n)
		}
	}
}

func TestDecodeEncode(t *testing.T) {
	x := []float32{1, -2, float32(math.Inf(1))}
	for typ, want := range map[DType][]byte{
		Float32:  {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0x80, 0x7f},
		Float16:  {0, 0x3c, 0, 0xc0, 0, 0x7c},
		BFloat16: {0x80, 0x3f, 0, 0xc0, 0x80, 0x7f},
		Float64:  {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f},
	} {
		raw := make([]byte, typ.Bytes(3)+1) // a byte more than is needed
		typ.Encode(raw, x)
		if !bytes.Equal(raw[:len(raw)-1], want) {
			t.Errorf("%v: % x, want % x", typ, raw, want)
		}
		y := make([]float32, 3)
		typ.Decode(y, raw)
		if !slices.Equal(y, x) {
			t.Errorf("%v: decoded %v, want %v", typ, y, x)
		}
	}
	y := make([]float32, 1)
	Float64.Decode(y, []byte{0, 0, 0, 0, 0, 0, 0xe0, 0xff})
	if !math.IsInf(float64(y[0]), -1) {
		t.Errorf("a float64 beyond float32 is %v", y[0])
	}
}

func TestDecodePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"integers":  func() { Int8.Decode(make([]float32, 1), make([]byte, 1)) },
		"too short": func() { Float16.Encode(make([]byte, 3), make([]float32, 2)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
