package rules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

func ExampleParsePrecision() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	precision, err := rules.ParsePrecision([]byte(`{"w*": 4, "w2": {"bits": 8, "block": -1}}`))
	if err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, Precision: precision})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Println(t.Name, t.Format, t.Block)
	}
	// Output:
	// w0 int4 32
	// w1 int4 32
	// w2 int8 -1
}

func ExampleNewPrecision() {
	bits, format := 8, spec.NF4
	p, err := rules.NewPrecision(
		rules.PrecisionEntry{Pattern: "*experts*", Override: spec.Override{Format: &format}},
		rules.PrecisionEntry{Pattern: rules.PatternOf("head[0]"), Override: spec.Override{Bits: &bits}},
	)
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	// Output: {"*experts*":{"format":"nf4"},"head\\[0]":{"bits":8}}
}

func ExampleParseNames() {
	names, err := rules.ParseNames([]byte(`{"model.layers.*.mlp.up_proj.weight": "blk.*.ffn_up.weight"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(names.For("model.layers.7.mlp.up_proj.weight"))
	fmt.Println(names.For("lm_head.weight"))
	// Output:
	// blk.7.ffn_up.weight true
	// lm_head.weight true
}
