package testmodels

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/x448/float16"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

const (
	float  = onnxpb.TensorProto_FLOAT
	int64s = onnxpb.TensorProto_INT64
	bools  = onnxpb.TensorProto_BOOL
)

// MLP is a chain of layers x·wi + bi with Relu between them. Its input is x
// [batch, dims[0]], its output y [batch, dims[last]].
func MLP(seed uint64, dims ...int) *Model {
	b := newBuilder(seed, "mlp")
	b.input("x", float, "batch", dims[0])
	value, layers := "x", len(dims)-1
	for i, k := range dims[:layers] {
		n, s := dims[i+1], strconv.Itoa(i)
		b.weight("w"+s, k, int64(k), int64(n))
		b.weight("b"+s, k, int64(n))
		b.node("MatMul", "m"+s, []string{value, "w" + s})
		if i == layers-1 {
			b.node("Add", "y", []string{"m" + s, "b" + s})
			break
		}
		b.node("Add", "a"+s, []string{"m" + s, "b" + s})
		b.node("Relu", "h"+s, []string{"a" + s})
		value = "h" + s
	}
	b.output("y", float, "batch", dims[layers])
	return b.model(21, 10)
}

// Gemm is y = x·w + c, where w is stored as [k,n], or as [n,k] with transB=1.
func Gemm(seed uint64, k, n int, transB bool) *Model {
	b := newBuilder(seed, "gemm")
	b.input("x", float, "batch", k)
	dims, flag := []int64{int64(k), int64(n)}, int64(0)
	if transB {
		dims, flag = []int64{int64(n), int64(k)}, 1
	}
	b.weight("w", k, dims...)
	b.weight("c", k, int64(n))
	b.node("Gemm", "y", []string{"x", "w", "c"}, intAttr("transB", flag))
	b.output("y", float, "batch", n)
	return b.model(21, 10)
}

// Conv has a 3×3 Conv from 4 to 8 channels, a 3×3 Conv in two groups and a 2×2
// ConvTranspose.
func Conv(seed uint64) *Model {
	b := newBuilder(seed, "conv")
	b.input("x", float, "batch", 4, 9, 9)
	b.weight("w0", 36, 8, 4, 3, 3)
	b.weight("b0", 36, 8)
	b.node("Conv", "h0", []string{"x", "w0", "b0"})
	b.weight("w1", 36, 6, 4, 3, 3)
	b.node("Conv", "h1", []string{"h0", "w1"}, intAttr("group", 2))
	b.weight("w2", 6, 6, 5, 2, 2)
	b.node("ConvTranspose", "y", []string{"h1", "w2"})
	b.output("y", float, "batch", 5, 6, 6)
	return b.model(21, 10)
}

// Behind is y = x·wᵀ. MatMul reads w through Identity and Transpose.
func Behind(seed uint64, k, n int) *Model {
	b := newBuilder(seed, "behind")
	b.input("x", float, "batch", k)
	b.weight("w", k, int64(n), int64(k))
	b.node("Identity", "i", []string{"w"})
	b.node("Transpose", "t", []string{"i"}, intsAttr("perm", 1, 0))
	b.node("MatMul", "y", []string{"x", "t"})
	b.output("y", float, "batch", n)
	return b.model(21, 10)
}

// Embedding looks up ids in a table of vocab rows and multiplies by a separate head.
func Embedding(seed uint64, vocab, dim int) *Model {
	b := embedding(seed, "embedding", vocab, dim)
	b.weight("head", dim, int64(dim), int64(vocab))
	b.node("MatMul", "logits", []string{"h", "head"})
	return b.model(21, 10)
}

// Tied is Embedding with the table as the head, too.
func Tied(seed uint64, vocab, dim int) *Model {
	b := embedding(seed, "tied", vocab, dim)
	b.node("Gemm", "logits", []string{"h", "table"}, intAttr("transB", 1))
	return b.model(21, 10)
}

func embedding(seed uint64, name string, vocab, dim int) *builder {
	b := newBuilder(seed, name)
	b.input("ids", int64s, "length")
	b.weight("table", dim, int64(vocab), int64(dim))
	b.node("Gather", "e", []string{"table", "ids"})
	b.node("Tanh", "h", []string{"e"})
	b.output("logits", float, "length", vocab)
	return b
}

// Shared multiplies twice by the same square weight.
func Shared(seed uint64, dim int) *Model {
	b := newBuilder(seed, "shared")
	b.input("x", float, "batch", dim)
	b.weight("w", dim, int64(dim), int64(dim))
	b.node("MatMul", "m", []string{"x", "w"})
	b.node("Relu", "h", []string{"m"})
	b.node("MatMul", "y", []string{"h", "w"})
	b.output("y", float, "batch", dim)
	return b.model(21, 10)
}

