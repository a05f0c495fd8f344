package calibrate_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/calib"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
)

func ExampleData() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	samples := filepath.Join(filepath.Dir(in), "x.npy")
	if err := modeltest.WriteSamples(samples, 100, 64); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
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

func ExampleRanges() {
	in, _, remove := modeltest.Example("mlp")
	defer remove()
	data := filepath.Join(filepath.Dir(in), "x.npy") // two samples of input x, zeros
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 64), }\n"
	raw := "\x93NUMPY\x01\x00" + string(rune(len(header))) + "\x00" + header + string(make([]byte, 2*64*4))
	if err := os.WriteFile(data, []byte(raw), 0o600); err != nil {
		log.Fatal(err)
	}

	method, err := calib.ParseMethod("minmax")
	if err != nil {
		log.Fatal(err)
	}
	r, err := calibrate.Ranges(context.Background(), in, calibrate.Options{
		Data: []string{data}, Engine: "go", Method: method, Scheme: calib.Scheme{Bits: 8, Symmetric: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Samples, "samples,", len(r.Tensors), "values, x in", r.Tensors["x"])
	// Output: 2 samples, 9 values, x in {0 0}
}
