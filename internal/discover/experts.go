package discover

import (
	"fmt"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/spec"
)

// A MoE has two or three weights, each with the matrices of all experts: fc1, fc2 and optionally fc3. In a
// QMoE all of them are codes with the same number of bits and the same block size.

// expertInputs are the inputs of com.microsoft's MoE with the weights fc1, fc2 and fc3.
var expertInputs = []int{2, 4, 6}

// readsExperts reports whether a MoE reads a tensor.
func readsExperts(l reach.Leaf) bool { return IsMoE(l.Node) }

// IsMoE reports whether a node is a MoE of com.microsoft.
func IsMoE(n *onnxpb.NodeProto) bool { return graph.Operator(n) == graph.Contrib+".MoE" }

// OfExperts reports whether a MoE reads the weight.
func (d *Decision) OfExperts() bool { return slices.ContainsFunc(d.Reach.Leaves, readsExperts) }

// findExperts returns the form in which a QMoE reads the codes of a weight, or why it cannot. Whether the
// other weights of the MoE suit is settled later.
func findExperts(w Tensor, c Choice) (f NBits, why string) {
	k := c.Operand.View[c.Operand.Axis]
	f = NBits{Experts: true, Block: int64(c.Block)}
	if c.Block == spec.PerChannel {
		f.Block = 0
	}
	switch {
	case c.Target.NoQMoE:
		return f, fmt.Sprintf("target %s has no QMoE", c.Target.Target)
	case c.Format.Traits().Family != spec.Integer:
		return f, fmt.Sprintf("QMoE does not support %s", c.Format)
	case slices.ContainsFunc(w.Reach.Leaves, func(l reach.Leaf) bool { return !readsExperts(l) }):
		return f, "other operators than MoE read it"
	case len(w.Shape) != 3 || c.Operand.Axis != 2:
		return f, "QMoE takes blocks along the last of three axes"
	case f.Block != 0 && !NBitsBlock(f.Block):
		return f, fmt.Sprintf("QMoE takes block sizes that are powers of two, at least %d", minNBitsBlock)
	case k*int64(c.Format.Bits())%8 != 0:
		return f, fmt.Sprintf("QMoE takes only rows that fill whole bytes, and %d codes do not", k)
	}
	return f, ""
}

// expertsObstacle returns why a MoE cannot become a QMoE, whatever its weights are, or "".
func expertsObstacle(x *graph.Graph, n *onnxpb.NodeProto) string {
	swiglu := string(graph.Attribute(n, "activation_type").GetS()) == "swiglu"
	switch {
	case !graph.HasInput(n, 0) || !graph.HasInput(n, 1) || x.Source(n, 1) == nil:
		return fmt.Sprintf("%s lacks an input", graph.Describe(n))
	case graph.IntAttribute(n, "swiglu_fusion") != 0 && !swiglu:
		return "ONNX Runtime's QMoE computes wrongly with swiglu_fusion and another activation than swiglu"
	case graph.IntAttribute(n, "use_sparse_mixer") != 0 && graph.IntAttribute(n, "normalize_routing_weights") == 0:
		return "QMoE and MoE weigh experts differently with use_sparse_mixer"
	}
	return ""
}

// Experts settles the weights of MoEs together: those of a node become the weights of a QMoE, or none does.
type Experts struct {
	Graph *graph.Graph
	Of    map[*graph.Value]*Expert // the weights that a QMoE could read
	alike []*onnxpb.NodeProto      // their readers, in the order of the weights
}

// Expert is one of fc1, fc2 and fc3.
type Expert struct {
	Tensor
	Choice Choice
	Fixed  bool   // its block size must stay
	Why    string // not "": it cannot be a part of a QMoE
}

// Settle finds the weights that become parts of a QMoE, and gives those of a node one block size. all lists
// the weights in the order in which they are settled.
func (e *Experts) Settle(all []*Expert) {
	for again := true; again; {
		again = false
		for _, w := range all {
			if e.Of[w.Value] != w {
				continue
			}
			for _, l := range w.Reach.Leaves {
				if why := e.lacks(l.Node); why != "" {
					w.Why, again = why, true
					delete(e.Of, w.Value)
					break
				}
			}
		}
	}
	for _, w := range all {
		if e.Of[w.Value] != w {
			continue
		}
		for _, l := range w.Reach.Leaves {
			if !slices.Contains(e.alike, l.Node) {
				e.alike = append(e.alike, l.Node)
			}
		}
	}
	for again := true; again; {
		again = false
		for _, n := range e.alike {
			again = e.shareBlock(n) || again
		}
	}
}

// weights returns fc1, fc2 and fc3 of a MoE: nil for one that a QMoE cannot read. fc3 may be left out.
func (e *Experts) weights(n *onnxpb.NodeProto) (list []*Expert) {
	for _, input := range expertInputs {
		if graph.HasInput(n, input) {
			list = append(list, e.Of[e.Graph.Source(n, input)])
		}
	}
	return list
}

