package int4

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/golden"
	"onnxquant/quantutil"
)

// TestGoldenIntQuant holds the codec against the reference in the blocks where
// both follow the same rule: blocks of zeros and those with scales above the
// reference's floor, with a zero point only if their range contains 0.
func TestGoldenIntQuant(t *testing.T) {
	alike, all := 0, 0
	golden.Run(t, "int_quant", map[string]golden.Func{
		"quant_tensor": func(c *golden.Case) (golden.Arrays, error) {
			return quantTensor(c, &alike, &all)
		},
		"find_scales": nil, // package quantutil
		"rtn":         nil,
		"dq_tensor":   nil,
	})
	if alike == 0 {
		t.Error("no block is quantized by the same rule")
	}
	t.Logf("%d of %d blocks are quantized by the same rule, and alike", alike, all)
}

// quantTensor returns what the codec makes of a weight, and what the reference
// did for blocks where the rules differ. It counts the blocks of both kinds.
func quantTensor(c *golden.Case, alike, all *int) (golden.Arrays, error) {
	var bits, block, axis int
	var alpha float64
	var zeroPoint bool
	for name, v := range map[string]any{
		"num_bits": &bits, "block_size": &block, "quantize_axis": &axis, "alpha": &alpha, "use_zero_point": &zeroPoint,
	} {
		if err := c.Param(name, v); err != nil {
			return nil, err
		}
	}
	w := tensor(c.Inputs["w"])
	codec := Codec{Bits: bits, Signed: !zeroPoint, ZeroPoint: zeroPoint, Type: w.DType}
	last := len(w.Shape) - 1
	if c.Outputs == nil || codec.Validate() != nil || w.DType == dtype.BFloat16 || alpha != 1 && !zeroPoint || axis != 0 && axis != last {
		return nil, golden.ErrSkip
	}
	q, scale := tensor(c.Outputs["wq"]), tensor(c.Outputs["scale"])
	zp := &quantutil.Tensor{DType: w.DType, Shape: scale.Shape, Data: make([]float64, len(scale.Data))}
	if zeroPoint {
		zp = tensor(c.Outputs["zp"])
	}

	x, k, inner := w.Float32s(), w.Shape[axis], 1
	for _, d := range w.Shape[axis+1:] {
		inner *= d
	}
	n := (k + block - 1) / block
	for i := range scale.Data {
		o, b, column := i/(n*inner), i/inner%n, i%inner
		at := func(k int) int { return (o*w.Shape[axis]+b*block+k)*inner + column }
		length := min(block, k-b*block)
		var piece []float32
		contains0 := length < block // the reference pads
		zeros := true
		var above, below bool
		for j := range length {
			v := x[at(j)]
			piece = append(piece, v)
			zeros = zeros && v == 0
			above, below = above || v >= 0, below || v <= 0
		}
		contains0 = contains0 || above && below
		*all++
		if s := scale.Data[i]; !zeros && s <= 1.01e-5 || zeroPoint && !contains0 || math.IsInf(s, 0) {
			continue
		}
		*alike++
		s, z, codes, _ := encode(codec, piece)
		scale.Data[i] = float64(s)
		zp.Data[i] = float64(z)
		for j, b := range codes {
			q.Data[at(j)] = float64(int8(b))
		}
	}
	out := golden.Arrays{"wq": array(q), "scale": array(scale)}
	if zeroPoint {
		out["zp"] = array(zp)
	}
	return out, nil
}

func tensor(a golden.Array) *quantutil.Tensor {
	typ, ok := quantutil.ParseDType(a.DType)
	if !ok {
		panic("no tensor of " + a.DType)
	}
	x, err := quantutil.FromBytes(typ, a.Data, a.Shape...)
	if err != nil {
		panic(err)
	}
	return x
}

func array(x *quantutil.Tensor) golden.Array {
	return golden.Array{DType: quantutil.TypeName(x.DType), Shape: x.Shape, Data: x.Bytes()}
}
