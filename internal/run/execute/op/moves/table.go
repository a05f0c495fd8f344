// Package moves has the operators that move elements and compute none: reshape, gather, scatter, pad, slice, and
// constants.
package moves

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"Identity":        {Inputs: 1, Run: runSame},
	"Dropout":         {Inputs: 1, Attributes: "ratio seed", Run: runSame},
	"Constant":        {Attributes: "value value_int value_ints value_float value_floats", Run: runConstant},
	"ConstantOfShape": {Inputs: 1, Attributes: "value", Run: runConstantOfShape},
	"Concat":          {Inputs: 1, Attributes: "axis", Run: runConcat},
	"DepthToSpace":    {Inputs: 1, Attributes: "blocksize mode", Run: runDepthToSpace},
	"Expand":          {Inputs: 2, Run: runExpand},
	"Flatten":         {Inputs: 1, Attributes: "axis", Run: runFlatten},
	"Gather":          {Inputs: 2, Attributes: "axis", Run: runGather},
	"Pad":             {Inputs: 1, Attributes: "mode pads value", Run: runPad},
	"Range":           {Inputs: 3, Run: runRange},
	"Reshape":         {Inputs: 1, Attributes: "shape allowzero", Run: runReshape},
	"Shape":           {Inputs: 1, Attributes: "start end", Run: runShape},
	"Slice":           {Inputs: 1, Attributes: "starts ends axes", Run: runSlice},
	"Split":           {Inputs: 1, Attributes: "axis split num_outputs", Run: runSplit},
	"Squeeze":         {Inputs: 1, Attributes: "axes", Run: runSqueeze},
	"Transpose":       {Inputs: 1, Attributes: "perm", Run: runTranspose},
	"Unsqueeze":       {Inputs: 1, Attributes: "axes", Run: runUnsqueeze},
}
