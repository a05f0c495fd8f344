package written

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

func floatBits(v float32) uint32  { return math.Float32bits(v) }
func doubleBits(v float64) uint64 { return math.Float64bits(v) }

// structure hashes what a model computes, apart from contents: all of it, and without the attributes
// and the inputs of nodes. A tool that rewrites a graph changes both. An edit of a node may change the
// first alone.
func structure(m *onnxpb.ModelProto) (all, operators string) {
	s := &structurer{all: sha256.New(), operators: sha256.New()}
	for _, o := range m.GetOpsetImport() {
		s.put(o)
	}
	s.graph(m.GetGraph())
	for _, f := range m.GetFunctions() {
		s.put(&onnxpb.FunctionProto{Name: f.Name, Domain: f.Domain, Overload: f.Overload, Input: f.Input, Output: f.Output, Attribute: f.Attribute, OpsetImport: f.OpsetImport})
		s.attributes(f.GetAttributeProto())
		s.nodes(f.GetNode())
	}
	for _, t := range m.GetTrainingInfo() {
		s.put(&onnxpb.TrainingInfoProto{InitializationBinding: t.InitializationBinding, UpdateBinding: t.UpdateBinding})
		s.graph(t.GetInitialization())
		s.graph(t.GetAlgorithm())
	}
	return hex.EncodeToString(s.all.Sum(nil)), hex.EncodeToString(s.operators.Sum(nil))
}

type structurer struct {
	all, operators hash.Hash
	buffer         []byte
}

// encoded returns a message with its length. It is valid until the next call.
func (s *structurer) encoded(m proto.Message) []byte {
	const length = 8
	b := append(s.buffer[:0], make([]byte, length)...)
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.MarshalAppend(b, m)
	if err != nil {
		b = b[:length] // a string that is not UTF-8; a model that was read has none
	}
	for i, n := 0, len(b)-length; i < length; i, n = i+1, n>>8 {
		b[i] = byte(n)
	}
	s.buffer = b
	return b
}

// put hashes a message.
func (s *structurer) put(m proto.Message) {
	b := s.encoded(m)
	s.all.Write(b)
	s.operators.Write(b)
}

func (s *structurer) graph(g *onnxpb.GraphProto) {
	for _, ends := range [][]*onnxpb.ValueInfoProto{g.GetInput(), g.GetOutput()} {
		list := &onnxpb.GraphProto{}
		for _, v := range ends {
			list.Input = append(list.Input, &onnxpb.ValueInfoProto{Name: v.Name, Type: v.Type})
		}
		s.put(list)
	}
	for _, t := range g.GetInitializer() {
		s.put(bare(t))
	}
	for _, t := range g.GetSparseInitializer() {
		s.put(bareSparse(t))
	}
	s.nodes(g.GetNode())
}

// bare returns a tensor without its content.
func bare(t *onnxpb.TensorProto) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Dims: t.GetDims(), DataType: t.DataType, Name: t.Name}
}

// bareSparse returns a sparse tensor without its content.
func bareSparse(t *onnxpb.SparseTensorProto) *onnxpb.SparseTensorProto {
	return &onnxpb.SparseTensorProto{Values: bare(t.GetValues()), Indices: bare(t.GetIndices()), Dims: t.GetDims()}
}

func (s *structurer) nodes(nodes []*onnxpb.NodeProto) {
	for _, n := range nodes {
		s.put(&onnxpb.NodeProto{Output: n.Output, OpType: n.OpType, Domain: n.Domain, Overload: n.Overload})
		s.all.Write(s.encoded(&onnxpb.NodeProto{Input: n.Input}))
		s.attributes(n.GetAttribute())
	}
}

// attributes hashes attributes. Graphs in them are hashed for both.
func (s *structurer) attributes(attributes []*onnxpb.AttributeProto) {
	for _, a := range attributes {
		flat := &onnxpb.AttributeProto{
			Name: a.Name, RefAttrName: a.RefAttrName, Type: a.Type, F: a.F, I: a.I, S: a.S, Floats: a.Floats, Ints: a.Ints, Strings: a.Strings, Tp: a.Tp, TypeProtos: a.TypeProtos,
		}
		if a.GetT() != nil {
			flat.T = bare(a.T)
		}
		for _, t := range a.GetTensors() {
			flat.Tensors = append(flat.Tensors, bare(t))
		}
		if a.GetSparseTensor() != nil {
			flat.SparseTensor = bareSparse(a.SparseTensor)
		}
		for _, t := range a.GetSparseTensors() {
			flat.SparseTensors = append(flat.SparseTensors, bareSparse(t))
		}
		s.all.Write(s.encoded(flat))
		if a.GetG() != nil {
			s.graph(a.G)
		}
		for _, g := range a.GetGraphs() {
			s.graph(g)
		}
	}
}