// lacks returns why a MoE cannot become a QMoE with the weights that are left, or "".
func (e *Experts) lacks(n *onnxpb.NodeProto) string {
	if why := expertsObstacle(e.Graph, n); why != "" {
		return why
	}
	list := e.weights(n)
	for i, w := range list {
		if w == nil {
			return fmt.Sprintf("input %d of %s is not quantized alike", expertInputs[i], graph.Describe(n))
		}
		if a, b := w.Choice, list[0].Choice; a.Format.Bits() != b.Format.Bits() || a.ZeroPoint != b.ZeroPoint || a.ScaleType != b.ScaleType || w.DType != list[0].DType {
			return fmt.Sprintf("the weights of %s differ in bits, in zero points or in the type of scales", graph.Describe(n))
		}
	}
	if len(list) < 2 {
		return fmt.Sprintf("%s lacks a weight", graph.Describe(n))
	}
	if slices.ContainsFunc(list, func(w *Expert) bool {
		block := w.Choice.Block
		return w.Fixed && (block != list[0].Choice.Block || block > 0 && !w.takes(block))
	}) {
		return fmt.Sprintf("the weights of %s are not in blocks of one size that divides their rows", graph.Describe(n))
	}
	if !fits(n, list) {
		return fmt.Sprintf("the shapes of the weights of %s are not [experts, N, K]", graph.Describe(n))
	}
	return ""
}

// fits reports whether shapes are those of a MoE: fc1 [E, I, H] or, for swiglu, [E, 2I, H]; fc2 [E, H, I]; fc3
// [E, I, H]. Old models have the transposes, of which QMoE would read something else.
func fits(n *onnxpb.NodeProto, list []*Expert) bool {
	fc1, fc2 := list[0].Shape, list[1].Shape
	inner := fc2[2]
	wide := inner
	if string(graph.Attribute(n, "activation_type").GetS()) == "swiglu" && len(list) < 3 {
		wide = 2 * inner
	}
	same := fc1[0] == fc2[0] && fc1[1] == wide && fc1[2] == fc2[1]
	return same && (len(list) < 3 || slices.Equal(list[2].Shape, []int64{fc1[0], inner, fc1[2]}))
}

// shareBlock gives the weights of a node one block size, the largest up to the smallest of theirs that suits
// all. It reports whether one has changed.
func (e *Experts) shareBlock(n *onnxpb.NodeProto) (changed bool) {
	list := e.weights(n)
	block := list[0].block(list)
	for _, w := range list {
		block = min(block, w.block(list))
	}
	for block > 0 && slices.ContainsFunc(list, func(w *Expert) bool { return !w.takes(block) }) {
		block /= 2
		if block < minNBitsBlock {
			block = spec.PerChannel
		}
	}
	for _, w := range list {
		changed = changed || w.Choice.Block != block
		w.Choice.Block, w.Choice.NBits.Block = block, max(int64(block), 0)
	}
	return changed
}

// block is the block size of the weight. One block for a row of 64 is a block of 64 beside others of 64.
func (w *Expert) block(beside []*Expert) int {
	for _, o := range beside {
		if b := o.Choice.Block; w.Choice.Block == spec.PerChannel && int64(b) == w.Shape[2] && w.takes(b) {
			return b
		}
	}
	return w.Choice.Block
}

// takes reports whether blocks divide the rows of the weight. Beside zero points they must be shorter than the rows: before 1.31,
// ONNX Runtime wants another shape for the zero points of a single block.
func (w *Expert) takes(block int) bool {
	k := w.Shape[2]
	return k%int64(block) == 0 && (!w.Choice.ZeroPoint || int64(block) < k)
}

// settleExperts settles the weights of MoEs that may become parts of a QMoE.
func (s *settling) settleExperts(all []*Decision) {
	e := Experts{Graph: s.x, Of: map[*graph.Value]*Expert{}}
	var list []*Expert
	var of []*Decision
	for _, d := range all {
		if !d.Quantize || !d.Choice.NBits.Experts {
			continue
		}
		w := &Expert{Tensor: d.tensor(), Choice: *d.Choice}
		list, of = append(list, w), append(of, d)
		e.Of[d.Value] = w
	}
	e.Settle(list)
	for i, w := range list {
		d := of[i]
		switch {
		case w.Why != "":
			c := *d.Choice
			c.Style, c.NBits, c.Folded = spec.DQ, NBits{}, c.Target.Folds && c.foldable() && s.opts.Style == ""
			d.Choice = &c
			d.remark("no QMoE: " + w.Why)
			if c.Folded {
				d.remark(decodedOnce)
			}
			continue
		case w.Choice.Block != d.Choice.Block:
			d.remark(fmt.Sprintf("%s, not %s: QMoE takes one block size for all weights of a node, which divides their rows", spec.BlockName(w.Choice.Block), spec.BlockName(d.Choice.Block)))
		case w.Choice.Block == spec.PerChannel:
			d.remark("ONNX Runtime decodes experts with one scale per channel at every run; blocks are faster")
		}
		if w.Choice.AccuracyLevel.Attribute() != 4 && w.Choice.Format.Bits() != 4 && w.Choice.Block > 0 {
			d.remark("accuracy_level changes nothing: ONNX Runtime rounds activations to 8 bits beside experts of 2 and 8 bits in blocks")
		}
		d.Choice = &w.Choice
	}
}
