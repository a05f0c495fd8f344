package onnxq

import (
	"bytes"
	"fmt"
	"testing"

	"onnxquant/int4"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// The codes, scales and zero points of MatMulNBits and GatherBlockQuantized are
// those of DequantizeLinear in another order, however weights are cut.
func TestNBitsHoldsTheSameCodes(t *testing.T) {
	found := 0
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "nan" {
			continue
		}
		for _, opts := range []Options{
			{Block: 16}, {Block: 32, ZeroPoint: true}, {Bits: 2, Block: 16, ZeroPoint: true}, {Bits: 8, Block: 64},
			{Block: spec.PerChannel}, {Block: 256, ZeroPoint: true},
		} {
			opts.Ops = []string{"all"}
			for _, limit := range []int64{8, 700, greatestTile} {
				t.Run(fmt.Sprintf("%s/%d bits/block %d/limit %d", kind.Name, opts.Bits, opts.Block, limit), func(t *testing.T) {
					in := opened(t, built(t, kind.Name))
					plans := map[spec.Style]*Plan{}
					models := map[spec.Style]*Model{}
					for _, style := range []spec.Style{spec.DQ, spec.NBits} {
						opts.Style = style
						r, out := convertedIn(t, in, opts, limit)
						plans[style], models[style] = r.Plan, opened(t, out)
					}
					for i, w := range plans[spec.NBits].conv.to.weights {
						if w.d.choice.style == spec.NBits {
							found++
							compareStyles(t, models, plans[spec.DQ].conv.to.weights[i], w)
						}
					}
				})
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d weights took the style", found)
	}
}

func compareStyles(t *testing.T, models map[spec.Style]*Model, dq, nb *weight) {
	t.Helper()
	compare := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s differ", nb.d.value.Name, what)
		}
	}
	turned := nb.inner > 1
	_, q := raw(t, models[spec.DQ], dq.codes.GetName())
	_, got := raw(t, models[spec.NBits], nb.codes.GetName())
	pitch := nb.k
	if nb.d.choice.nbits.product {
		pitch = nb.blocks * nb.d.choice.nbits.block
	}
	compare("codes", got, repacked(q, dq, dq.k, pitch, turned, dq.signed()))

	_, scale := raw(t, models[spec.DQ], dq.scale.GetName())
	_, got = raw(t, models[spec.NBits], nb.scale.GetName())
	elem := len(scale) / int(dq.outer*dq.blocks*dq.inner)
	want := make([]byte, len(scale))
	for i := range want {
		at := i / elem
		if turned {
			at = at%int(dq.blocks)*int(dq.inner) + at/int(dq.blocks)
		}
		want[i] = scale[at*elem+i%elem]
	}
	compare("scales", got, want)

	if dq.zero == nil {
		if nb.zero != nil {
			t.Errorf("%s has zero points", nb.d.value.Name)
		}
		return
	}
	_, zero := raw(t, models[spec.DQ], dq.zero.GetName())
	_, got = raw(t, models[spec.NBits], nb.zero.GetName())
	per := int64(8 / dq.bits())
	compare("zero points", got, repacked(zero, dq, dq.blocks, (dq.blocks+per-1)/per*per, turned, false))
}

// repacked unpacks [k, inner] or rows of k, and packs rows of k, each padded to
// pitch.
func repacked(packed []byte, w *weight, k, pitch int64, turned, signed bool) []byte {
	rows := w.outer * w.inner
	q := make([]byte, k*rows)
	int4.Unpack(q, packed, w.bits(), false)
	padded := make([]byte, rows*pitch)
	for r := range rows {
		for i := range k {
			v := q[r*k+i]
			if turned {
				v = q[i*rows+r]
			}
			if signed {
				v = (v + 1<<(w.bits()-1)) & (1<<w.bits() - 1)
			}
			padded[r*pitch+i] = v
		}
	}
	out := make([]byte, int4.PackedLen(len(padded), w.bits()))
	int4.Pack(out, padded, w.bits())
	return out
}
