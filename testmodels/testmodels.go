// Package testmodels builds small float ONNX models for tests and benchmarks.
//
// A model is a function of its kind and a seed: the same bytes on every
// machine and every run. Weights are bell-shaped, with a standard deviation
// near 1/sqrt(K) for K inputs, as a trained layer's are. [Kinds] lists what
// there is; the command in mkmodel writes a kind to a file:
//
//	go run ./testmodels/mkmodel tied tied.onnx
//
// Models as large as a disk allows, for measuring speed and memory, are
// streamed by [WriteBig]. The folder also holds what is not Go: corpus, with
// the scripts that generate the models and the broken files the oracle suite
// runs on, and tinygpt, a small trained language model.
package testmodels

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Model is a model and the external data files that belong to it.
type Model struct {
	Proto *onnxpb.ModelProto
	Data  map[string][]byte // contents by location, relative to the model's folder
}

// Write stores the model at path and its external data beside it.
func (m *Model) Write(path string) error {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	if err != nil {
		return err
	}
	for location, data := range m.Data {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), location), data, 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(path, raw, 0o666)
}

// A Kind names one of the models and says what it is for.
type Kind struct {
	Name string
	What string

	build func(seed uint64) *Model
}

var kinds = []Kind{
	{"mlp", "three MatMuls with bias and Relu, 64 → 96 → 64 → 16", func(s uint64) *Model { return MLP(s, 64, 96, 64, 16) }},
	{"odd", "one MatMul with K=33, N=7: short last block, odd number of codes", func(s uint64) *Model { return MLP(s, 33, 7) }},
	{"gemm", "Gemm with transB=0, B is [K,N]", func(s uint64) *Model { return Gemm(s, 64, 24, false) }},
	{"gemm_transb", "Gemm with transB=1, B is [N,K]", func(s uint64) *Model { return Gemm(s, 64, 24, true) }},
	{"conv", "Conv, also in groups, and ConvTranspose", Conv},
	{"behind", "MatMul with a weight behind Identity and Transpose", func(s uint64) *Model { return Behind(s, 40, 24) }},
	{"embedding", "Gather from a table, MatMul as the head", func(s uint64) *Model { return Embedding(s, 100, 32) }},
	{"tied", "one table for Gather and for the head's Gemm", func(s uint64) *Model { return Tied(s, 100, 32) }},
	{"shared", "one weight read by two MatMuls", func(s uint64) *Model { return Shared(s, 64) }},
	{"if", "MatMuls in the branches of an If read a weight of the main graph", If},
	{"float16", "mlp in float16", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_FLOAT16) }},
	{"bfloat16", "mlp in bfloat16", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_BFLOAT16) }},
	{"float64", "mlp in double precision", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_DOUBLE) }},
	{"external", "mlp with its tensors in weights.bin", func(s uint64) *Model { return External(MLP(s, 64, 96, 64, 16), "weights.bin") }},
	{"opset11", "Dropout, Unsqueeze and Squeeze as opset 11 spells them, and a MatMul", Opset11},
	{"nan", "mlp with a NaN in its second weight", func(s uint64) *Model { return NaN(MLP(s, 64, 96, 64, 16), "w1") }},
	{"names", "weights whose names hold control characters, spaces and braces", Names},
	{"plain", "activations only: nothing to quantize", func(uint64) *Model { return Plain() }},
}

// Kinds lists every kind in a fixed order.
func Kinds() []Kind { return slices.Clone(kinds) }

// Build makes the model of the named kind.
func Build(kind string, seed uint64) (*Model, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == kind })
	if i < 0 {
		return nil, fmt.Errorf("no test model is called %q", kind)
	}
	return kinds[i].build(seed), nil
}
