package form_test

import (
	"bytes"
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// MatMulNBits and GatherBlockQuantized have the codes, scales and zero points of DequantizeLinear
// in another order, for any tiles.
func TestNBitsHoldsTheSameCodes(t *testing.T) {
	found := 0
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "nan" {
			continue
		}
		for _, opts := range []onnxq.Options{
			{Block: 16}, {Block: 32, ZeroPoint: true}, {Bits: 2, Block: 16, ZeroPoint: true}, {Bits: 8, Block: 64},
			{Block: spec.PerChannel}, {Block: 256, ZeroPoint: true},
		} {
			opts.Ops = []string{"all"}
			for _, limit := range []int64{8, 700, modeltest.LargestTile} {
				t.Run(fmt.Sprintf("%s/%d bits/block %d/limit %d", kind.Name, opts.Bits, opts.Block, limit), func(t *testing.T) {
					in := modeltest.Open(t, modeltest.Build(t, kind.Name))
					plans := map[spec.Style]*onnxq.Plan{}
					models := map[spec.Style]*onnxq.Model{}
					for _, style := range []spec.Style{spec.DQ, spec.NBits} {
						opts.Style = style
						r, out := modeltest.ConvertInTiles(t, in, opts, limit)
						plans[style], models[style] = r.Plan, modeltest.Open(t, out)
					}
					for i, w := range plans[spec.NBits].Stages().Weights {
						if w.Choice.Style == spec.NBits {
							found++
							compareStyles(t, models, plans[spec.DQ].Stages().Weights[i], w)
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

// A head whose transpose is looked up, as onnxruntime-genai's builder ties embeddings, stays one table for both operators.
func TestTiedHead(t *testing.T) {
	in := modeltest.Open(t, modeltest.Write(t, modeltest.Model(
		modeltest.Tensors{modeltest.Floats("head", 64, 48), modeltest.Integers("ids", 3, 7, 47)},
		modeltest.Nodes{
			modeltest.Node("Transpose", "table", "head", modeltest.IntsAttr("perm", 1, 0)), modeltest.Node("Gather", "rows", "table ids"),
			modeltest.Node("MatMul", "y", "rows head"),
		},
	)))
	_, out := modeltest.ConvertInTiles(t, in, onnxq.Options{Style: spec.NBits, Block: 32, ZeroPoint: true, Ops: []string{"all"}}, 700)
	read := map[string]string{}
	for _, n := range modeltest.Open(t, out).Graph().File.Proto.Graph.Node {
		read[n.GetOpType()] = n.Input[0] + " " + n.Input[min(2, len(n.Input)-1)]
	}
	if len(read) != 3 || read["GatherBlockQuantized"] == "" || read["MatMulNBits"] == "" || read["Reshape"] == "" {
		t.Errorf("operators that read codes: %v", read)
	}
}

func compareStyles(t *testing.T, models map[spec.Style]*onnxq.Model, dq, nb rewrite.Weight) {
	t.Helper()
	compare := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s differ", nb.Value.Name, what)
		}
	}
	transposed := nb.Form.Inner > 1
	_, q := modeltest.Tensor(t, models[spec.DQ], dq.Tensors.Codes.GetName())
	_, got := modeltest.Tensor(t, models[spec.NBits], nb.Tensors.Codes.GetName())
	pitch := nb.Form.K
	if nb.Choice.NBits.Product {
		pitch = nb.Form.Blocks * nb.Choice.NBits.Block
	}
	compare("codes", got, repacked(q, dq, dq.Form.K, pitch, transposed, dtype.DType(dq.Tensors.Codes.GetDataType()).Signed()))

	_, scale := modeltest.Tensor(t, models[spec.DQ], dq.Tensors.Scales.GetName())
	_, got = modeltest.Tensor(t, models[spec.NBits], nb.Tensors.Scales.GetName())
	elem := len(scale) / int(dq.Form.Outer*dq.Form.Blocks*dq.Form.Inner)
	want := make([]byte, len(scale))
	for i := range want {
		at := i / elem
		if transposed {
			at = at%int(dq.Form.Blocks)*int(dq.Form.Inner) + at/int(dq.Form.Blocks)
		}
		want[i] = scale[at*elem+i%elem]
	}
	compare("scales", got, want)

	if dq.Tensors.Zeros == nil {
		if nb.Tensors.Zeros != nil {
			t.Errorf("%s has zero points", nb.Value.Name)
		}
		return
	}
	_, zero := modeltest.Tensor(t, models[spec.DQ], dq.Tensors.Zeros.GetName())
	_, got = modeltest.Tensor(t, models[spec.NBits], nb.Tensors.Zeros.GetName())
	per := int64(8 / dq.Choice.Format.Bits())
	compare("zero points", got, repacked(zero, dq, dq.Form.Blocks, (dq.Form.Blocks+per-1)/per*per, transposed, false))
}

// repacked unpacks codes of shape [k, inner] or of rows of k, and packs them as rows of k, each
// padded to pitch.
func repacked(packed []byte, w rewrite.Weight, k, pitch int64, transposed, signed bool) []byte {
	rows, bits := w.Form.Outer*w.Form.Inner, w.Choice.Format.Bits()
	q := make([]byte, k*rows)
	int4.Unpack(q, packed, bits, false)
	padded := make([]byte, rows*pitch)
	for r := range rows {
		for i := range k {
			v := q[r*k+i]
			if transposed {
				v = q[i*rows+r]
			}
			if signed {
				v = (v + 1<<(bits-1)) & (1<<bits - 1)
			}
			padded[r*pitch+i] = v
		}
	}
	out := make([]byte, int4.PackedLen(len(padded), bits))
	int4.Pack(out, padded, bits)
	return out
}
