// Package testmodels builds small float ONNX models for tests and benchmarks.
//
// A model is a function of its kind and a seed: the bytes are the same on every
// machine and in every run. Weights have a bell-shaped distribution with a standard
// deviation near 1/sqrt(K) for K inputs, as in trained layers. [Kinds] lists the
// kinds; the command mkmodel writes one to a file:
//
//	go run ./testmodels/mkmodel tied tied.onnx
//
// [WriteBig] streams models of any size, for measuring speed and memory.
//
// Two subfolders are not Go: corpus has the scripts that generate the valid and
// invalid models for the oracle tests; tinygpt is a small trained language model.
package testmodels

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Model is a model and its external data files.
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

// A Kind describes one of the models.
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
	{"behind", "MatMul reads its weight through Identity and Transpose", func(s uint64) *Model { return Behind(s, 40, 24) }},
	{"embedding", "Gather from a table, MatMul as the head", func(s uint64) *Model { return Embedding(s, 100, 32) }},
	{"tied", "one table for Gather and for the head's Gemm", func(s uint64) *Model { return Tied(s, 100, 32) }},
	{"shared", "one weight read by two MatMuls", func(s uint64) *Model { return Shared(s, 64) }},
	{"if", "MatMuls in both branches of an If read a weight of the main graph", If},
	{"float16", "mlp in float16", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_FLOAT16) }},
	{"bfloat16", "mlp in bfloat16", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_BFLOAT16) }},
	{"float64", "mlp in double precision", func(s uint64) *Model { return withType(MLP(s, 64, 96, 64, 16), onnxpb.TensorProto_DOUBLE) }},
	{"external", "mlp with its tensors in weights.bin", func(s uint64) *Model { return External(MLP(s, 64, 96, 64, 16), "weights.bin") }},
	{"opset11", "Dropout, Unsqueeze and Squeeze as opset 11 spells them, and a MatMul", Opset11},
	{"nan", "mlp with a NaN in its second weight", func(s uint64) *Model { return NaN(MLP(s, 64, 96, 64, 16), "w1") }},
	{"names", "weights with control characters, spaces and braces in their names", Names},
	{"plain", "activations only: nothing to quantize", func(uint64) *Model { return Plain() }},
}

// Kinds lists all kinds in a fixed order.
func Kinds() []Kind { return slices.Clone(kinds) }

// Build returns the model of the given kind.
func Build(kind string, seed uint64) (*Model, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == kind })
	if i < 0 {
		return nil, fmt.Errorf("there is no kind %q; mkmodel lists them", kind)
	}
	return kinds[i].build(seed), nil
}
