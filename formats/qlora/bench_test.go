package qlora

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/codectest"
)

func BenchmarkWeight(b *testing.B) {
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, table := range []Table{NF4, FP4} {
			codectest.Benchmark(b, fmt.Sprintf("table=%s/type=%s", table, t), Codec{Table: table, Type: t}, BlockSize, false, kernels.Pack4)
		}
	}
}
