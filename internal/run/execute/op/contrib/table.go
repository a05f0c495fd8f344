// Package contrib has operators of com.microsoft, which ONNX Runtime's tools and onnxquant write.
package contrib

import "onnxquant/internal/run/execute/op"

const (
	expertAttributes = "activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion swiglu_limit use_sparse_mixer"
	windowAttributes = "auto_pad dilations kernel_shape pads strides group"
)

// Operators are the operators of this package.
var Operators = op.Table{
	"com.microsoft:MatMulNBits":          {Inputs: 3, Attributes: "K N accuracy_level bits block_size weight_prepacked", Run: runMatMulNBits},
	"com.microsoft:GatherBlockQuantized": {Inputs: 3, Attributes: "bits block_size gather_axis quantize_axis", Run: runGatherBlockQuantized},
	"com.microsoft:MoE":                  {Inputs: 3, Attributes: expertAttributes, Run: runMoE},
	"com.microsoft:QMoE": {Inputs: 3, Attributes: expertAttributes + " accuracy_level block_size expert_weight_bits fc1_expert_weight_bits fc2_expert_weight_bits quant_type weights_prepacked",
		Run: runQMoE},

	"com.microsoft:BiasGelu":  {Inputs: 2, Run: biasGelu("none")},
	"com.microsoft:Gelu":      {Inputs: 1, Run: biasGelu("none")},
	"com.microsoft:FastGelu":  {Inputs: 1, Run: biasGelu("tanh")},
	"com.microsoft:QuickGelu": {Inputs: 1, Attributes: "alpha", Run: runQuickGelu},

	"com.microsoft:SkipLayerNormalization":           {Inputs: 3, Attributes: "epsilon", Run: skipNormalization("LayerNormalization", 2, 3, 4)},
	"com.microsoft:SkipSimplifiedLayerNormalization": {Inputs: 3, Attributes: "epsilon", Run: skipNormalization("RMSNormalization", 2, 0, 3)},
	"com.microsoft:EmbedLayerNormalization":          {Inputs: 5, Attributes: "epsilon mask_index_type", Run: runEmbedLayerNormalization},
	"SimplifiedLayerNormalization":                   {Inputs: 2, Attributes: "axis epsilon stash_type", Run: runSimplifiedLayerNormalization},

	"com.microsoft:QLinearAdd":       {Inputs: 7, Run: qlinearPair(func(a, b float32) float32 { return a + b })},
	"com.microsoft:QLinearMul":       {Inputs: 7, Run: qlinearPair(func(a, b float32) float32 { return a * b })},
	"com.microsoft:QLinearLeakyRelu": {Inputs: 4, Attributes: "alpha", Run: qlinearUnary(leakyRelu)},
	"com.microsoft:QLinearSigmoid":   {Inputs: 4, Run: qlinearUnary(sigmoid)},

	"com.microsoft:FusedConv":   {Inputs: 2, Attributes: windowAttributes + " activation activation_params", Run: runFusedConv},
	"com.microsoft:FusedGemm":   {Inputs: 2, Attributes: "activation activation_alpha activation_beta activation_gamma alpha beta transA transB", Run: runFusedGemm},
	"com.microsoft:FusedMatMul": {Inputs: 2, Attributes: "alpha transA transB transBatchA transBatchB", Run: runFusedMatMul},

	"com.microsoft:Attention":          {Inputs: 2, Attributes: "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim scale unidirectional", Run: runAttention},
	"com.microsoft:MultiHeadAttention": {Inputs: 1, Attributes: "mask_filter_value num_heads scale unidirectional", Run: runMultiHeadAttention},
	"com.microsoft:RotaryEmbedding":    {Inputs: 4, Attributes: "interleaved is_packed_batching num_heads rotary_embedding_dim scale", Run: runRotaryEmbedding},
	"com.microsoft:GroupQueryAttention": {Inputs: 1, Attributes: "causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads qk_norm_epsilon qk_output " +
		"rotary_interleaved scale sliding_window_cache smooth_softmax softcap v_quant_type", Run: runGroupQueryAttention},
}
