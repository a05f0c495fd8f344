// Command keep quantizes a model and keeps one weight in float.
//
//	go run ./examples/keep in.onnx out.onnx lm_head.weight
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"onnxquant/onnxq"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: keep IN OUT WEIGHT")
	}
	if err := convert(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// convert quantizes the model at in, except for the weight called keep.
func convert(in, out, keep string) error {
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	plan, err := m.Plan(onnxq.Options{Bits: 4, Block: 32})
	if err != nil {
		return err
	}
	// Options{Exclude: []string{keep}} would do the same. Here the choice may depend on the
	// plan: a shape, a size, the operators that read the weight.
	found := false
	for i := range plan.Tensors {
		if t := &plan.Tensors[i]; t.Name == keep {
			t.Decision, found = onnxq.Keep, true
		}
	}
	if !found {
		return fmt.Errorf("%s has no weight called %s", in, keep)
	}
	report, err := plan.Convert(context.Background(), out)
	if err != nil {
		return err
	}
	for _, t := range report.Tensors {
		fmt.Printf("%s: %d to %d bytes, SQNR %.0f dB\n", t.Name, t.Bytes, t.OutBytes, t.SQNR)
	}
	return nil
}
