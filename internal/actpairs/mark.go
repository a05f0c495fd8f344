package actpairs

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// stored reports whether the content of a value is stored in the model and callers cannot replace
// it.
func (m *marking) stored(v *graph.Value) bool {
	return v != nil && v.Tensor != nil && (!v.Input || v.MustBeInput)
}

// takes reports whether a value can be quantized: it is a float32 tensor of a graph that is quantized.
func (m *marking) takes(v *graph.Value) bool {
	if v == nil || v.Unusual() != nil || !m.isOpen(v) {
		return false
	}
	if v.Tensor != nil {
		n, err := dtype.Elements(v.Tensor.GetDims())
		return err == nil && n > 0 && v.Tensor.GetDataType() == int32(dtype.Float32) && m.stored(v) && !m.opts.Keeps(v)
	}
	if _, ok := m.opts.Ranges.Of(v.Path, v.Name); ok {
		return m.types(v) == dtype.Float32 || m.types(v) == 0
	}
	return m.types(v) == dtype.Float32
}

// isQuantized reports whether a value is quantized so far.
func (m *marking) isQuantized(v *graph.Value) bool {
	return v != nil && (m.tensors[v] != nil || m.taken[v])
}

// mark marks a value as quantized.
func (m *marking) mark(v *graph.Value, weight bool) {
	if m.takes(v) && m.tensors[v] == nil {
		m.set(&Tensor{Value: v, weight: weight, axis: noAxis})
	}
}

// markLike marks v as quantized with the scale and zero point of other.
func (m *marking) markLike(v, other *graph.Value) {
	if m.takes(v) {
		m.set(&Tensor{Value: v, like: other, axis: noAxis})
		m.followed[other] = true
	}
}

// markChannels marks a stored tensor as quantized with one scale per index of an axis. Other
// operators that take it as their weight must use the same axis.
func (m *marking) markChannels(v *graph.Value, axis int) {
	switch t := m.tensors[v]; {
	case !m.takes(v):
	case t == nil || !t.weight:
		m.set(&Tensor{Value: v, weight: true, axis: axis})
	case t.axis != axis:
		t.axis = noAxis
	}
}

func (m *marking) set(t *Tensor) {
	if m.tensors[t.Value] == nil {
		m.order = append(m.order, t.Value)
	}
	m.tensors[t.Value] = t
}

// weight marks an input as a weight. If it is stored, it has per-channel scales along axis, unless
// axis is noAxis.
func (m *marking) weight(n *onnxpb.NodeProto, input, axis int) {
	v := m.x.Source(n, input)
	if m.opts.PerChannel && m.stored(v) && axis != noAxis && axis < len(v.Tensor.GetDims()) {
		m.markChannels(v, axis)
		return
	}
	if t := m.tensors[v]; t != nil {
		t.axis = noAxis
	}
	m.mark(v, true)
}

// input marks an input as an activation.
func (m *marking) input(n *onnxpb.NodeProto, i int) { m.mark(m.x.Source(n, i), false) }

// outputs marks the outputs of a node, unless the placement quantizes only inputs.
func (m *marking) outputs(n *onnxpb.NodeProto) {
	if m.opts.Placement.Fused || m.opts.FloatProducts && isProduct(n) {
		return
	}
	for _, v := range m.x.Outputs(n) {
		m.mark(v, false)
	}
}

// passes gives the first outputs of a node the scale of its first input.
func (m *marking) passes(n *onnxpb.NodeProto, outputs int) {
	if m.opts.Placement.Fused {
		return
	}
	for i, v := range m.x.Outputs(n) {
		if i < outputs {
			m.markLike(v, m.x.Source(n, 0))
		}
	}
}

// bias marks an input as a bias. The first inputs of the node are an activation and a weight.
func (m *marking) bias(n *onnxpb.NodeProto) {
	v := m.x.Source(n, 2)
	if v == nil || !m.stored(v) || !m.takes(v) {
		return
	}
	m.taken[v] = !m.opts.Placement.FloatBias
	m.biases = append(m.biases, &Bias{Node: n, reader: m.x.Number(n), Value: v, x: m.x.Source(n, 0), w: m.x.Source(n, 1), file: m.x.File})
}

// remove removes a Relu or Clip with a quantized input if the codes clip at the same values. The
// input must have no other reader and must not be an output of the graph.
func (m *marking) remove(n *onnxpb.NodeProto) bool {
	in, out := m.x.Source(n, 0), m.x.Made(n)
	if m.opts.Activations.Symmetric || m.opts.Placement.KeepClips || !m.takes(out) || m.stored(in) {
		return false
	}
	if len(in.Uses) != 1 || in.Output || in.Node == nil || m.captured(out) || m.homeOf(in) != m.homeOf(out) {
		return false
	}
	if lo, hi, ok := m.rangeOf(out); !ok || !m.clipsTo(n, lo, hi) {
		return false
	}
	delete(m.tensors, in)
	m.replaced[out] = in
	m.removed = append(m.removed, n)
	return true
}

// captured reports whether a body of If, Loop or Scan reads a value from outside, which is a float there.
func (m *marking) captured(v *graph.Value) bool {
	return slices.ContainsFunc(v.Yields(), func(y graph.Yield) bool { return y.Owner != nil }) || slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return m.x.Home(u.Node) != m.homeOf(v) })
}

// rangeOf returns the range of an activation.
func (m *marking) rangeOf(v *graph.Value) (lo, hi float32, ok bool) {
	if m.ranges[v] != nil {
		v = m.ranges[v]
	}
	if f, ok := m.fixed[v]; ok {
		return f.lo, f.hi, true
	}
	r, ok := m.opts.Ranges.Of(v.Path, v.Name)
	return float32(r.Min), float32(r.Max), ok
}

// rangedAs returns the value whose range from the options an activation has, or nil if its range is fixed.
func (m *marking) rangedAs(v *graph.Value) *graph.Value {
	if m.ranges[v] != nil {
		v = m.ranges[v]
	}
	if _, ok := m.fixed[v]; ok {
		return nil
	}
	return v
}

// narrow narrows ranges by what a node does. If a Relu or Clip is the only reader of a value, the
// value needs only the range of the output. The output of a Softmax is in 0 to 1.
func (m *marking) narrow(n *onnxpb.NodeProto) {
	in, out := m.x.Source(n, 0), m.x.Made(n)
	if in == nil || out == nil || !graph.IsStandard(n.GetDomain()) {
		return
	}
	switch n.GetOpType() {
	case "Relu", "Clip":
		_, _, known := m.rangeOf(in)
		if _, _, ok := m.rangeOf(out); ok && known && len(in.Uses) == 1 && !in.Output {
			from := out
			if m.ranges[out] != nil {
				from = m.ranges[out]
			}
			m.ranges[in] = from
		}
	case "Softmax":
		delete(m.ranges, out)
		m.fixed[out] = fixedRange{0, 1}
	}
}
