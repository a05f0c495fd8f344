package calibrate

import (
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
)

// A MoE that ONNX Runtime has no kernel for is found in branches, too.
func TestKernelsInBranches(t *testing.T) {
	moe := func(output, inputs string) modeltest.Nodes {
		return modeltest.Nodes{modeltest.Node("com.microsoft.MoE", output, inputs)}
	}
	for _, nodes := range []modeltest.Nodes{
		moe("y", "x r fc1 _ fc2 _ fc3"),
		{modeltest.Node("If", "y", "c", modeltest.GraphAttr("then_branch", nil, moe("t", "x r fc1 _ fc2 _ fc3")...), modeltest.GraphAttr("else_branch", nil, moe("e", "x r fc1 _ fc2")...))},
	} {
		engine, err := engineFor(t.Context(), modeltest.Model(nil, nodes).Proto, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if why := engine.Lacked(); why == nil || !strings.Contains(why.Error(), "it has fc3") {
			t.Errorf("%s, %v", engine.Name(), why)
		}
	}
}
