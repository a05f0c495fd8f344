package calibrate

import (
	"slices"
	"testing"

	"onnxquant/internal/modeltest"
)

// Values that nodes compute from constants have ranges, too; constants themselves have none,
// nor have shapes and sequences.
func TestValues(t *testing.T) {
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 8, 8)}, modeltest.Nodes{
		modeltest.ConstantNode("c", modeltest.Floats("c", 8)),
		modeltest.Node("Mul", "y", "h transposed"), // before what it reads
		modeltest.Node("Transpose", "transposed", "w"),
		modeltest.Node("Add", "h", "x c"),
		modeltest.Node("Shape", "s", "h"),
		modeltest.Node("SequenceConstruct", "q", "h"),
		modeltest.Node("SequenceAt", "a", "q zero"),
	})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	names, constants, err := values(m.Proto.Graph)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{"x", "h", "y", "a"}) || !slices.Equal(constants, []string{"transposed"}) {
		t.Errorf("%q, %q", names, constants)
	}
}
