package products

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"MatMul": {Inputs: 2, Run: runMatMul},
	"Gemm":   {Inputs: 2, Attributes: "alpha beta transA transB", Run: runGemm},

	"Conv":          {Inputs: 2, Attributes: windowAttributes + " group", Run: runConv},
	"ConvTranspose": {Inputs: 2, Attributes: windowAttributes + " group output_padding output_shape", Run: runConvTranspose},
	"MaxPool":       {Inputs: 1, Attributes: windowAttributes + " ceil_mode storage_order", Run: runMaxPool},
	"AveragePool":   {Inputs: 1, Attributes: windowAttributes + " ceil_mode count_include_pad", Run: runAveragePool},
	"LpPool":        {Inputs: 1, Attributes: windowAttributes + " ceil_mode p", Run: runLpPool},
}
