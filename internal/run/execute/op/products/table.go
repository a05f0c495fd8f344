package products

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"MatMul": {Inputs: 2, Run: runMatMul},
	"Gemm":   {Inputs: 2, Attributes: "alpha beta transA transB", Run: runGemm},

	"Einsum": {Inputs: 1, Attributes: "equation", Run: runEinsum},

	"MatMulInteger": {Inputs: 2, Run: runMatMulInteger},
	"ConvInteger":   {Inputs: 2, Attributes: windowAttributes + " group", Run: runConvInteger},
	"QLinearMatMul": {Inputs: 8, Run: runQLinearMatMul},
	"QLinearConv":   {Inputs: 8, Attributes: windowAttributes + " group", Run: runQLinearConv},

	"RNN":  {Inputs: 3, Attributes: recurrentAttributes, Run: runRNN},
	"GRU":  {Inputs: 3, Attributes: recurrentAttributes + " linear_before_reset", Run: runGRU},
	"LSTM": {Inputs: 3, Attributes: recurrentAttributes + " input_forget", Run: runLSTM},

	"com.microsoft:DynamicQuantizeLSTM": {Inputs: 3, Attributes: "activation_alpha activation_beta activations clip direction hidden_size input_forget", Run: runDynamicQuantizeLSTM},

	"Attention":       {Inputs: 3, Attributes: "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision left_window_size right_window_size", Run: runAttention},
	"RotaryEmbedding": {Inputs: 3, Attributes: "interleaved num_heads rotary_embedding_dim", Run: runRotaryEmbedding},

	"Conv":          {Inputs: 2, Attributes: windowAttributes + " group", Run: runConv},
	"ConvTranspose": {Inputs: 2, Attributes: windowAttributes + " group output_padding output_shape", Run: runConvTranspose},
	"MaxPool":       {Inputs: 1, Attributes: windowAttributes + " ceil_mode storage_order", Run: runMaxPool},
	"AveragePool":   {Inputs: 1, Attributes: windowAttributes + " ceil_mode count_include_pad", Run: runAveragePool},
	"LpPool":        {Inputs: 1, Attributes: windowAttributes + " ceil_mode p", Run: runLpPool},
}
