package recognize

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
)

// Pair is a QuantizeLinear of an activation followed by a DequantizeLinear with the same constant
// scales and zero points. Its output replaces the activation.
type Pair struct {
	Activation           *graph.Value
	Quantize, Dequantize *onnxpb.NodeProto
	Codes                dtype.DType // uint8, int8, uint16, int16 or float8e4m3fn

	scales, zeros []float32   // as many
	scaleType     dtype.DType // which rounded them
}

// mostScales bounds the scales of an activation, against hostile models.
const mostScales = 1 << 16

// Pair returns the pair that makes a value, or nil.
func (f *Recognizer) Pair(v *graph.Value) *Pair {
	d := v.Node
	if d == nil || !isLinear(d, "DequantizeLinear") || f.Graph.Source(d, 0) == nil {
		return nil
	}
	q := f.Graph.Source(d, 0).Node
	if q == nil || !isLinear(q, "QuantizeLinear") || f.Graph.Source(q, 0) == nil {
		return nil
	}
	p := &Pair{Activation: f.Graph.Source(q, 0), Quantize: q, Dequantize: d}
	codes, scales, zeros, ok := f.linear(q)
	_, others, otherZeros, also := f.linear(d)
	if !ok || !also || !slices.Equal(scales, others) || !slices.Equal(zeros, otherZeros) {
		return nil
	}
	if len(scales) > 1 && graph.IntAttributeOr(q, "axis", 1) != graph.IntAttributeOr(d, "axis", 1) {
		return nil
	}
	if zero := f.input(d, 2); zero != nil && zero.Values.DType != codes {
		return nil
	}
	p.Codes, p.scales, p.zeros, p.scaleType = codes, scales, zeros, f.input(q, 1).Values.DType
	return p
}

// Step is the largest scale.
func (p *Pair) Step() float64 { return float64(slices.Max(p.scales)) }

// limits returns the least and the greatest code.
func (p *Pair) limits() (least, most float64) {
	if format, ok := lazy.Float8Types[p.Codes]; ok {
		return -float64(format.Max()), float64(format.Max())
	}
	lo, hi := p.Codes.Limits()
	return float64(lo), float64(hi)
}

// Range returns the least and the largest number that has a code, if there is one scale.
func (p *Pair) Range() (lo, hi float64, ok bool) {
	if len(p.scales) != 1 {
		return 0, 0, false
	}
	least, most := p.limits()
	scale, zero := float64(p.scales[0]), float64(p.zeros[0])
	return (least - zero) * scale, (most - zero) * scale, true
}

// Activations counts the values outside of functions that pairs quantize, by the type of their
// codes. Values that depend on constants alone are weights.
func Activations(x *graph.Graph) map[string]int {
	f := New(x)
	type coding struct {
		activation *graph.Value
		codes      dtype.DType
	}
	seen := map[coding]bool{}
	count := map[string]int{}
	graph.WalkGraphs(x.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			v := x.Made(n)
			if v == nil {
				continue
			}
			p := f.Pair(v)
			if p == nil || seen[coding{p.Activation, p.Codes}] || p.Activation.Tensor != nil || f.Fold(p.Activation) != nil {
				continue
			}
			seen[coding{p.Activation, p.Codes}] = true
			count[p.Codes.String()]++
		}
	})
	return count
}

// isLinear reports whether a node is the QuantizeLinear or DequantizeLinear of ONNX or com.microsoft,
// without attributes of later opsets that change its result.
func isLinear(n *onnxpb.NodeProto, op string) bool {
	if n.GetOpType() != op || !graph.IsStandard(n.GetDomain()) && n.GetDomain() != graph.Contrib {
		return false
	}
	return !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool {
		switch {
		case a.GetRefAttrName() != "":
			return true
		case a.GetName() == "axis" || a.GetName() == "saturate":
			return false
		case a.GetName() == "output_dtype":
			return op != "QuantizeLinear" && a.GetI() != 0
		}
		return a.GetName() != "block_size" && a.GetName() != "precision" || a.GetI() != 0
	})
}

// linear reads the type of the codes of a node, its scales and its zero points. It is not ok if
// they are not constant, or of no use.
func (f *Recognizer) linear(n *onnxpb.NodeProto) (codes dtype.DType, scales, zeros []float32, ok bool) {
	scale := f.input(n, 1)
	if scale == nil || !scale.Values.DType.Float() || len(scale.Values.Shape) > 1 || scale.Values.Size() < 1 || scale.Values.Size() > mostScales {
		return 0, nil, nil, false
	}
	scales, zeros = make([]float32, scale.Values.Size()), make([]float32, scale.Values.Size())
	if scale.Values.ReadAll(&lazy.Arena{}, scales, 0) != nil || slices.ContainsFunc(scales, useless) {
		return 0, nil, nil, false
	}
	codes = dtype.Uint8
	to := dtype.DType(graph.IntAttribute(n, "output_dtype"))
	if to != 0 {
		codes = to
	}
	if graph.HasInput(n, 2) {
		zero := f.input(n, 2)
		if zero == nil || zero.Values.Size() != scale.Values.Size() || zero.Values.ReadAll(&lazy.Arena{}, zeros, 0) != nil {
			return 0, nil, nil, false
		}
		if codes = zero.Values.DType; to != 0 && to != codes {
			return 0, nil, nil, false
		}
	}
	switch codes {
	case dtype.Uint8, dtype.Int8, dtype.Uint16, dtype.Int16, dtype.Float8E4M3FN:
		return codes, scales, zeros, true
	}
	return 0, nil, nil, false
}

// useless reports whether a scale makes no codes: it is not positive, or not finite.
func useless(scale float32) bool { return !(scale > 0) || scale-scale != 0 }

// Clamps reports whether the quantization range clips like a Relu or Clip with these limits, which is
// then redundant. A limit of 0 must match exactly, others within the rounding of the zero point, the
// scale and the limit.
func (p *Pair) Clamps(lo, hi float64) bool {
	least, most := p.limits()
	rounding := 0.0 // relative, of two numbers
	switch p.scaleType {
	case dtype.Float16:
		rounding = 0x1p-10
	case dtype.BFloat16:
		rounding = 0x1p-7
	}
	for i, s := range p.scales {
		scale, zero := float64(s), float64(p.zeros[i])
		slack := func(limit float64) float64 {
			if limit == 0 || math.IsInf(limit, 0) {
				return 0
			}
			return 0.5001*scale + rounding*math.Abs(limit)
		}
		if (least-zero)*scale < lo-slack(lo) || (most-zero)*scale > hi+slack(hi) {
			return false
		}
	}
	return true
}
