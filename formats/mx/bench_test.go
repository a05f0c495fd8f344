package mx

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/testing/codectest"
)

func BenchmarkWeight(b *testing.B) {
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, f := range []Format{MXFP4, MXFP8E4M3, MXFP8E5M2} {
			pack := func(packed, q []byte) { copy(packed, q) }
			if f == MXFP4 {
				pack = kernels.Pack4
			}
			codectest.Benchmark(b, fmt.Sprintf("format=%s/type=%s", f, t), Codec{Format: f, Type: t}, BlockSize, false, pack)
		}
	}
}
