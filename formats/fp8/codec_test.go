package fp8

import (
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
)

// The package comment's rule, block by block.
func TestCodec(t *testing.T) {
	const k, block = 50, 16
	r := rand.New(rand.NewPCG(3, 3))
	for _, f := range all {
		for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			c := Codec{Format: f, Type: typ}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			x := make([]float32, 3*k)
			for i := range x {
				x[i] = typ.Round(float32(r.NormFloat64()))
			}
			clear(x[:block]) // zeros have the scale 1
			scale := make([]float32, 3*4)
			q, y := make([]byte, len(x)), make([]float32, len(x))
			c.ObserveBlocks(nil, scale, x, k, block)
			amax := append([]float32(nil), scale...)
			if !c.Scales(scale, nil, nil, scale) {
				t.Fatal("finite weights reported")
			}
			c.EncodeBlocks(q, x, scale, nil, k, block)
			c.DecodeBlocks(y, q, scale, nil, k, block)
			for i, v := range x {
				b := i/k*4 + i%k/block
				if want := scaleFor(typ, amax[b], float32(layout[f].max)); scale[b] != want {
					t.Fatalf("%s of %s: magnitude %v has the scale %v, want %v", f, typ, amax[b], scale[b], want)
				}
				if b == 0 && scale[b] != 1 {
					t.Fatalf("%s of %s: zeros have the scale %v", f, typ, scale[b])
				}
				if want := f.Encode(v/scale[b], true); q[i] != want {
					t.Fatalf("%s of %s: %v/%v has code %#x, want %#x", f, typ, v, scale[b], q[i], want)
				}
				if want := typ.Round(f.Decode(q[i]) * scale[b]); math.Float32bits(y[i]) != math.Float32bits(want) {
					t.Fatalf("%s of %s: code %#x times %v is %v, want %v", f, typ, q[i], scale[b], y[i], want)
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Codec{{Format: 4}, {Type: dtype.Float64}, {Format: E5M2, Type: dtype.Uint8}} {
		if c.Validate() == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
