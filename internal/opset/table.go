package opset

import (
	"iter"
	"maps"
	"slices"
)

// A history lists the opsets that published a definition of an operator, in ascending
// order. A step without an adapter is compatible: existing nodes stay unchanged.
type history struct {
	versions []int64
	adapters map[int64]adapter
}

// An adapter rewrites a node from the definition before a step to the definition after it.
type adapter func(*edit) error

func since(versions ...int64) history {
	return history{versions: versions, adapters: map[int64]adapter{}}
}

// adapt sets the adapter for the step to the given version.
func (h history) adapt(version int64, a adapter) history {
	h.adapters[version] = a
	return h
}

// at returns the version whose definition is in force at an opset, or 0.
func (h history) at(opset int64) int64 {
	var in int64
	for _, v := range h.versions {
		if v <= opset {
			in = v
		}
	}
	return in
}

// A Step is one change of one operator.
type Step struct {
	Op      string `json:"op"`
	Version int64  `json:"version"`
	Adapted bool   `json:"adapted"` // nodes are rewritten; false: compatible, or the operator's first version
}

// Steps yields all versions of all operators.
func Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for _, op := range slices.Sorted(maps.Keys(operators)) {
			h := operators[op]
			for _, v := range h.versions {
				if !yield(Step{Op: op, Version: v, Adapted: h.adapters[v] != nil}) {
					return
				}
			}
		}
	}
}

