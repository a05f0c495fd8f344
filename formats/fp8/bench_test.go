package fp8

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/codectest"
)

func BenchmarkWeight(b *testing.B) {
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, f := range []Format{E4M3FN, E5M2} {
			codectest.Benchmark(b, fmt.Sprintf("format=%s/type=%s", f, t), Codec{Format: f, Type: t}, 32, false, func(packed, q []byte) { copy(packed, q) })
		}
	}
}
