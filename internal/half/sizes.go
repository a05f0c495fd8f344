package half

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// size is an estimate of the magnitude of a value's elements.
type size struct {
	rms float64 // root mean square

	// gains is the net number of weight products in this value: products that made it, less the
	// products in divisors. The gain of each product is known only to about a factor of two, so above
	// maxGains the estimate is ignored.
	gains float64
}

const (
	// maxGains is the largest number of gains at which an estimate counts.
	maxGains = 3

	// peak is the assumed ratio of the largest element to the rms. Outputs of trained layers have 3 to
	// 50.
	peak = 32
)

// sizes estimates the magnitudes of values from the operators and from samples of the weights. It
// assumes independent factors, and elements with mean zero.
type sizes struct {
	*typing
	shapes   *graph.Shapes
	found    map[*graph.Value]size
	unknowns int
}

// estimate finds the sizes of values, except in functions.
func estimate(t *typing) map[*graph.Value]size {
	s := &sizes{typing: t, shapes: graph.NewShapes(t.x), found: map[*graph.Value]size{}}
	s.nodes(t.x.File.Proto.Graph.Node)
	return s.found
}

func (s *sizes) nodes(nodes []*onnxpb.NodeProto) {
	for _, n := range ordered(nodes) {
		for _, a := range n.Attribute {
			for _, g := range graph.Subgraphs(a) {
				s.nodes(g.Node)
			}
		}
		made := s.outputOf(n)
		for _, v := range s.x.Outputs(n) {
			if v != nil && v.Tensor == nil && s.types[v].float() {
				s.found[v] = s.checked(made)
			}
		}
	}
}

// unknown returns a fresh unknown size. It is never trusted, because it has more than maxGains. It
// cancels only with itself.
func (s *sizes) unknown() size {
	s.unknowns++
	return size{1, 1000 * float64(s.unknowns)}
}

// checked replaces an estimate that overflowed or vanished by an unknown.
func (s *sizes) checked(z size) size {
	if z.rms > 1e-30 && z.rms < 1e30 {
		return z
	}
	return s.unknown()
}

// of returns the size of a value.
func (s *sizes) of(v *graph.Value) size {
	z, ok := s.found[v]
	switch {
	case ok:
		return z
	case v == nil:
		return s.unknown()
	case v.Tensor != nil && s.types[v].float():
		if z.rms = s.sample(v.Tensor); z.rms != 0 { // a bias of zeros adds nothing
			z = s.checked(z)
		}
	default:
		z = s.unknown()
	}
	s.found[v] = z
	return z
}

// input returns the size of an input of a node.
func (s *sizes) input(n *onnxpb.NodeProto, i int) size { return s.of(s.x.Source(n, i)) }

// outputOf estimates the output of a node.
func (s *sizes) outputOf(n *onnxpb.NodeProto) size {
	first := s.input(n, 0)
	op := n.GetOpType()
	switch {
	case !graph.IsStandard(n.GetDomain()) && n.GetDomain() != graph.Contrib:
		return s.unknown()
	case slices.Contains(handsOn, op):
		return first
	case slices.Contains(rectifies, op):
		return size{first.rms * math.Sqrt2 / 2, first.gains}
	case slices.Contains(bounded, op):
		return size{1, 0}
	}
	switch op {
	case "Constant":
		return size{math.Abs(float64(graph.Attribute(n, "value_float").GetF())), 0}
	case "Softmax": // a product with it is a mean
		if k := s.length(n, 0, -1); k > 0 {
			return size{1 / math.Sqrt(float64(k)), 0}
		}
	case "Tanh", "Erf", "Softsign":
		return size{min(1, first.rms), 0}
	case "Sigmoid", "HardSigmoid":
		return size{math.Sqrt2 / 2, 0}
	case "LayerNormalization", "InstanceNormalization", "BatchNormalization":
		return size{sum(s.input(n, 1), s.input(n, 2)).rms, 0}
	case "RMSNormalization", "SimplifiedLayerNormalization":
		return size{s.input(n, 1).rms, 0}
	case "MatMul":
		return s.product(n, s.length(n, 0, -1), s.length(n, 1, -2))
	case "Gemm":
		return s.gemm(n)
	case "Conv":
		return s.conv(n)
	case "Add", "Sub", "Sum":
		return s.total(n)
	case "Concat", "Max", "Min":
		return s.largest(n)
	case "Mul":
		b := s.input(n, 1)
		return size{first.rms * b.rms, first.gains + b.gains}
	case "Div":
		b := s.input(n, 1)
		return size{first.rms / b.rms, first.gains - b.gains}
	case "Sqrt":
		return power(first, 0.5)
	case "Reciprocal":
		return power(first, -1)
	case "Pow":
		if e, ok := s.x.ConstantFloat(s.x.Source(n, 1)); ok {
			return power(first, float64(e))
		}
	}
	return s.unknown()
}

