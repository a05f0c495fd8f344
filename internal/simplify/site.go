package simplify

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// site is a product, and the nodes around it that its weight and bias take in.
type site struct {
	*product

	front        *onnxpb.NodeProto // a BatchNormalization before the product, or nil
	gain, offset []float64         // that it multiplies and adds, by channel of the input

	steps        []*onnxpb.NodeProto // behind the product
	scale, shift []float64           // that they multiply and add, by channel of the output
	sum          *onnxpb.NodeProto   // the last step that adds, or nil
	added        *numbers            // what it adds
	equal        *graph.Value        // that a MatMul with the scales alone makes; nil if there is none

	sums []float64 // of weights times offset, by channel of the output; nil without a front
}

// sites finds the products that take in other nodes.
func (f *finder) sites() (all []*site) {
	visit := func(nodes []*onnxpb.NodeProto) {
		for _, n := range nodes {
			p := f.product(n)
			if p == nil {
				continue
			}
			if s := f.site(p); s != nil {
				all = append(all, s)
				f.taken[f.Number(n)] = true
				for _, step := range s.steps {
					f.taken[f.Number(step)] = true
				}
				if s.front != nil {
					f.taken[f.Number(s.front)] = true
				}
			}
		}
	}
	graph.WalkGraphs(f.File.Proto.Graph, func(g *onnxpb.GraphProto) { visit(g.Node) })
	for _, fn := range f.File.Proto.Functions {
		visit(fn.Node)
		graph.WalkSubgraphs(fn.Node, func(g *onnxpb.GraphProto) { visit(g.Node) })
	}
	return all
}

// longest bounds the steps behind a product.
const longest = 16

// site finds the nodes around a product that it can take in; nil if there are none.
func (f *finder) site(p *product) *site {
	if !p.weight.sole && p.weight.from.Size() > mostCopied {
		return nil // stored once more, it would take more than the nodes
	}
	front, gain, offset := f.before(p)
	for most := longest; most >= 0; most-- {
		s := &site{product: p, front: front, gain: gain, offset: offset, scale: filled(p.out, 1), shift: filled(p.out, 0)}
		f.behind(s, most)
		most = len(s.steps)
		if s.pays() && s.fits() {
			return s
		}
		if most == 0 && front != nil { // without the front
			front, gain, offset, most = nil, nil, nil, longest+1
		}
	}
	return nil
}

// mostCopied is the size in bytes up to which a weight that others read is stored once more.
const mostCopied = 16 << 10

