// Command check is for continuous integration. It fails if a quantized model differs from the float
// model in more than its weights, or if its outputs differ too much.
//
//	go run ./examples/check in.onnx out.onnx
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"onnxquant/onnxq/verify"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: check IN OUT")
	}
	passed, err := check(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	if !passed {
		os.Exit(1)
	}
}

// check compares weights and outputs of the models and prints what is wrong.
func check(in, out string) (passed bool, err error) {
	least := 15.0 // SQNR in dB of each weight and each output
	report, err := verify.Models(context.Background(), in, out, verify.Options{MinSQNR: &least})
	if err != nil {
		return false, err
	}
	for _, failure := range report.Failures {
		fmt.Println("failed:", failure)
	}
	for _, o := range report.Execution.Outputs {
		fmt.Printf("output %s: SQNR %.0f dB, cosine %.3f\n", o.Name, o.SQNR, o.Cosine)
	}
	return report.Passed, nil
}