func (s *sizes) gemm(n *onnxpb.NodeProto) size {
	a, b := -1-int(graph.IntAttribute(n, "transA")), -2+int(graph.IntAttribute(n, "transB"))
	p := s.product(n, s.length(n, 0, a), s.length(n, 1, b))
	p.rms *= math.Abs(float64(graph.FloatAttributeOr(n, "alpha", 1)))
	return s.biased(n, p)
}

func (s *sizes) conv(n *onnxpb.NodeProto) size {
	w := s.shapes.Of(s.x.Source(n, 1))
	k := int64(1)
	for _, d := range w[min(1, len(w)):] {
		k *= d.Length
	}
	return s.biased(n, s.product(n, k, 0))
}

// biased adds the bias of a product, its optional third input.
func (s *sizes) biased(n *onnxpb.NodeProto, p size) size {
	if s.x.Source(n, 2) == nil {
		return p
	}
	return sum(p, s.input(n, 2))
}

func (s *sizes) total(n *onnxpb.NodeProto) size {
	z := s.input(n, 0)
	for i := 1; i < len(n.Input); i++ {
		z = sum(z, s.input(n, i))
	}
	return z
}

func (s *sizes) largest(n *onnxpb.NodeProto) size {
	most := s.input(n, 0)
	for i := range n.Input {
		if z := s.input(n, i); z.rms > most.rms {
			most = z
		}
	}
	return most
}

// What operators do to sizes.
var (
	handsOn = []string{
		"Abs", "AveragePool", "Cast", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GlobalAveragePool",
		"GlobalMaxPool", "Identity", "MaxPool", "Neg", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "Reshape", "Resize",
		"Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
	}
	rectifies = []string{
		"BiasGelu", "Clip", "Elu", "FastGelu", "Gelu", "HardSwish", "LeakyRelu", "Mish", "PRelu", "QuickGelu", "Relu", "Selu", "Swish",
	}
	bounded = []string{"Cos", "GRU", "GlobalLpPool", "LSTM", "LpNormalization", "MeanVarianceNormalization", "RNN", "Sin"}
)

// product estimates a sum of k products of the first inputs. k is the length of the axis that
// either knows; 0 is unknown.
func (s *sizes) product(n *onnxpb.NodeProto, k, other int64) size {
	a, b := s.input(n, 0), s.input(n, 1)
	k = max(k, other)
	if k <= 0 {
		return s.unknown()
	}
	return size{a.rms * b.rms * math.Sqrt(float64(k)), a.gains + b.gains + 1}
}

// length returns the length of an axis of an input, counted from the last, which is -1.
func (s *sizes) length(n *onnxpb.NodeProto, input, axis int) int64 {
	dims := s.shapes.Of(s.x.Source(n, input))
	if at := len(dims) + axis; at >= 0 && at < len(dims) {
		return dims[at].Length
	}
	return 0
}

// sum is the size of a sum. Its gains are those of the larger term.
func sum(a, b size) size {
	if a.rms < b.rms {
		a, b = b, a
	}
	return size{math.Hypot(a.rms, b.rms), a.gains}
}

func power(z size, e float64) size { return size{math.Pow(z.rms, e), z.gains * e} }

// A sample of a weight is this number of stretches, with this number of elements each.
const (
	stretches = 16
	stretch   = 256
)

// sample estimates the rms of a stored tensor of float32. It returns 0 if the tensor cannot be read;
// the conversion reports that error later.
func (s *sizes) sample(t *onnxpb.TensorProto) float64 {
	p, err := s.x.File.Payload(t)
	if err != nil {
		return 0
	}
	n := p.Size() / 4
	raw, x := make([]byte, 4*stretch), make([]float32, stretch)
	squares, count := 0.0, 0
	for i := range int64(stretches) {
		first := i * stretch
		if n > stretches*stretch {
			first = i * (n - stretch) / (stretches - 1)
		}
		k := max(0, min(stretch, n-first))
		if _, err := p.ReadAt(raw[:4*k], 4*first); err != nil {
			return 0
		}
		dtype.Float32.Decode(x[:k], raw[:4*k])
		for _, e := range x[:k] {
			squares += float64(e) * float64(e)
		}
		count += int(k)
	}
	return math.Sqrt(squares / float64(max(count, 1)))
}
