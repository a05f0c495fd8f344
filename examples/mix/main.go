// Command mix finds the smallest mix of formats whose error stays below a limit, and converts the
// model with it.
//
//	go run ./examples/mix in.onnx out.onnx 0.08
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: mix IN OUT ERROR")
	}
	most, err := strconv.ParseFloat(os.Args[3], 64)
	if err != nil || !(most > 0) {
		log.Fatalf("ERROR %q: want a number above 0, such as 0.08", os.Args[3])
	}
	if err := convert(os.Args[1], os.Args[2], most); err != nil {
		log.Fatal(err)
	}
}

// convert quantizes the model at in with the smallest mix whose relative error is at most most.
func convert(in, out string, most float64) error {
	ctx := context.Background()
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	analysis, err := analyze.Model(ctx, m, analyze.Options{MaxError: most})
	if err != nil {
		return err
	}
	for _, w := range analysis.Weights {
		fmt.Println(w.Name, w.Recommended)
	}
	plan, err := m.Plan(onnxq.Options{Precision: analysis.Precision})
	if err != nil {
		return err
	}
	report, err := plan.Convert(ctx, out)
	if err != nil {
		return err
	}
	fmt.Printf("%d to %d bytes\n", report.Plan.InBytes, report.Plan.OutBytes)
	return nil
}
