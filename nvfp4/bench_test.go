package nvfp4

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/codectest"
)

func BenchmarkWeight(b *testing.B) {
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		codectest.Benchmark(b, fmt.Sprintf("type=%s", t), Codec{TensorScale: 1e-4, Type: t}, BlockSize, false, kernels.Pack4)
	}
}
