package opset

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"onnxquant/internal/onnxpb"
)

// facts describes the values of a graph or function body before any change. They stay
// true: adapters keep the type and rank of every value of the model.
type facts struct {
	producers    map[string]*onnxpb.NodeProto
	declared     map[string]*onnxpb.TypeProto_Tensor
	initializers map[string]*onnxpb.TensorProto
	inputs       map[string]bool // of a graph; a caller can replace an initializer of that name
	read         map[string]bool // by nodes, by subgraphs, or as an output

	// Results so far. A value is unknown while it is being searched.
	types map[string]onnxpb.TensorProto_DataType
	ranks map[string]int
}

const (
	unknown     = onnxpb.TensorProto_UNDEFINED
	unknownRank = -1
)

// maxRank is more dimensions than any runtime's tensors have.
const maxRank = 64

// maxDepth limits how many nodes back a search for a type or rank goes.
const maxDepth = 10000

// learn returns the facts of the scope. The first call collects them.
func (s *scope) learn() *facts {
	if s.facts != nil {
		return s.facts
	}
	f := &facts{
		producers:    map[string]*onnxpb.NodeProto{},
		declared:     map[string]*onnxpb.TypeProto_Tensor{},
		initializers: map[string]*onnxpb.TensorProto{},
		inputs:       map[string]bool{},
		read:         map[string]bool{},
		types:        map[string]onnxpb.TensorProto_DataType{},
		ranks:        map[string]int{},
	}
	s.facts = f
	nodes, values := s.graph.GetNode(), [][]*onnxpb.ValueInfoProto{s.graph.GetInput(), s.graph.GetOutput(), s.graph.GetValueInfo()}
	if s.function != nil {
		nodes, values = s.function.GetNode(), [][]*onnxpb.ValueInfoProto{s.function.GetValueInfo()}
	}
	for _, n := range nodes {
		for _, name := range n.GetOutput() {
			f.producers[name] = n
		}
	}
	for _, vs := range values {
		for _, v := range vs {
			if t := v.GetType().GetTensorType(); t != nil {
				f.declared[v.GetName()] = t
			}
		}
	}
	for _, v := range s.graph.GetInput() {
		f.inputs[v.GetName()] = true
	}
	for _, t := range s.graph.GetInitializer() {
		f.initializers[t.GetName()] = t
	}
	for _, name := range s.function.GetOutput() {
		f.read[name] = true
	}
	f.markRead(nodes, s.graph.GetOutput())
	return f
}

func (f *facts) markRead(nodes []*onnxpb.NodeProto, outputs []*onnxpb.ValueInfoProto) {
	for _, v := range outputs {
		f.read[v.GetName()] = true
	}
	for _, n := range nodes {
		for _, name := range n.GetInput() {
			f.read[name] = true
		}
		for _, g := range subgraphs(n) {
			f.markRead(g.GetNode(), g.GetOutput())
		}
	}
}

// used reports whether a value of the scope is read.
func (s *scope) used(name string) bool {
	return name != "" && s.learn().read[name]
}

// home returns the scope that defines a value: this one or one around it.
func (s *scope) home(name string) (*scope, *facts) {
	for ; s != nil; s = s.outer {
		f := s.learn()
		if f.producers[name] != nil || f.declared[name] != nil || f.initializers[name] != nil {
			return s, f
		}
	}
	return nil, nil
}

// elemType returns the element type of a value, or unknown.
func (s *scope) elemType(name string) onnxpb.TensorProto_DataType {
	home, f := s.home(name)
	if f == nil && s.model.missing[name] != "" {
		name = s.model.missing[name]
		home, f = s.home(name)
	}
	if f == nil || name == "" {
		return unknown
	}
	if t, found := f.types[name]; found || s.model.depth == maxDepth {
		return t
	}
	f.types[name] = unknown
	s.model.depth++
	t := home.findType(name, f)
	s.model.depth--
	f.types[name] = t
	return t
}

func (s *scope) findType(name string, f *facts) onnxpb.TensorProto_DataType {
	if t := f.declared[name]; t.GetElemType() != 0 {
		return onnxpb.TensorProto_DataType(t.GetElemType())
	}
	if t := s.stored(name); t != nil {
		return onnxpb.TensorProto_DataType(t.GetDataType())
	}
	n := f.producers[name]
	if n == nil || !s.isStandard(n) || n.Output[0] != name && n.GetOpType() != "Split" {
		return unknown
	}
	switch op := n.GetOpType(); {
	case op == "Cast":
		return castType(literal(n, "to"))
	case op == "DequantizeLinear", op == "Where":
		return s.elemType(inputOf(n, 1))
	case typeKeepers[op]:
		return s.elemType(inputOf(n, 0))
	}
	return unknown
}

// rank returns the number of dimensions of a value, or unknownRank.
func (s *scope) rank(name string) int {
	if from := s.model.missing[name]; from != "" {
		name = from
	}
	home, f := s.home(name)
	if f == nil || name == "" {
		return unknownRank
	}
	if r, found := f.ranks[name]; found {
		return r
	}
	if s.model.depth == maxDepth {
		return unknownRank
	}
	f.ranks[name] = unknownRank
	s.model.depth++
	r := home.findRank(name, f)
	s.model.depth--
	f.ranks[name] = r
	return r
}

