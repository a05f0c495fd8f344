package actpairs

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
)

// Int4 says which weights have codes of 4 bits, and how.
type Int4 struct {
	// Block is the block size that is asked for, spec.PerChannel for none. ok: the weight shall have 4 bits, if
	// all its readers are operators that can read them. nil: no weight has 4 bits.
	Block func(v *graph.Value) (block int, ok bool)
	Rule  target.BlockRule // block sizes that the runtime takes
}

// narrow is how a weight of 4 bits lies.
type narrow struct {
	channels int // axis of the channels
	along    int // axis of the blocks
	block    int // elements of a block; 0: one scale per channel
}

// weight4 marks the weight of a node as one of 4 bits. It returns false if that is not asked for or not possible:
// then nothing is marked.
func (m *marking) weight4(n *onnxpb.NodeProto) bool {
	v := m.x.Source(n, 1)
	if m.opts.Int4.Block == nil || !m.stored(v) || !m.takes(v) || v.Output {
		return false
	}
	block, ok := m.opts.Int4.Block(v)
	if !ok {
		return false
	}
	form, ok := m.narrowing(n, v)
	if !ok {
		return false
	}
	for _, u := range v.Uses {
		if other, ok := m.narrowing(u.Node, v); !ok || u.Input != 1 || other != form || !m.opts.Selects(u.Node) {
			return false
		}
	}
	if form.along != noAxis {
		if size, ok := m.opts.Int4.Rule.Nearest(block, v.Tensor.GetDims()[form.along]); ok && size > 0 {
			form.block = size
		}
	}
	m.set(&Tensor{Value: v, weight: true, axis: form.channels, narrow: &form})
	return true
}

// narrowing says how a node reads a weight of 4 bits as its second input. ok is false if it reads none. These are
// QNN's operators: it has blocks in MatMul and in two-dimensional Conv of one pixel, no 4 bits in ConvTranspose.
func (m *marking) narrowing(n *onnxpb.NodeProto, v *graph.Value) (form narrow, ok bool) {
	rank := len(v.Tensor.GetDims())
	switch {
	case graph.IsOperator(n, "MatMul") && rank == 2:
		return narrow{channels: 1, along: 0}, true
	case graph.IsOperator(n, "Gemm"):
		form = narrow{channels: 1, along: noAxis}
		if graph.IntAttribute(n, "transB") != 0 {
			form.channels = 0
		}
		return form, true
	case graph.IsOperator(n, "Conv") && rank > 2:
		form = narrow{along: noAxis}
		if dims := v.Tensor.GetDims(); rank == 4 && dims[2] == 1 && dims[3] == 1 {
			form.along = 1
		}
		return form, true
	}
	return narrow{}, false
}
