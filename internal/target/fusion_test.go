package target

import (
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/spec"
)

// The measurements are in test/oracle/fusion.txt.
func TestUnfused(t *testing.T) {
	plain := func(change func(*Decoded)) Decoded {
		d := Decoded{Format: spec.Int4, DType: dtype.Float16, Shape: []int64{128, 95}, Block: 32}
		change(&d)
		return d
	}
	for _, c := range []struct {
		d            Decoded
		why, doubted string
		spoilt       bool
	}{
		{d: plain(func(d *Decoded) {})},
		{d: plain(func(d *Decoded) { d.Block = spec.PerChannel })},
		{d: plain(func(d *Decoded) { d.Format = spec.Uint2 }), spoilt: true},
		{d: plain(func(d *Decoded) { d.Format, d.Shape = spec.Uint2, []int64{128, 96} })},
		{d: plain(func(d *Decoded) { d.Format, d.Block = spec.Int2, 48 }), why: "its block size is 48"},
		{d: plain(func(d *Decoded) { d.Format = spec.FP8E4M3 }), why: "its format is fp8-e4m3"},
		{d: plain(func(d *Decoded) { d.Shape = []int64{2, 128, 96} }), why: "it has 3 axes"},
		{d: plain(func(d *Decoded) { d.DType = dtype.Float64 }), why: "its values are DOUBLE"},
		{d: plain(func(d *Decoded) { d.Axis = 1 }), why: "its scales are not along the reduction axis"},
		{d: plain(func(d *Decoded) {
			d.Format, d.Axis, d.Block, d.Product.WTransposed = spec.Int8, 1, spec.PerChannel, true
			d.Opset = 21
		})},
		{d: plain(func(d *Decoded) {
			d.Format, d.Axis, d.Block, d.Product.WTransposed = spec.Int8, 1, spec.PerChannel, true
			d.Opset = 20
		}), why: "a Transpose lies between it and its product, and the opset is below 21"},
		{d: plain(func(d *Decoded) {
			d.Format, d.Axis, d.Block, d.Product.WTransposed = spec.Int8, 1, spec.PerChannel, true
			d.Opset, d.Zeros = 13, true
		})},
		{d: plain(func(d *Decoded) { d.Axis, d.Block, d.Product.WTransposed = 1, spec.PerChannel, true }), why: "a Transpose lies between it and its product"},
		{d: plain(func(d *Decoded) { d.Other = "it has several readers" }), why: "it has several readers"},
		{d: plain(func(d *Decoded) { d.Product.Clamped = "Relu" }), why: "Relu follows and has one reader"},
		{d: plain(func(d *Decoded) { d.Product.C = UnknownAddend }), doubted: "the addend of the product may have two axes"},
		{d: plain(func(d *Decoded) { d.Product.C, d.Product.Transposed = UnknownAddend, true }), why: "its Gemm takes over a Transpose"},
	} {
		if why, doubted, spoilt := c.d.Unfused(), c.d.Doubtful(), c.d.Spoilt(); why != c.why || doubted != c.doubted || spoilt != c.spoilt {
			t.Errorf("%+v: %q, %q, %v, want %q, %q, %v", c.d, why, doubted, spoilt, c.why, c.doubted, c.spoilt)
		}
	}
}

func TestZeroed(t *testing.T) {
	for _, c := range []struct {
		d    Decoded
		want bool
	}{
		{d: Decoded{Nested: true, DType: dtype.Float16}, want: true},
		{d: Decoded{Nested: true, DType: dtype.Float32}},
		{d: Decoded{DType: dtype.Float16}},
		{d: Decoded{Nested: true, DType: dtype.Float16, Other: "it has several readers"}},
	} {
		c.d.Format, c.d.Shape, c.d.Block = spec.Int4, []int64{128, 96}, 32
		if got := c.d.Zeroed(); got != c.want {
			t.Errorf("%+v: %v", c.d, got)
		}
	}
}