// If multiplies by w in the main graph and again in each branch.
func If(seed uint64) *Model {
	b := newBuilder(seed, "if")
	b.input("cond", bools)
	b.input("x", float, "batch", 32)
	b.weight("w", 32, 32, 32)
	b.node("MatMul", "h", []string{"x", "w"})
	branch := func(name, op string) *onnxpb.GraphProto {
		g := newBuilder(0, name)
		g.node("MatMul", name+"_m", []string{"h", "w"})
		g.node(op, name+"_y", []string{name + "_m"})
		g.output(name+"_y", float, "batch", 32)
		return g.graph
	}
	b.node("If", "y", []string{"cond"},
		graphAttr("then_branch", branch("then", "Relu")), graphAttr("else_branch", branch("else", "Neg")))
	b.output("y", float, "batch", 32)
	return b.model(21, 10)
}

// Opset11 has operators whose attributes became inputs in opsets 12 and 13. A tool that
// raises the opset must rewrite them.
func Opset11(seed uint64) *Model {
	b := newBuilder(seed, "opset11")
	b.input("x", float, "batch", 32)
	b.weight("w", 32, 32, 16)
	b.node("Dropout", "d", []string{"x"}, floatAttr("ratio", 0.25))
	b.node("Unsqueeze", "u", []string{"d"}, intsAttr("axes", 0))
	b.node("Squeeze", "s", []string{"u"}, intsAttr("axes", 0))
	b.node("MatMul", "y", []string{"s", "w"})
	b.output("y", float, "batch", 16)
	return b.model(11, 6)
}

// Names is MLP with names of weights that must be escaped in print and in globs.
func Names(seed uint64) *Model {
	m := MLP(seed, 32, 32, 16)
	rename := map[string]string{"w0": "модель/层 0/w\x1b[2J\n", "w1": "w[1]*{a,b}\t\"q\""}
	for _, t := range m.Proto.Graph.Initializer {
		if s, ok := rename[t.GetName()]; ok {
			t.Name = &s
		}
	}
	for _, n := range m.Proto.Graph.Node {
		for i, in := range n.Input {
			if s, ok := rename[in]; ok {
				n.Input[i] = s
			}
		}
	}
	return m
}

// Plain multiplies two activations.
func Plain() *Model {
	b := newBuilder(0, "plain")
	b.input("x", float, "m", "k")
	b.input("z", float, "k", "n")
	b.node("MatMul", "y", []string{"x", "z"})
	b.output("y", float, "m", "n")
	return b.model(21, 10)
}

// NaN sets an element in the middle of a float32 initializer of m to NaN.
func NaN(m *Model, name string) *Model {
	for _, t := range m.Proto.Graph.Initializer {
		if t.GetName() == name {
			copy(t.RawData[len(t.RawData)/2&^3:], appendFloat(nil, float32(math.NaN())))
		}
	}
	return m
}

// External moves the tensors of m to one external file, at offsets that are multiples
// of 64.
func External(m *Model, location string) *Model {
	var data []byte
	for _, t := range m.Proto.Graph.Initializer {
		data = append(data, make([]byte, -len(data)&63)...)
		external(t, location, int64(len(data)), int64(len(t.RawData)))
		data = append(data, t.RawData...)
		t.RawData = nil
	}
	m.Data = map[string][]byte{location: data}
	return m
}

func external(t *onnxpb.TensorProto, location string, offset, length int64) {
	t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	for _, e := range [][2]string{{"location", location}, {"offset", fmt.Sprint(offset)}, {"length", fmt.Sprint(length)}} {
		t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: proto.String(e[0]), Value: proto.String(e[1])})
	}
}

// withType converts the float32 tensors, inputs and outputs of m to another
// floating-point type.
func withType(m *Model, dtype onnxpb.TensorProto_DataType) *Model {
	g := m.Proto.Graph
	for _, t := range g.Initializer {
		t.DataType = proto.Int32(int32(dtype))
		var raw []byte
		for word := range slices.Chunk(t.RawData, 4) {
			raw = appendAs(raw, math.Float32frombits(binary.LittleEndian.Uint32(word)), dtype)
		}
		t.RawData = raw
	}
	for _, v := range slices.Concat(g.Input, g.Output) {
		v.Type.GetTensorType().ElemType = proto.Int32(int32(dtype))
	}
	return m
}

// appendAs appends a finite x as float16, bfloat16 or double.
func appendAs(b []byte, x float32, dtype onnxpb.TensorProto_DataType) []byte {
	switch dtype {
	case onnxpb.TensorProto_FLOAT16:
		return binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(x).Bits())
	case onnxpb.TensorProto_BFLOAT16:
		return binary.LittleEndian.AppendUint16(b, bfloat16(x))
	case onnxpb.TensorProto_DOUBLE:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)))
	}
	panic("not supported: " + dtype.String())
}

// bfloat16 rounds a finite x to nearest, ties to even.
func bfloat16(x float32) uint16 {
	bits := math.Float32bits(x)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
