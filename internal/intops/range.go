package intops

import (
	"encoding/binary"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Range is the range of decoded codes, with the distance between two codes.
type Range struct{ Lo, Hi, Step float64 }

var (
	unbounded   = Range{Lo: math.Inf(-1), Hi: math.Inf(1)}
	notNegative = Range{Hi: math.Inf(1)}
)

// cuts reports whether codes with this range change values that have another by more than rounding
// does.
func (r Range) cuts(values Range) bool {
	return values.Lo < r.Lo-r.Step || values.Hi > r.Hi+r.Step
}

// union returns the smallest range that contains both.
func (r Range) union(o Range) Range { return Range{Lo: min(r.Lo, o.Lo), Hi: max(r.Hi, o.Hi)} }

// span returns the range of decoded codes. Without a known scale the upper end is infinite, and the
// lower end is known only if the zero point is the least code.
func (r *rewriting) span(q quantity) (span Range, known bool) {
	codes, zero, ok := r.zeroPoint(q)
	if !ok {
		return unbounded, false
	}
	lo, hi := codes.Limits()
	if raw, ok := r.bytes(q.scale); ok && len(raw) == 4 && dtype.DType(q.scale.Tensor.GetDataType()) == dtype.Float32 {
		scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		a, b := float64(lo-zero)*scale, float64(int64(hi)-zero)*scale
		return Range{min(a, b), max(a, b), scale}, true
	}
	if zero == lo {
		return notNegative, false
	}
	return unbounded, false
}

// zeroPoint returns the type of codes and their zero point. It is not ok if there are several, or if the
// type is unknown.
func (r *rewriting) zeroPoint(q quantity) (codes dtype.DType, zero int64, ok bool) {
	if q.zero == nil {
		codes = r.codeType(q.codes)
		return codes, 0, codes.Integer() && codes.Bits() <= 16
	}
	raw, ok := r.bytes(q.zero)
	if !ok || len(raw) == 0 {
		return 0, 0, false
	}
	codes = dtype.DType(q.zero.Tensor.GetDataType())
	for i := 1; i < len(raw); i++ {
		if size := int(codes.Bits() / 8); size == 0 || i >= size && raw[i] != raw[i-size] {
			return 0, 0, false
		}
	}
	switch {
	case codes == dtype.Int8:
		zero = int64(int8(raw[0]))
	case codes == dtype.Uint8:
		zero = int64(raw[0])
	case codes == dtype.Int16 && len(raw) > 1:
		zero = int64(int16(binary.LittleEndian.Uint16(raw)))
	case codes == dtype.Uint16 && len(raw) > 1:
		zero = int64(binary.LittleEndian.Uint16(raw))
	default:
		return 0, 0, false
	}
	return codes, zero, true
}

// resultRange returns the range of the result of a calculation's float operator.
func (r *rewriting) resultRange(n *onnxpb.NodeProto, c calculation) Range {
	var operands []Range
	for _, at := range c.operands {
		span, _ := r.span(quantity{r.x.Source(n, at[0]), r.x.Source(n, at[1]), r.x.Source(n, at[2])})
		operands = append(operands, span)
	}
	if len(operands) == 0 {
		return unbounded
	}
	switch c.op {
	case "Sigmoid", "Softmax":
		return Range{Hi: 1}
	case "AveragePool", "GlobalAveragePool", "ReduceMean", "Concat", "Where":
		all := operands[0]
		for _, o := range operands[1:] {
			all = all.union(o)
		}
		return all
	case "Mul":
		if operands[0].Lo >= 0 && operands[1].Lo >= 0 {
			return Range{Hi: operands[0].Hi * operands[1].Hi}
		}
	case "LeakyRelu":
		if operands[0].Lo >= 0 {
			return operands[0]
		}
	case "Add":
		return Range{Lo: operands[0].Lo + operands[1].Lo, Hi: operands[0].Hi + operands[1].Hi}
	}
	return unbounded
}

// boundedBy lists float operators with the ranges of their results.
var boundedBy = map[string]Range{
	"Relu": notNegative, "Sigmoid": {Hi: 1}, "HardSigmoid": {Hi: 1}, "Softmax": {Hi: 1}, "Tanh": {Lo: -1, Hi: 1},
}

// passing are movers whose outputs have only values of their inputs.
var passing = []string{"Identity", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "Split"}

// sourceRange returns the range of the float value that a QuantizeLinear reads. A weight, perhaps
// reshaped, needs no clipping: its scale covers its range.
func (r *rewriting) sourceRange(v *graph.Value) Range {
	for range deepest {
		if constant(v) {
			return Range{}
		}
		if v == nil || v.Node == nil || v.Tensor != nil {
			break
		}
		n, op := v.Node, graph.Operator(v.Node)
		if bound, ok := boundedBy[op]; ok {
			return bound
		}
		switch {
		case op == "Clip":
			return r.clipRange(n)
		case decoders[op]:
			span, _ := r.span(quantity{r.x.Source(n, 0), r.x.Source(n, 1), r.x.Source(n, 2)})
			return span
		case !slices.Contains(passing, op):
			return unbounded
		}
		v = r.x.Source(n, 0)
	}
	return unbounded
}

// clipRange returns the range of the result of a Clip.
func (r *rewriting) clipRange(n *onnxpb.NodeProto) Range {
	span := unbounded
	for i, end := range []*float64{&span.Lo, &span.Hi} {
		if a := graph.Attribute(n, []string{"min", "max"}[i]); a != nil {
			*end = float64(a.GetF())
		}
		if bound := r.x.Source(n, 1+i); bound != nil {
			raw, ok := r.bytes(bound)
			if ok && len(raw) == 4 && dtype.DType(bound.Tensor.GetDataType()) == dtype.Float32 {
				*end = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
		}
	}
	return span
}

// limited adds a node that clips a value to the range of its codes: a Clip, or a Relu if only the
// lower end is known. It returns the name of the result.
func (r *rewriting) limited(g *onnxpb.GraphProto, in string, q quantity) (name string) {
	span, known := r.span(q)
	name = r.output(q)
	if known {
		r.ranges[name] = span
	}
	limit := &onnxpb.NodeProto{OpType: new("Relu"), Input: []string{in}, Output: []string{name}}
	r.add(g, limit)
	if !known {
		return name
	}
	limit.OpType = new("Clip")
	for i, end := range []float32{float32(span.Lo), float32(span.Hi)} {
		if r.x.Opset < 11 {
			limit.Attribute = append(limit.Attribute, &onnxpb.AttributeProto{
				Name: new([]string{"min", "max"}[i]), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: new(end),
			})
			continue
		}
		raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(end))
		t := &onnxpb.TensorProto{DataType: new(int32(dtype.Float32)), RawData: raw}
		bound := r.copy.Names.Fresh(name + []string{"_min", "_max"}[i])
		r.add(g, &onnxpb.NodeProto{OpType: new("Constant"), Output: []string{bound}, Attribute: []*onnxpb.AttributeProto{
			{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t},
		}})
		limit.Input = append(limit.Input, bound)
	}
	return name
}
