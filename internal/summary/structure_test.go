package summary

import (
	"testing"

	"onnxquant/onnxq/verify"
)

// What changed besides weights is named.
func TestStructureText(t *testing.T) {
	for _, c := range []struct {
		s    verify.Structure
		want string
	}{
		{verify.Structure{Nodes: 3}, "3 nodes; nothing but weights changed"},
		{verify.Structure{Nodes: 1, Activations: map[string]int{"uint8": 2}}, "1 node; nothing but weights and activations changed"},
		{verify.Structure{Nodes: 3, Caches: []string{"past.0.key"}}, "3 nodes; nothing but weights and 1 key-value cache changed"},
		{verify.Structure{Nodes: 3, Activations: map[string]int{"uint8": 2}, Caches: []string{"a", "b"}}, "3 nodes; nothing but weights, activations and 2 key-value caches changed"},
		{verify.Structure{Nodes: 3, Caches: []string{"a"}, Problems: []string{"p"}}, "3 nodes; differences besides weights: 1"},
	} {
		if got := structureText(c.s); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got := cacheFacts([]string{"a", "b", "c", "d", "e", "f"}); len(got) != 1 || got[0].Text != "int8: a, b, c, d and 2 more" {
		t.Errorf("%+v", got)
	}
}
