package reach

import (
	"fmt"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Operator is an operator whose weights can be quantized.
type Operator struct {
	domain, name string
	inputs       []int    // those that take weights
	attributes   []string // those that sums asks for

	// sums returns the axes of a weight of some rank that the operator sums over,
	// or along which it takes rows. There are none if what has that rank is no
	// weight; then why may tell more.
	Sums func(n *onnxpb.NodeProto, input, rank int) (axes []int, why string)

	Whole bool // see layout.sum: so that there can be one scale per channel
}

// weightOps is the table of what can be quantized.
var weightOps = []Operator{
	{"", "MatMul", []int{0, 1}, nil, matMul, false},
	{"", "Gemm", []int{0, 1}, []string{"transA", "transB"}, gemm, false},
	{"", "Gather", []int{0}, nil, rows, false},
	{"", "GatherND", []int{0}, nil, rows, false},
	{"", "Conv", []int{1}, nil, conv, true},
	{"", "ConvTranspose", []int{1}, nil, convTranspose, true},
	{"", "Einsum", nil, []string{"equation"}, einsum, false},
	{"", "LSTM", []int{1, 2}, nil, recurrent, false},
	{"", "GRU", []int{1, 2}, nil, recurrent, false},
	{"", "RNN", []int{1, 2}, nil, recurrent, false},

	// ONNX Runtime's: docs/ContribOperators.md of its source.
	{graph.Contrib, "Attention", []int{1}, nil, projection, false},
	{graph.Contrib, "EmbedLayerNormalization", []int{2, 3, 4}, nil, rows, false},
	{graph.Contrib, "FusedConv", []int{1}, nil, conv, true},
	{graph.Contrib, "FusedGemm", []int{0, 1}, []string{"transA", "transB"}, gemm, false},
	{graph.Contrib, "FusedMatMul", []int{0, 1}, fusedAttributes, fusedMatMul, false},
	{graph.Contrib, "TransposeMatMul", []int{0, 1}, fusedAttributes, fusedMatMul, false},
	{graph.Contrib, "MoE", []int{2, 4, 6}, nil, experts, false},
}

var fusedAttributes = []string{"transA", "transB", "transBatchA", "transBatchB"}

// KnownOps are the operators whose weights can be quantized: those of ONNX, and
// of the domain com.microsoft.
var KnownOps = knownOps()

func knownOps() (names []string) {
	for _, o := range weightOps {
		names = append(names, o.name)
	}
	return names
}

// OperatorOf finds the row of a node that takes a weight at that input, or nil.
func OperatorOf(u graph.Use) *Operator {
	domain := u.Node.GetDomain()
	if graph.IsStandard(domain) {
		domain = ""
	}
	for i := range weightOps {
		if o := &weightOps[i]; o.name == u.Node.GetOpType() && o.domain == domain {
			if o.inputs == nil || slices.Contains(o.inputs, u.Input) {
				return o
			}
		}
	}
	return nil
}

// matMul: [batch…, M, K] by [batch…, K, N]; either may be a vector of K.
func matMul(_ *onnxpb.NodeProto, input, rank int) ([]int, string) {
	switch {
	case rank == 0:
		return nil, ""
	case input == 0:
		return []int{rank - 1}, ""
	}
	return []int{max(rank-2, 0)}, ""
}

// gemm: A is [M, K], B is [K, N], and either may be transposed.
func gemm(n *onnxpb.NodeProto, input, rank int) ([]int, string) {
	if rank != 2 {
		return nil, ""
	}
	transposed := graph.IntAttribute(n, [...]string{"transA", "transB"}[input]) != 0
	if (input == 0) != transposed {
		return []int{1}, ""
	}
	return []int{0}, ""
}

// fusedMatMul: matMul whose matrices may be transposed, and lie in the first axis
// and the last, rather than in the last two.
func fusedMatMul(n *onnxpb.NodeProto, input, rank int) ([]int, string) {
	if rank < 2 {
		return matMul(n, input, rank)
	}
	side := [...]string{"A", "B"}[input]
	if transposed := graph.IntAttribute(n, "trans"+side) != 0; (input == 0) != transposed {
		return []int{rank - 1}, ""
	}
	if graph.IntAttribute(n, "transBatch"+side) != 0 {
		return []int{0}, ""
	}
	return []int{rank - 2}, ""
}

// rows: nothing is summed over. A row of an embedding shares scales.
func rows(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank < 2 {
		return nil, ""
	}
	return []int{rank - 1}, ""
}

// conv: [M, C/groups, kernel…], sums over input channels and kernel.
func conv(_ *onnxpb.NodeProto, _, rank int) (axes []int, why string) {
	if rank < 3 {
		return nil, ""
	}
	for i := range rank - 1 {
		axes = append(axes, i+1)
	}
	return axes, ""
}

// convTranspose: [C, M/groups, kernel…], sums over input channels.
func convTranspose(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank < 3 {
		return nil, ""
	}
	return []int{0}, ""
}

// recurrent: W is [directions, gates, inputs], R is [directions, gates, hidden].
func recurrent(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 3 {
		return nil, ""
	}
	return []int{2}, ""
}

// projection: [K, N].
func projection(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 2 {
		return nil, ""
	}
	return []int{0}, ""
}

// experts: [experts, N, K].
func experts(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 3 {
		return nil, ""
	}
	return []int{2}, ""
}

// errParameter says that an attribute is not known.
func errParameter(n *onnxpb.NodeProto, attribute string) string {
	return fmt.Sprintf("%s's %s is a parameter of the function that it is in", n.GetOpType(), attribute)
}

// Convolves tells whether the reader is a convolution.
func (l Leaf) Convolves() bool {
	row := OperatorOf(l.Use)
	return row != nil && row.Whole
}
