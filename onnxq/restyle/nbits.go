package restyle

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

// toNBits replaces a DequantizeLinear and its readers by operators that read the codes.
// Signed codes and zero points become unsigned; without zero points, 2^(bits-1) represents 0.
func (r *rebuild) toNBits(w *recognize.Weight) (Weight, int64) {
	if w.Value == nil {
		return unchanged(w, ""), 0 // it has the style already
	}
	shape, typ := w.Constant.Values.Shape, w.Constant.Values.DType
	if why := nbitsObstacle(w); why != "" {
		return unchanged(w, why), 0
	}
	read := reach.Of(r.copy.Original, w.Value, shape)
	c, why := r.chooseNBits(w, read)
	if e := r.experts[w.Value]; why == "" && e != nil {
		c, why = e.Choice, e.Why
	}
	if why != "" {
		return unchanged(w, why), 0
	}
	q, err := form.New(w.Value.Name, typ, shape, c)
	if err != nil {
		return unchanged(w, err.Error()), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	r.copy.Drop(w.Nodes[0])
	t := r.operators.ReadCodes(q, read, b)
	r.fillNBits(w, q, t, form.IntegerFormats[w.Constant.Decoder.CodeType].Signed())
	made := Weight{Weight: w, Became: t.Codes.GetName(), NewForm: q.String(), Changed: true}
	for _, part := range []*onnxpb.TensorProto{t.Codes, t.Scales, t.TensorScale, t.Zeros} {
		if part != nil {
			made.OutBytes += graph.SizeOf(part)
		}
	}
	return made, 0
}

// settleExperts finds out which weights of MoEs can become parts of a QMoE.
func (r *rebuild) settleExperts(weights []*recognize.Weight) {
	e := discover.Experts{Graph: r.copy.Original, Of: map[*graph.Value]*discover.Expert{}}
	var list []*discover.Expert
	for _, w := range weights {
		if w.Value == nil || w.Obstacle != "" || nbitsObstacle(w) != "" {
			continue
		}
		t := discover.Tensor{Value: w.Value, DType: w.Constant.Values.DType, Shape: w.Constant.Values.Shape}
		t.Reach = reach.Of(r.copy.Original, w.Value, t.Shape)
		if c, why := r.chooseNBits(w, t.Reach); why == "" && c.NBits.Experts {
			one := &discover.Expert{Tensor: t, Choice: c, Fixed: true}
			list, e.Of[w.Value] = append(list, one), one
		}
	}
	e.Settle(list)
	r.experts = map[*graph.Value]*discover.Expert{}
	for _, one := range list {
		r.experts[one.Value] = one
	}
}

// nbitsObstacle returns why a weight, whatever reads it, cannot have the style nbits, or "".
func nbitsObstacle(w *recognize.Weight) string {
	d := w.Constant.Decoder
	_, ok := codeFormats(d.CodeType)
	switch {
	case w.Value.Body != nil:
		return "it is in a function"
	case d.Form != "DequantizeLinear" || w.Nodes[0].GetOpType() != d.Form && !keptApart(w):
		return "MatMulNBits and GatherBlockQuantized cannot express its form"
	case !ok:
		return fmt.Sprintf("MatMulNBits and GatherBlockQuantized do not support %s", w.CodeType)
	case d.X.Stored == nil || d.TensorScale != nil && !smallScales(d).Stepped() || d.S.DType != w.Constant.Values.DType:
		return "its scales have another type than its values"
	case w.Value.Output:
		return "it is an output of the graph"
	case len(w.Constant.Values.Shape) < 2 || w.Constant.Values.Size() == 0:
		return "MatMulNBits takes matrices"
	}
	return ""
}

// keptApart reports whether the codes have one more axis than the weight, of length 1. Conversions add
// it to keep ONNX Runtime from fusing the weight.
func keptApart(w *recognize.Weight) bool {
	shape := w.Constant.Values.Shape
	codes := w.Constant.Decoder.X.Shape
	return w.Nodes[0].GetOpType() == "Reshape" && len(codes) == 3 && codes[2] == 1 && slices.Equal(codes[:2], shape)
}

// chooseNBits returns the choice that describes the weight's existing codes, or why the operators for
// its readers cannot take these codes.
func (r *rebuild) chooseNBits(w *recognize.Weight, read reach.Reach) (c discover.Choice, why string) {
	d, shape, typ := w.Constant.Decoder, w.Constant.Values.Shape, w.Constant.Values.DType
	if len(read.Leaves) == 0 || read.Output {
		return c, "no operator reads it, or the graph returns it"
	}
	format, _ := codeFormats(d.CodeType)
	c = discover.Choice{
		Format: format, Target: target.Of(spec.Portable), Block: int(d.Block), Style: spec.NBits,
		AccuracyLevel: r.opts.AccuracyLevel, NoFoldBias: r.opts.NoFoldBias, ZeroPoint: !format.Signed() && !format.FloatCodes(), ScaleType: smallScales(d),
	}
	experts := discover.IsMoE(read.Leaves[0].Node) // QMoE computes rightly at each level
	if c.AccuracyLevel == spec.AccuracyDefault && !experts && (discover.SharesHalf(typ, read) || discover.ScalesMayVanish(r.copy.Original, discover.Tensor{Value: w.Value, DType: typ, Shape: shape, Reach: read}, c)) {
		c.AccuracyLevel = spec.AccuracyFloat32
	}
	o, weight, why := read.Leaves[0].Operand(shape)
	switch {
	case !weight:
		return c, fmt.Sprintf("%s has no such form", read.Leaves[0].Node.GetOpType())
	case why != "":
		return c, why
	case d.Block != 0:
		o = reach.Operand{Axis: int(d.Axis), View: shape}
		if experts && d.Block >= shape[d.Axis] {
			c.Block = spec.PerChannel // a block for each row is no block of a QMoE
		}
	case !d.PerTensor && (o.Axis == int(d.Axis) || len(shape) != 2):
		return c, "its scales are along the reduction axis"
	default:
		c.Block = spec.PerChannel
	}
	if format.FloatCodes() && d.Zero != nil {
		return c, "GatherBlockQuantized takes no zero points beside float8"
	}
	if d.Z != nil && !format.FloatCodes() {
		c.Format = unsignedFormats[w.Bits]
	}
	c.Operand = o
	c.NBits, why = discover.FindNBits(r.copy.Original, discover.Tensor{Value: w.Value, DType: typ, Shape: shape, Reach: read}, c)
	return c, why
}

// codeFormats returns the format with codes of a type and one scale for each block.
func codeFormats(t dtype.DType) (f spec.Format, ok bool) {
	if f, ok = float8Formats[t]; !ok {
		f, ok = form.IntegerFormats[t]
	}
	return f, ok
}

var float8Formats = map[dtype.DType]spec.Format{dtype.Float8E4M3FN: spec.FP8E4M3, dtype.Float8E5M2: spec.FP8E5M2}

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
