package opset

import (
	"strconv"
	"strings"

	"onnxquant/internal/onnxpb"
)

// IsDefault reports whether an attribute has the value that an operator of ONNX takes if it is
// left out. It is false for attributes whose default changed between opsets.
func IsDefault(op string, a *onnxpb.AttributeProto) bool {
	value := ""
	switch a.GetType() {
	case onnxpb.AttributeProto_INT:
		value = strconv.FormatInt(a.GetI(), 10)
	case onnxpb.AttributeProto_FLOAT:
		value = strconv.FormatFloat(float64(a.GetF()), 'g', 9, 64)
	case onnxpb.AttributeProto_STRING:
		value = string(a.GetS())
	default:
		return false
	}
	for _, d := range strings.Fields(defaults[op]) {
		if name, is, _ := strings.Cut(d, "="); name == a.GetName() {
			return is == value
		}
	}
	return false
}

// Defaults returns the default attributes of each operator, as words NAME=VALUE. Defaults that changed
// between opsets are left out.
func Defaults() map[string]string { return defaults }

// defaults are the defaults of attributes that are numbers or words.
var defaults = map[string]string{
	"Add":                       "broadcast=0",
	"AffineGrid":                "align_corners=0",
	"And":                       "broadcast=0",
	"ArgMax":                    "axis=0 keepdims=1 select_last_index=0",
	"ArgMin":                    "axis=0 keepdims=1 select_last_index=0",
	"Attention":                 "is_causal=0 left_window_size=-1 qk_matmul_output_mode=0 right_window_size=-1 softcap=0",
	"AveragePool":               "auto_pad=NOTSET ceil_mode=0 count_include_pad=0",
	"BatchNormalization":        "epsilon=9.99999975e-06 is_test=0 momentum=0.899999976 spatial=1 training_mode=0",
	"BlackmanWindow":            "output_datatype=1 periodic=1",
	"Cast":                      "round_mode=up saturate=1",
	"CastLike":                  "round_mode=up saturate=1",
	"CausalConvWithState":       "activation=none",
	"Celu":                      "alpha=1",
	"Clip":                      "max=3.40282347e+38 min=-3.40282347e+38",
	"ConcatFromSequence":        "new_axis=0",
	"Conv":                      "auto_pad=NOTSET group=1",
	"ConvInteger":               "auto_pad=NOTSET group=1",
	"ConvTranspose":             "auto_pad=NOTSET group=1",
	"CumProd":                   "exclusive=0 reverse=0",
	"CumSum":                    "exclusive=0 reverse=0",
	"DFT":                       "axis=1 inverse=0 onesided=0",
	"DeformConv":                "group=1 offset_group=1",
	"DepthToSpace":              "mode=DCR",
	"DequantizeLinear":          "axis=1 block_size=0 output_dtype=0",
	"Div":                       "broadcast=0",
	"Dropout":                   "is_test=0 ratio=0.5",
	"Elu":                       "alpha=1",
	"Equal":                     "broadcast=0",
	"EyeLike":                   "k=0",
	"Flatten":                   "axis=1",
	"GRU":                       "layout=0 linear_before_reset=0 output_sequence=0",
	"Gather":                    "axis=0",
	"GatherElements":            "axis=0",
	"GatherND":                  "batch_dims=0",
	"Gelu":                      "approximate=none",
	"Gemm":                      "alpha=1 beta=1 broadcast=0 transA=0 transB=0",
	"GlobalLpPool":              "p=2",
	"Greater":                   "broadcast=0",
	"GridSample":                "align_corners=0 padding_mode=zeros",
	"GroupNormalization":        "epsilon=9.99999975e-06 stash_type=1",
	"HammingWindow":             "output_datatype=1 periodic=1",
	"HannWindow":                "output_datatype=1 periodic=1",
	"HardSigmoid":               "alpha=0.200000003 beta=0.5",
	"ImageDecoder":              "pixel_format=RGB",
	"InstanceNormalization":     "epsilon=9.99999975e-06",
	"IsInf":                     "detect_negative=1 detect_positive=1",
	"LRN":                       "alpha=9.99999975e-05 beta=0.75 bias=1",
	"LSTM":                      "direction=forward input_forget=0 layout=0 output_sequence=0",
	"LayerNormalization":        "axis=-1 epsilon=9.99999975e-06 stash_type=1",
	"LeakyRelu":                 "alpha=0.00999999978",
	"Less":                      "broadcast=0",
	"LinearAttention":           "chunk_size=64 scale=0 update_rule=gated_delta",
	"LpNormalization":           "axis=-1 p=2",
	"LpPool":                    "auto_pad=NOTSET ceil_mode=0 p=2",
	"MaxPool":                   "auto_pad=NOTSET ceil_mode=0 storage_order=0",
	"MaxRoiPool":                "spatial_scale=1",
	"MelWeightMatrix":           "output_datatype=1",
	"Mod":                       "fmod=0",
	"Mul":                       "broadcast=0",
	"Multinomial":               "dtype=6 sample_size=1",
	"NegativeLogLikelihoodLoss": "reduction=mean",
	"NonMaxSuppression":         "center_point_box=0",
	"OneHot":                    "axis=-1",
	"Or":                        "broadcast=0",
	"Pad":                       "mode=constant value=0",
	"Pow":                       "broadcast=0",
	"QLinearConv":               "auto_pad=NOTSET group=1",
	"QuantizeLinear":            "axis=1 block_size=0 output_dtype=0 precision=0 saturate=1",
	"RMSNormalization":          "axis=-1 epsilon=9.99999975e-06 stash_type=1",
	"RNN":                       "direction=forward layout=0 output_sequence=0",
	"RandomNormal":              "dtype=1 mean=0 scale=1",
	"RandomNormalLike":          "mean=0 scale=1",
	"RandomUniform":             "dtype=1 high=1 low=0",
	"RandomUniformLike":         "high=1 low=0",
	"Range":                     "stash_type=1",
	"ReduceL1":                  "keepdims=1 noop_with_empty_axes=0",
	"ReduceL2":                  "keepdims=1 noop_with_empty_axes=0",
	"ReduceLogSum":              "keepdims=1 noop_with_empty_axes=0",
	"ReduceLogSumExp":           "keepdims=1 noop_with_empty_axes=0",
	"ReduceMax":                 "keepdims=1 noop_with_empty_axes=0",
	"ReduceMean":                "keepdims=1 noop_with_empty_axes=0",
	"ReduceMin":                 "keepdims=1 noop_with_empty_axes=0",
	"ReduceProd":                "keepdims=1 noop_with_empty_axes=0",
	"ReduceSum":                 "keepdims=1 noop_with_empty_axes=0",
	"ReduceSumSquare":           "keepdims=1 noop_with_empty_axes=0",
	"Reshape":                   "allowzero=0",
	"Resize":                    "antialias=0 coordinate_transformation_mode=half_pixel cubic_coeff_a=-0.75 exclude_outside=0 extrapolation_value=0 keep_aspect_ratio_policy=stretch mode=nearest nearest_mode=round_prefer_floor",
	"ReverseSequence":           "batch_axis=1 time_axis=0",
	"RoiAlign":                  "coordinate_transformation_mode=half_pixel mode=avg output_height=1 output_width=1 sampling_ratio=0 spatial_scale=1",
	"RotaryEmbedding":           "interleaved=0 rotary_embedding_dim=0",
	"STFT":                      "onesided=1",
	"Scatter":                   "axis=0",
	"ScatterElements":           "axis=0 reduction=none",
	"ScatterND":                 "reduction=none",
	"Shape":                     "start=0",
	"Shrink":                    "bias=0 lambd=0.5",
	"SoftmaxCrossEntropyLoss":   "reduction=mean",
	"SpaceToDepth":              "mode=DCR",
	"Split":                     "axis=0",
	"SplitToSequence":           "axis=0 keepdims=1",
	"StringNormalizer":          "case_change_action=NONE is_case_sensitive=0",
	"Sub":                       "broadcast=0",
	"SwiGLU":                    "alpha=1",
	"Swish":                     "alpha=1",
	"TensorScatter":             "axis=-2 mode=linear",
	"ThresholdedRelu":           "alpha=1",
	"TopK":                      "axis=-1 largest=1 sorted=1",
	"Trilu":                     "upper=1",
	"Unique":                    "sorted=1",
	"Upsample":                  "mode=nearest",
	"Xor":                       "broadcast=0",
}