func (s *scope) findRank(name string, f *facts) int {
	if shape := f.declared[name].GetShape(); shape != nil {
		return len(shape.GetDim())
	}
	if t := s.stored(name); t != nil {
		return len(t.GetDims())
	}
	n := f.producers[name]
	if n == nil || !s.isStandard(n) || n.Output[0] != name && n.GetOpType() != "Split" {
		return unknownRank
	}
	switch op := n.GetOpType(); {
	case op == "Gemm", op == "Flatten":
		return 2
	case op == "Transpose" && literal(n, "perm").GetInts() != nil:
		return len(literal(n, "perm").GetInts())
	case op == "Reshape" && attribute(n, "shape") != nil: // before opset 5
		if shape := literal(n, "shape"); shape != nil {
			return len(shape.GetInts())
		}
	case op == "Reshape":
		return s.length(inputOf(n, 1))
	case op == "MatMul", op == "MatMulInteger":
		return s.highestRank(n.GetInput()[:min(2, len(n.GetInput()))], true)
	case broadcasts[op]:
		return s.highestRank(n.GetInput(), false)
	case op == "Gather":
		return s.sumOfRanks(-1, inputOf(n, 0), inputOf(n, 1))
	case op == "Unsqueeze" && literal(n, "axes").GetInts() != nil:
		return s.sumOfRanks(len(literal(n, "axes").GetInts()), inputOf(n, 0))
	case op == "Squeeze" && literal(n, "axes").GetInts() != nil:
		return s.sumOfRanks(-len(literal(n, "axes").GetInts()), inputOf(n, 0))
	case rankKeepers[op]:
		return s.rank(inputOf(n, 0))
	}
	return unknownRank
}

// sumOfRanks returns the sum of the ranks of values plus n, or unknownRank.
func (s *scope) sumOfRanks(n int, names ...string) int {
	for _, name := range names {
		r := s.rank(name)
		if r == unknownRank {
			return unknownRank
		}
		n += r
	}
	return max(n, unknownRank)
}

// highestRank returns the rank of the broadcast values. A vector as an operand of MatMul
// loses its dimension; then the rank is unknown.
func (s *scope) highestRank(names []string, matrices bool) int {
	highest := unknownRank
	for _, name := range names {
		r := s.rank(name)
		if r == unknownRank || matrices && r < 2 {
			return unknownRank
		}
		highest = max(highest, r)
	}
	return highest
}

// single reports whether a value is known to have one element.
func (s *scope) single(name string) bool {
	_, f := s.home(name)
	if f == nil {
		return false
	}
	if shape := f.declared[name].GetShape(); shape != nil {
		return !slices.ContainsFunc(shape.GetDim(), func(d *onnxpb.TensorShapeProto_Dimension) bool { return d.GetDimValue() != 1 })
	}
	t := s.stored(name)
	return t != nil && !slices.ContainsFunc(t.GetDims(), func(d int64) bool { return d != 1 })
}

// length returns the number of elements of a vector, or unknownRank.
func (s *scope) length(name string) int {
	if _, f := s.home(name); f != nil {
		if d := f.declared[name].GetShape().GetDim(); len(d) == 1 && d[0].GetDimValue() > 0 {
			return int(d[0].GetDimValue())
		}
	}
	if d := s.stored(name).GetDims(); len(d) == 1 {
		return int(d[0])
	}
	return unknownRank
}

// stored returns the tensor of an initializer or a Constant, or nil.
func (s *scope) stored(name string) *onnxpb.TensorProto {
	home, f := s.home(name)
	if f == nil {
		return nil
	}
	if n := f.producers[name]; n.GetOpType() == "Constant" && home.inDefaultDomain(n) {
		return literal(n, "value").GetT()
	}
	return f.initializers[name]
}

// floats returns the elements of a stored float32 vector with at most maxRank elements. It
// returns nil if their content is not in memory, or a caller of the model can replace
// them.
func (s *scope) floats(name string) []float32 {
	t := s.stored(name)
	if d := t.GetDims(); t.GetDataType() != int32(onnxpb.TensorProto_FLOAT) || len(d) != 1 || d[0] > maxRank {
		return nil
	}
	if _, f := s.home(name); f.inputs[name] {
		return nil
	}
	if t.GetFloatData() != nil {
		return t.FloatData
	}
	var values []float32
	for raw := t.GetRawData(); len(raw) >= 4; raw = raw[4:] {
		values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return values
}

func inputOf(n *onnxpb.NodeProto, i int) string {
	if i < len(n.GetInput()) {
		return n.Input[i]
	}
	return ""
}

// Operators of ai.onnx by what they keep in their first output (Split: in all). typeKeepers keep the
// element type of the first input; rankKeepers keep its rank as well; broadcasts have the highest rank
// of their inputs.
var (
	rankKeepers = set(`
		Abs Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu Clip
		Concat Conv ConvInteger ConvTranspose Cos Cosh CumSum DequantizeLinear Dropout DynamicQuantizeLinear Elu Erf Exp Floor Gelu GlobalAveragePool GlobalMaxPool
		GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization LRN LayerNormalization
		LeakyRelu Log LogSoftmax LpNormalization LpPool MaxPool MeanVarianceNormalization Mish Neg
		Pad QuantizeLinear Reciprocal Relu Resize Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign
		Sin Sinh Slice Softmax Softplus Softsign Split Sqrt Swish Tan Tanh ThresholdedRelu Tile Trilu
		Upsample`)
	broadcasts  = set("Add Div Max Mean Min Mul Pow PRelu Sub Sum Where")
	typeKeepers = union(rankKeepers, broadcasts, set(`
		Compress Det Einsum Expand Flatten GRU Gather GatherElements GatherND Gemm LSTM MatMul Mod RNN
		ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
		ReduceSum ReduceSumSquare Reshape Squeeze TopK Transpose Unsqueeze`))
)

func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}

func union(sets ...map[string]bool) map[string]bool {
	u := map[string]bool{}
	for _, s := range sets {
		maps.Copy(u, s)
	}
	return u
}