func filled(n int64, v float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// pays reports whether nodes go. The Add behind a MatMul stays.
func (s *site) pays() bool {
	n := len(s.steps)
	if s.front != nil {
		return true
	}
	if s.bias < 0 && s.needsSum() {
		for _, step := range s.steps {
			if step.GetOpType() == "BatchNormalization" {
				return true // an Add takes less time
			}
		}
		n--
	}
	return n > 0
}

// needsSum reports whether the result has a bias.
func (s *site) needsSum() bool { return s.sum != nil || s.front != nil }

// behind finds the steps behind a product, at most most.
func (f *finder) behind(s *site, most int) {
	n := s.node
	if s.front == nil {
		s.equal = f.Made(n)
	}
	for len(s.steps) < most {
		v := f.Made(n)
		if !f.passed(v) || len(n.Output) != 1 {
			return
		}
		n = v.Uses[0].Node
		before := slices.Clone(s.scale)
		if !f.step(s, n, v.Uses[0].Input) {
			return
		}
		s.steps = append(s.steps, n)
		switch scaled := !slices.Equal(before, s.scale); {
		case scaled && s.sum == nil && s.equal != nil:
			s.equal = f.Made(n)
		case scaled:
			s.equal = nil
		}
	}
}

// step takes a node in. input is that with the value of the product.
func (f *finder) step(s *site, n *onnxpb.NodeProto, input int) bool {
	if !graph.IsStandard(n.GetDomain()) || len(n.Output) == 0 || n.Output[0] == "" {
		return false
	}
	switch op := n.GetOpType(); op {
	case "Identity":
		return len(n.Output) == 1
	case "BatchNormalization":
		if input != 0 || s.axis != max(s.rank, 1)-2 {
			return false
		}
		gain, offset, ok := f.batchNormalization(n, s.out)
		if !ok {
			return false
		}
		for i := range s.scale {
			s.scale[i], s.shift[i] = s.scale[i]*gain[i], s.shift[i]*gain[i]+offset[i]
		}
		s.sum, s.added = n, nil
		return true
	case "Mul", "Div", "Add", "Sub":
		if len(n.Input) != 2 || len(n.Output) != 1 || input != 0 && op == "Div" {
			return false
		}
		c := f.numbers(f.Source(n, 1-input), s.out)
		if c == nil || !f.alongChannels(s, n, input, c.dims) {
			return false
		}
		for i := range s.scale {
			v := c.values[i%len(c.values)]
			switch {
			case op == "Mul":
				s.scale[i], s.shift[i] = s.scale[i]*v, s.shift[i]*v
			case op == "Div":
				s.scale[i], s.shift[i] = s.scale[i]/v, s.shift[i]/v
			case op == "Add":
				s.shift[i] += v
			case input == 0:
				s.shift[i] -= v
			default:
				s.scale[i], s.shift[i] = -s.scale[i], v-s.shift[i]
			}
		}
		if op == "Add" || op == "Sub" {
			s.sum, s.added = n, c
		}
		return true
	}
	return false
}

// alongChannels reports whether a constant of a shape is one number for each channel, or one for all, and the
// output of the node has the shape of its other input.
func (f *finder) alongChannels(s *site, n *onnxpb.NodeProto, input int, dims []int64) bool {
	fromRight := func(i int) int { return len(dims) - 1 - i }
	if f.opsetOf(n) < 7 { // the second input was broadcast where attributes said so
		if input != 0 || graph.IntAttribute(n, "broadcast") == 0 || graph.Parameter(n, "axis", "broadcast") != "" {
			return false
		}
		if a := graph.Attribute(n, "axis"); a != nil {
			if s.rank == 0 {
				return false
			}
			at := a.GetI()
			if at < 0 {
				at += int64(s.rank)
			}
			fromRight = func(i int) int { return s.rank - 1 - int(at) - i }
		}
	}
	if len(dims) > max(s.rank, 1) {
		return false
	}
	for i, d := range dims {
		if d != 1 && (fromRight(i) != s.axis || d != s.out) {
			return false
		}
	}
	return true
}

// before finds a BatchNormalization in front of a product, and what it multiplies and adds.
func (f *finder) before(p *product) (n *onnxpb.NodeProto, gain, offset []float64) {
	v := f.Source(p.node, 0)
	if !f.passed(v) || !graph.IsOperator(v.Node, "BatchNormalization") || f.Outputs(v.Node)[0] != v || f.taken[f.Number(v.Node)] {
		return nil, nil, nil
	}
	switch p.node.GetOpType() {
	case "Conv":
		pads := graph.Attribute(p.node, "pads").GetInts()
		auto := string(graph.Attribute(p.node, "auto_pad").GetS())
		if auto != "" && auto != "NOTSET" && auto != "VALID" || !within(floats(pads), 0) {
			return nil, nil, nil // beside the image are zeros, which a BatchNormalization does not see
		}
	case "Gemm":
		if graph.IntAttribute(p.node, "transA") != 0 {
			return nil, nil, nil
		}
	case "MatMul":
		if p.rank != 2 {
			return nil, nil, nil
		}
	default:
		return nil, nil, nil
	}
	gain, offset, ok := f.batchNormalization(v.Node, p.in)
	if !ok {
		return nil, nil, nil
	}
	return v.Node, gain, offset
}

func floats(list []int64) (all []float64) {
	for _, v := range list {
		all = append(all, float64(v))
	}
	return all
}

// batchNormalization returns what a node multiplies and adds, by channel. ok is false for a node in training,
// and if statistics are not constant or not those of a distribution.
func (f *finder) batchNormalization(n *onnxpb.NodeProto, channels int64) (gain, offset []float64, ok bool) {
	for _, name := range n.Output[1:] {
		if name != "" {
			return nil, nil, false
		}
	}
	switch {
	case len(n.Input) != 5 || graph.Parameter(n, "epsilon", "spatial", "training_mode", "is_test") != "",
		graph.IntAttribute(n, "training_mode") != 0, graph.IntAttributeOr(n, "spatial", 1) == 0,
		f.opsetOf(n) < 7 && graph.IntAttribute(n, "is_test") == 0:
		return nil, nil, false
	}
	var list [4][]float64 // scale, bias, mean, variance
	for i := range list {
		if list[i] = f.vector(f.Source(n, 1+i), channels); list[i] == nil {
			return nil, nil, false
		}
	}
	epsilon := float64(graph.FloatAttributeOr(n, "epsilon", 1e-5))
	gain, offset = make([]float64, channels), make([]float64, channels)
	for i := range gain {
		gain[i] = list[0][i] / math.Sqrt(list[3][i]+epsilon)
		offset[i] = list[1][i] - list[2][i]*gain[i]
	}
	return gain, offset, within(gain, math.MaxFloat32) && within(offset, math.MaxFloat32)
}

// Factors beyond these could take a weight of any usual size beyond the range of float32.
const (
	leastFactor = 0x1p-60
	mostFactor  = 0x1p60
)

// fits reports whether the weight and the bias with factors can be stored without losing more than rounding.
func (s *site) fits() bool {
	for _, list := range [][]float64{s.scale, s.gain} {
		for _, v := range list {
			if size := math.Abs(v); v != 0 && !(size >= leastFactor && size <= mostFactor) {
				return false
			}
		}
	}
	if s.front != nil || s.weight.dtype == dtype.Float16 {
		largest, err := s.read()
		if err != nil || s.weight.dtype == dtype.Float16 && !halfHolds(largest) {
			return false
		}
	}
	most := math.MaxFloat32
	if s.weight.dtype == dtype.Float16 {
		most = mostHalf
	}
	return within(s.biases(), most)
}

// Limits of float16. A channel keeps its precision if its largest weight is a normal number with some room.
const (
	mostHalf  = 65504
	leastHalf = 0x1p-12
)

// halfHolds reports whether channels with these largest weights can be stored in float16.
func halfHolds(largest []float64) bool {
	for _, v := range largest {
		if !(v <= mostHalf) || v != 0 && v < leastHalf {
			return false
		}
	}
	return true
}

// biases are the numbers that the result adds, by channel of the output.
func (s *site) biases() []float64 {
	beta := 1.0
	if s.node.GetOpType() == "Gemm" {
		beta = float64(graph.FloatAttributeOr(s.node, "beta", 1))
	}
	all := make([]float64, s.out)
	for i := range all {
		if s.had != nil {
			all[i] = beta * s.had.values[i%len(s.had.values)]
		}
		if s.sums != nil {
			all[i] += s.alpha() * s.sums[i]
		}
		all[i] = all[i]*s.scale[i] + s.shift[i]
	}
	return all
}

// alpha is the factor of a Gemm.
func (s *site) alpha() float64 {
	if s.node.GetOpType() == "Gemm" {
		return float64(graph.FloatAttributeOr(s.node, "alpha", 1))
	}
	return 1
}
