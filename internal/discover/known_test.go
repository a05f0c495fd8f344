package discover_test

import (
	"fmt"
	"reflect"
	"testing"

	"onnxquant/internal/discover"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/rules"
	"onnxquant/spec"
)

// A second plan with Known makes the same decisions as one without, for any format. It does not
// examine unselected tensors again.
func TestKnown(t *testing.T) {
	const n = 500
	tensors, list, last := []*onnxpb.TensorProto{floats("w", 64, 64), floats("v", 64, 64)}, nodes{node("MatMul", "m", "x w"), node("MatMul", "y0", "m v")}, "y0"
	for i := range n {
		name, made := fmt.Sprint("c", i), fmt.Sprint("y", i+1)
		tensors, list, last = append(tensors, floats(name, 64)), append(list, node("Add", made, last+" "+name)), made
	}
	list[len(list)-1].Output[0] = "y"
	x := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, list))).Graph()
	known := &discover.Known{}
	decide := func(entry rules.PrecisionEntry, known *discover.Known) []*discover.Decision {
		p, err := rules.NewPrecision(entry)
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := discover.All(x, discover.Options{
			Ops: []string{"MatMul"}, Block: 32, Target: target.Of(spec.Portable), Observed: x, Precision: p, Known: known,
		}, discover.Exceptions{})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	entries := []rules.PrecisionEntry{
		{Pattern: "*", Override: spec.Candidate{Format: spec.Float}.Override()},
		{Pattern: "*", Override: spec.Candidate{Format: spec.Int8, Block: spec.PerChannel}.Override()},
		{Pattern: "v", Override: spec.Candidate{Format: spec.Int4, Block: 32}.Override()},
	}
	for _, e := range entries {
		got, want := decide(e, known), decide(e, nil)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: other decisions than without", e.Override)
		}
	}
	first := testing.AllocsPerRun(3, func() { decide(entries[0], nil) })
	again := testing.AllocsPerRun(3, func() { decide(entries[0], known) })
	if first-again < 2*n {
		t.Errorf("%v allocations, %v without what is known", again, first)
	}
}
