package graph

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
)

// Nodes in order, of which there may be very many, are not sorted again.
func TestOrderedInOrder(t *testing.T) {
	const n = 1000
	var nodes []*onnxpb.NodeProto
	for i := range n {
		nodes = append(nodes, &onnxpb.NodeProto{Input: []string{fmt.Sprint("v", i), "w"}, Output: []string{fmt.Sprint("v", i+1)}})
	}
	allocations := testing.AllocsPerRun(3, func() {
		if got, err := Ordered(nodes); err != nil || !slices.Equal(got, nodes) {
			t.Fatalf("nodes in order are moved, or %v", err)
		}
	})
	if allocations > n/4 {
		t.Errorf("%v allocations for %d nodes", allocations, n)
	}
}

func TestOrdered(t *testing.T) {
	node := func(out string, in ...string) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{Output: []string{out}, Input: in}
	}
	a, b, c := node("a", "x"), node("b", "a"), node("c", "b", "a")
	got, err := Ordered([]*onnxpb.NodeProto{c, a, b})
	if want := []*onnxpb.NodeProto{a, b, c}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, cycle := range [][]*onnxpb.NodeProto{{node("a", "b"), node("b", "a")}, {node("a", "a")}} {
		if _, err := Ordered(cycle); err == nil {
			t.Error("a cycle is no error")
		}
	}
}
