package restyle

import (
	"fmt"

	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// toNBits replaces a DequantizeLinear and its readers by operators that read the codes.
// Signed codes and zero points become unsigned; without zero points, 2^(bits-1) represents 0.
func (r *rebuild) toNBits(w *recognize.Weight) (Weight, int64) {
	d := w.Constant.Decoder
	format, ok := form.IntegerFormats[d.CodeType]
	switch {
	case w.Value == nil:
		return stays(w, ""), 0 // it has the style already
	case w.Value.Body != nil:
		return stays(w, "it is in a function"), 0
	case d.Form != "DequantizeLinear" || w.Nodes[0].GetOpType() != d.Form:
		return stays(w, "MatMulNBits and GatherBlockQuantized cannot express its form"), 0
	case !ok:
		return stays(w, fmt.Sprintf("MatMulNBits and GatherBlockQuantized do not support %s", w.CodeType)), 0
	case d.X.Stored == nil || d.TensorScale != nil && !smallScales(d).Stepped() || d.S.DType != w.Constant.Values.DType:
		return stays(w, "its scales have another type than its values"), 0
	case w.Value.Output:
		return stays(w, "it is an output of the graph"), 0
	case len(w.Constant.Values.Shape) < 2 || w.Constant.Values.Size() == 0:
		return stays(w, "MatMulNBits takes matrices"), 0
	}
	x, typ, shape := r.copy.Original, w.Constant.Values.DType, w.Constant.Values.Shape
	read := reach.Of(x, w.Value, shape)
	if len(read.Leaves) == 0 || read.Output {
		return stays(w, "no operator reads it, or the graph returns it"), 0
	}
	c := discover.Choice{
		Format: format, Target: target.Of(spec.Portable), Block: int(d.Block), Style: spec.NBits, AccuracyLevel: r.opts.AccuracyLevel, NoFoldBias: r.opts.NoFoldBias, ZeroPoint: !format.Signed(), ScaleType: smallScales(d),
	}
	if c.AccuracyLevel == spec.AccuracyDefault && discover.SharesHalf(typ, read) {
		c.AccuracyLevel = spec.AccuracyFloat32
	}
	o, weight, why := read.Leaves[0].Operand(shape)
	switch {
	case !weight:
		return stays(w, fmt.Sprintf("%s has no such form", read.Leaves[0].Node.GetOpType())), 0
	case why != "":
		return stays(w, why), 0
	case d.Block != 0:
		o = reach.Operand{Axis: int(d.Axis), View: shape}
	case !d.PerTensor && (o.Axis == int(d.Axis) || len(shape) != 2):
		return stays(w, "its scales are along the reduction axis"), 0
	default:
		c.Block = spec.PerChannel
	}
	if d.Z != nil {
		c.Format = unsignedFormats[w.Bits]
	}
	c.Operand = o
	if c.NBits, why = discover.FindNBits(x, w.Value, typ, shape, read, c); why != "" {
		return stays(w, why), 0
	}
	q, err := form.New(w.Value.Name, typ, shape, c)
	if err != nil {
		return stays(w, err.Error()), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	r.copy.Drop(w.Nodes[0])
	t := r.operators.ReadCodes(q, read, b)
	r.fillNBits(w, q, t, format.Signed())
	made := Weight{Weight: w, Became: t.Codes.GetName(), NewForm: q.String(), Changed: true}
	for _, part := range []*onnxpb.TensorProto{t.Codes, t.Scales, t.TensorScale, t.Zeros} {
		if part != nil {
			made.OutBytes += graph.SizeOf(part)
		}
	}
	return made, 0
}

var unsignedFormats = map[int]spec.Format{2: spec.Uint2, 4: spec.Uint4, 8: spec.Uint8}

// fillNBits fills the tensors of ONNX Runtime's operators with the codes, scales and zero
// points of a weight.
func (r *rebuild) fillNBits(w *recognize.Weight, q *form.Weight, t form.Tensors, signed bool) {
	d := w.Constant.Decoder
	middle := byte(0)
	if signed {
		middle = 1 << (w.Bits - 1)
	}
	// The stored codes have the last axis as rows.
	codesAt, _, zerosAt := q.Placements()
	transposed, last := codesAt.Transposed, codesAt.K
	if transposed {
		last = codesAt.Inner
	}
	codes := lazy.Grid{Stored: d.X.Stored, Bits: w.Bits, Rows: w.Constant.Values.Size() / last, Cols: last, Pitch: last}
	r.fillCodes(t.Codes, gridMatrix(&codes).less(middle), w.Bits, transposed, codesAt.Pitch)

	// Scales: one per block, or one per row.
	rows, cols := q.Outer*q.Inner, q.Blocks
	if d.Block != 0 && transposed {
		rows, cols = cols, rows
	}
	transposed = transposed && d.Block != 0
	each := func(x *lazy.Tensor) *lazy.Tensor {
		if d.PerTensor {
			return x.Spread(lazy.OneScale, []int64{rows})
		}
		return x
	}
	r.fillScales(t.Scales, each(storedScales(d)), rows, cols, transposed)
	if t.TensorScale != nil {
		r.fillFloats(t.TensorScale, d.Step, 1, 1, false)
	}
	if t.Zeros != nil {
		zero := d.Z
		if zero == nil { // unsigned codes without zero points: 0
			zero = lazy.Constant(0, d.CodeType)
		}
		r.fillCodes(t.Zeros, tensorMatrix(each(zero), rows, cols).less(middle), w.Bits, transposed, zerosAt.Pitch)
	}
}
