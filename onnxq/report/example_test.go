package report_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/report"
)

func ExampleModels() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Bits: 4, Block: 32}); err != nil {
		log.Fatal(err)
	}
	r, err := report.Models(ctx, in, []string{out}, report.Options{})
	if err != nil {
		log.Fatal(err)
	}
	page, err := os.Create(filepath.Join(filepath.Dir(out), "report.html"))
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	if err := r.WriteHTML(page); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s; %d weights with an error of %.3f, in %d bytes\n", r.Verdict, r.Sizes.Count, r.Outs[0].Error, r.Outs[0].Bytes)
	// Output: sound; 3 weights with an error of 0.092, in 9786 bytes
}