// operators has the history of every operator of ai.onnx. Some steps are compatible
// although they may not look so:
//
//   - AveragePool 7: it can count the padding, but did not before.
//   - AveragePool, MaxPool 22 with ceil_mode: windows that start in the padding
//     were never intended; ONNX and ONNX Runtime skip them at any opset.
//   - AveragePool 11 and 19, ConvTranspose 11: formulas for auto_pad corrected,
//     behavior kept.
//   - Cast, CastLike 24: the table of special values corrected (infinity
//     saturates in the fnuz types too), behavior kept.
//   - Mod 13: the text no longer has fmod=1 with integers, but the types do; opset 28
//     has it again.
//   - OneHot 11: negative indices, which 9 forbids, count from the end.
//   - QuantizeLinear, DequantizeLinear 13: a scale with one element is per tensor
//     for any axis.
//   - Range 27: an intermediate type for float16 and bfloat16, which are new there.
var operators = map[string]history{
	"Abs":                       since(1, 6, 13).adapt(6, withoutConsumed),
	"Acos":                      since(7, 22),
	"Acosh":                     since(9, 22),
	"Add":                       since(1, 6, 7, 13, 14).adapt(6, withoutConsumed).adapt(7, broadcastAtAxis),
	"AffineGrid":                since(20),
	"And":                       since(1, 7).adapt(7, broadcastAtAxis),
	"ArgMax":                    since(1, 11, 12, 13),
	"ArgMin":                    since(1, 11, 12, 13),
	"Asin":                      since(7, 22),
	"Asinh":                     since(9, 22),
	"Atan":                      since(7, 22),
	"Atanh":                     since(9, 22),
	"Attention":                 since(23, 24, 25),
	"AveragePool":               since(1, 7, 10, 11, 19, 22),
	"BatchNormalization":        since(1, 6, 7, 9, 14, 15).adapt(6, withoutConsumed).adapt(7, testMode).adapt(9, perChannel).adapt(14, trainingMode),
	"Bernoulli":                 since(15, 22),
	"BitCast":                   since(26),
	"BitShift":                  since(11, 28),
	"BitwiseAnd":                since(18),
	"BitwiseNot":                since(18),
	"BitwiseOr":                 since(18),
	"BitwiseXor":                since(18),
	"BlackmanWindow":            since(17),
	"Cast":                      since(1, 6, 9, 13, 19, 21, 23, 24, 25, 28).adapt(6, castToNumber).adapt(9, castToNumber),
	"CastLike":                  since(15, 19, 21, 23, 24, 25),
	"CausalConvWithState":       since(27),
	"Ceil":                      since(1, 6, 13).adapt(6, withoutConsumed),
	"Celu":                      since(12, 28),
	"CenterCropPad":             since(18),
	"Clip":                      since(1, 6, 11, 12, 13).adapt(6, withoutConsumed).adapt(11, clipBounds),
	"Col2Im":                    since(18),
	"Compress":                  since(9, 11, 28),
	"Concat":                    since(1, 4, 11, 13).adapt(4, concatAxis),
	"ConcatFromSequence":        since(11),
	"Constant":                  since(1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
	"ConstantOfShape":           since(9, 20, 21, 23, 24, 25),
	"Conv":                      since(1, 11, 22),
	"ConvInteger":               since(10),
	"ConvTranspose":             since(1, 11, 22),
	"Cos":                       since(7, 22),
	"Cosh":                      since(9, 22),
	"CumProd":                   since(26),
	"CumSum":                    since(11, 14),
	"DFT":                       since(17, 20).adapt(20, axisInput),
	"DeformConv":                since(19, 22),
	"DepthToSpace":              since(1, 11, 13, 28),
	"DequantizeLinear":          since(10, 13, 19, 21, 23, 24, 25, 28),
	"Det":                       since(11, 22),
	"Div":                       since(1, 6, 7, 13, 14).adapt(6, withoutConsumed).adapt(7, broadcastAtAxis),
	"Dropout":                   since(1, 6, 7, 10, 12, 13, 22).adapt(6, withoutConsumed).adapt(7, without("is_test")).adapt(10, dropMask).adapt(12, dropoutRatio),
	"DynamicQuantizeLinear":     since(11),
	"Einsum":                    since(12, 28),
	"Elu":                       since(1, 6, 22).adapt(6, withoutConsumed),
	"Equal":                     since(1, 7, 11, 13, 19).adapt(7, broadcastAtAxis),
	"Erf":                       since(9, 13).adapt(13, floatsOnly),
	"Exp":                       since(1, 6, 13).adapt(6, withoutConsumed),
	"Expand":                    since(8, 13),
	"EyeLike":                   since(9, 22),
	"Flatten":                   since(1, 9, 11, 13, 21, 23, 24, 25),
	"Floor":                     since(1, 6, 13).adapt(6, withoutConsumed),
	"GRU":                       since(1, 3, 7, 14, 22).adapt(3, forwardSpelled).adapt(7, recurrent),
	"Gather":                    since(1, 11, 13),
	"GatherElements":            since(11, 13),
	"GatherND":                  since(11, 12, 13),
	"Gelu":                      since(20),
	"Gemm":                      since(1, 6, 7, 9, 11, 13).adapt(7, without("broadcast")),
	"GlobalAveragePool":         since(1, 22),
	"GlobalLpPool":              since(1, 2, 22).adapt(2, wholePower),
	"GlobalMaxPool":             since(1, 22),
	"Greater":                   since(1, 7, 9, 13).adapt(7, broadcastAtAxis),
	"GreaterOrEqual":            since(12, 16),
	"GridSample":                since(16, 20, 22).adapt(20, gridModes),
	"GroupNormalization":        since(18, 21).adapt(21, instanceNormalization),
	"HammingWindow":             since(17),
	"HannWindow":                since(17),
	"HardSigmoid":               since(1, 6, 22).adapt(6, withoutConsumed),
	"HardSwish":                 since(14, 22),
	"Hardmax":                   since(1, 11, 13).adapt(13, oneAxis),
	"Identity":                  since(1, 13, 14, 16, 19, 21, 23, 24, 25),
	"If":                        since(1, 11, 13, 16, 19, 21, 23, 24, 25),
	"ImageDecoder":              since(20),
	"InstanceNormalization":     since(1, 6, 22).adapt(6, withoutConsumed),
	"IsInf":                     since(10, 20),
	"IsNaN":                     since(9, 13, 20),
	"LRN":                       since(1, 13),
	"LSTM":                      since(1, 7, 14, 22).adapt(7, recurrent),
	"LayerNormalization":        since(17),
	"LeakyRelu":                 since(1, 6, 16).adapt(6, withoutConsumed),
	"Less":                      since(1, 7, 9, 13).adapt(7, broadcastAtAxis),
	"LessOrEqual":               since(12, 16),
	"LinearAttention":           since(27),
	"Log":                       since(1, 6, 13).adapt(6, withoutConsumed),
	"LogSoftmax":                since(1, 11, 13).adapt(13, oneAxis),
	"Loop":                      since(1, 11, 13, 16, 19, 21, 23, 24, 25),
	"LpNormalization":           since(1, 22),
	"LpPool":                    since(1, 2, 11, 18, 22).adapt(2, lpPoolKernel),
	"MatMul":                    since(1, 9, 13),
	"MatMulInteger":             since(10),
	"Max":                       since(1, 6, 8, 12, 13).adapt(6, withoutConsumed),
	"MaxPool":                   since(1, 8, 10, 11, 12, 22),
	"MaxRoiPool":                since(1, 22),
	"MaxUnpool":                 since(9, 11, 22),
	"Mean":                      since(1, 6, 8, 13).adapt(6, withoutConsumed),
	"MeanVarianceNormalization": since(9, 13),
	"MelWeightMatrix":           since(17),
	"Min":                       since(1, 6, 8, 12, 13).adapt(6, withoutConsumed),
	"Mish":                      since(18, 22),
	"Mod":                       since(10, 13, 28),
	"Mul":                       since(1, 6, 7, 13, 14).adapt(6, withoutConsumed).adapt(7, broadcastAtAxis),
	"Multinomial":               since(7, 22),
	"Neg":                       since(1, 6, 13).adapt(6, withoutConsumed),
	"NegativeLogLikelihoodLoss": since(12, 13, 22),
	"NonMaxSuppression":         since(10, 11),
	"NonZero":                   since(9, 13),
	"Not":                       since(1),
	"OneHot":                    since(9, 11, 28),
	"Optional":                  since(15, 28),
	"OptionalGetElement":        since(15, 18, 28),
	"OptionalHasElement":        since(15, 18, 28),
	"Or":                        since(1, 7).adapt(7, broadcastAtAxis),
	"PRelu":                     since(1, 6, 7, 9, 16).adapt(6, withoutConsumed).adapt(7, slopePerChannel),
	"Pad":                       since(1, 2, 11, 13, 18, 19, 21, 23, 24, 25).adapt(2, padsRenamed).adapt(11, padInputs),
	"Pow":                       since(1, 7, 12, 13, 15).adapt(7, broadcastAtAxis),
	"QLinearConv":               since(10),
	"QLinearMatMul":             since(10, 21),
	"QuantizeLinear":            since(10, 13, 19, 21, 23, 24, 25, 28),
	"RMSNormalization":          since(23),
	"RNN":                       since(1, 7, 14, 22).adapt(7, recurrent),
	"RandomNormal":              since(1, 22),
	"RandomNormalLike":          since(1, 22),
	"RandomUniform":             since(1, 22),
	"RandomUniformLike":         since(1, 22),
	"Range":                     since(11, 27),
	"Reciprocal":                since(1, 6, 13).adapt(6, withoutConsumed),
	"ReduceL1":                  since(1, 11, 13, 18).adapt(18, optionalInput("axes", 1)),
	"ReduceL2":                  since(1, 11, 13, 18).adapt(18, optionalInput("axes", 1)),
	"ReduceLogSum":              since(1, 11, 13, 18, 28).adapt(18, optionalInput("axes", 1)).adapt(28, floatsOnly),
	"ReduceLogSumExp":           since(1, 11, 13, 18, 28).adapt(18, optionalInput("axes", 1)).adapt(28, floatsOnly),
	"ReduceMax":                 since(1, 11, 12, 13, 18, 20).adapt(18, optionalInput("axes", 1)),
	"ReduceMean":                since(1, 11, 13, 18).adapt(18, optionalInput("axes", 1)),
	"ReduceMin":                 since(1, 11, 12, 13, 18, 20).adapt(18, optionalInput("axes", 1)),
	"ReduceProd":                since(1, 11, 13, 18).adapt(18, optionalInput("axes", 1)),
	"ReduceSum":                 since(1, 11, 13).adapt(13, optionalInput("axes", 1)),
	"ReduceSumSquare":           since(1, 11, 13, 18).adapt(18, optionalInput("axes", 1)),
	"RegexFullMatch":            since(20),
	"Relu":                      since(1, 6, 13, 14).adapt(6, withoutConsumed),
	"Reshape":                   since(1, 5, 13, 14, 19, 21, 23, 24, 25).adapt(5, reshapeInput),
	"Resize":                    since(10, 11, 13, 18, 19).adapt(11, resizeModes).adapt(13, resizeSizes),
	"ReverseSequence":           since(10, 28),
	"RoiAlign":                  since(10, 16, 22).adapt(16, wholePixels),
	"RotaryEmbedding":           since(23),
	"Round":                     since(11, 22),
	"STFT":                      since(17),
	"Scan":                      since(8, 9, 11, 16, 19, 21, 23, 24, 25).adapt(9, scanBatch),
	"Scatter":                   since(9, 11).adapt(11, scatterElements),
	"ScatterElements":           since(11, 13, 16, 18),
	"ScatterND":                 since(11, 13, 16, 18),
	"Selu":                      since(1, 6, 22).adapt(6, seluConstants),
	"SequenceAt":                since(11),
	"SequenceConstruct":         since(11),
	"SequenceEmpty":             since(11),
	"SequenceErase":             since(11),
	"SequenceInsert":            since(11),
	"SequenceLength":            since(11),
	"SequenceMap":               since(17),
	"Shape":                     since(1, 13, 15, 19, 21, 23, 24, 25),
	"Shrink":                    since(9),
	"Sigmoid":                   since(1, 6, 13).adapt(6, withoutConsumed),
	"Sign":                      since(9, 13),
	"Sin":                       since(7, 22),
	"Sinh":                      since(9, 22),
	"Size":                      since(1, 13, 19, 21, 23, 24, 25),
	"Slice":                     since(1, 10, 11, 13).adapt(10, sliceInputs),
	"Softmax":                   since(1, 11, 13).adapt(13, oneAxis),
	"SoftmaxCrossEntropyLoss":   since(12, 13),
	"Softplus":                  since(1, 22),
	"Softsign":                  since(1, 22),
	"SpaceToDepth":              since(1, 13, 28),
	"Split":                     since(1, 2, 11, 13, 18).adapt(2, splitSizes).adapt(13, optionalInput("split", 1)).adapt(18, countParts),
	"SplitToSequence":           since(11, 24),
	"Sqrt":                      since(1, 6, 13).adapt(6, withoutConsumed),
	"Squeeze":                   since(1, 11, 13, 21, 23, 24, 25).adapt(13, optionalInput("axes", 1)),
	"StringConcat":              since(20),
	"StringNormalizer":          since(10),
	"StringSplit":               since(20),
	"Sub":                       since(1, 6, 7, 13, 14).adapt(6, withoutConsumed).adapt(7, broadcastAtAxis),
	"Sum":                       since(1, 6, 8, 13).adapt(6, withoutConsumed),
	"SwiGLU":                    since(28),
	"Swish":                     since(24),
	"Tan":                       since(7, 22),
	"Tanh":                      since(1, 6, 13).adapt(6, withoutConsumed),
	"TensorScatter":             since(24),
	"TfIdfVectorizer":           since(9),
	"ThresholdedRelu":           since(10, 22),
	"Tile":                      since(1, 6, 13).adapt(6, tileRepeats),
	"TopK":                      since(1, 10, 11, 24).adapt(10, topKInput),
	"Transpose":                 since(1, 13, 21, 23, 24, 25),
	"Trilu":                     since(14),
	"Unique":                    since(11, 28),
	"Unsqueeze":                 since(1, 11, 13, 21, 23, 24, 25).adapt(13, requiredInputs("axes")),
	"Upsample":                  since(1, 7, 9, 10).adapt(7, upsampleScales).adapt(9, requiredInputs("scales")).adapt(10, upsampleToResize),
	"Where":                     since(9, 16),
	"Xor":                       since(1, 7).adapt(7, broadcastAtAxis),
}
