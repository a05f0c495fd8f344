package kernels

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestBytes(t *testing.T) {
	want := []float32{1, -2.5, float32(math.Inf(1)), 0x1p-149}
	x := make([]float32, len(want))
	b := Bytes(x)
	if len(b) != 4*len(x) {
		t.Fatalf("%d bytes", len(b))
	}
	for i, v := range want {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	FromFloat32(x)
	for i, v := range want {
		if x[i] != v {
			t.Errorf("element %d is %v, want %v", i, x[i], v)
		}
	}
	if len(Bytes(nil)) != 0 {
		t.Error("nothing has bytes")
	}
}

func TestFloats(t *testing.T) {
	x := []float32{1, -2.5, 3}
	b := Bytes(x)
	for _, bytes := range [][]byte{b, b[4:]} {
		want := x[3-len(bytes)/4:]
		if got := Floats(bytes); !bigEndian && (len(got) != len(want) || &got[0] != &want[0]) {
			t.Errorf("%v, want the memory of %v", got, want)
		}
	}
	if Floats(b[1:9]) != nil {
		t.Error("numbers that do not lie where float32 may")
	}
}
