// Package moves has the operators that move elements and compute none: reshape, gather, scatter, pad, slice, and
// constants.
package moves

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"Identity":        {Inputs: 1, Run: runSame},
	"Dropout":         {Inputs: 1, Attributes: "ratio seed", Run: runDropout},
	"Constant":        {Attributes: "value value_int value_ints value_float value_floats value_string value_strings", Run: runConstant},
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
	"CenterCropPad":   {Inputs: 2, Attributes: "axes", Run: runCenterCropPad},
	"Compress":        {Inputs: 2, Attributes: "axis", Run: runCompress},
	"EyeLike":         {Inputs: 1, Attributes: "dtype k", Run: runEyeLike},
	"GatherElements":  {Inputs: 2, Attributes: "axis", Run: runGatherElements},
	"GatherND":        {Inputs: 2, Attributes: "batch_dims", Run: runGatherND},
	"NonZero":         {Inputs: 1, Run: runNonZero},
	"OneHot":          {Inputs: 3, Attributes: "axis", Run: runOneHot},
	"ReverseSequence": {Inputs: 2, Attributes: "batch_axis time_axis", Run: runReverseSequence},
	"Scatter":         {Inputs: 3, Attributes: "axis", Run: runScatterElements},
	"ScatterElements": {Inputs: 3, Attributes: "axis reduction", Run: runScatterElements},
	"ScatterND":       {Inputs: 3, Attributes: "reduction", Run: runScatterND},
	"Size":            {Inputs: 1, Run: runSize},
	"SpaceToDepth":    {Inputs: 1, Attributes: "blocksize mode", Run: runSpaceToDepth},
	"TensorScatter":   {Inputs: 2, Attributes: "axis mode", Run: runTensorScatter},
	"Tile":            {Inputs: 2, Run: runTile},
	"Trilu":           {Inputs: 1, Attributes: "upper", Run: runTrilu},
	"Unique":          {Inputs: 1, Attributes: "axis sorted", Run: runUnique},
	"Unsqueeze":       {Inputs: 1, Attributes: "axes", Run: runUnsqueeze},
}
