package graph_test

import (
	"testing"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/modeltest"
)

// What a value does not need is left out.
func TestOnly(t *testing.T) {
	m, err := modelfile.Open(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	whole := m.Proto.Graph
	for i, n := range whole.Node {
		only := graph.Only(m.Proto, n.Output[:1]).Graph
		if len(only.Node) > i+1 || only.Node[len(only.Node)-1] != n || only.Output[0].GetName() != n.Output[0] {
			t.Errorf("%s: %d nodes", n.Output[0], len(only.Node))
		}
		if i == 0 && len(only.Initializer) >= len(whole.Initializer) {
			t.Errorf("%s: %d initializers", n.Output[0], len(only.Initializer))
		}
	}
}
