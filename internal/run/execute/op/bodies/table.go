// Package bodies has the operators that run graphs, and those of sequences and optionals.
package bodies

import (
	"errors"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// Operators are the operators of this package.
var Operators = op.Table{
	"If": {Inputs: 1, Attributes: "then_branch else_branch", Run: runIf},
}

func runIf(c *op.Call) ([]*execute.Tensor, error) {
	if c.In[0].Len() != 1 {
		return nil, errors.New("its condition is not a scalar")
	}
	branch := "else_branch"
	if c.In[0].Data[0] != 0 {
		branch = "then_branch"
	}
	g := c.Attribute(branch).GetG()
	if g == nil {
		return nil, errors.New("it has no attribute " + branch)
	}
	return c.Body(g, nil)
}
