package activations_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"onnxquant/internal/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/activations"
	"onnxquant/onnxq/spec"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	samples := filepath.Join(filepath.Dir(in), "x.npy")
	if err := writeSamples(samples, 100, 64); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	data := activations.New(in, []string{samples}, activations.Options{Engine: "go"})
	if err := data.Open(ctx); err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32, Algorithm: spec.GPTQ, Calibration: data})
	if err != nil {
		log.Fatal(err)
	}
	c := report.Calibration
	fmt.Printf("%d layers by %d samples; error below that of mse: %v\n", c.Layers, data.Len(), c.Error < c.MSE)
	// Output:
	// 3 layers by 100 samples; error below that of mse: true
}

// writeSamples writes rows of random numbers whose neighbours are alike.
func writeSamples(path string, rows, columns int) error {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", header)
	r := rand.New(rand.NewPCG(1, 2))
	for range rows {
		x := r.NormFloat64()
		for range columns {
			x = 0.9*x + 0.4*r.NormFloat64()
			b, _ = binary.Append(b, binary.LittleEndian, float32(x))
		}
	}
	return os.WriteFile(path, b, 0o666)
}
