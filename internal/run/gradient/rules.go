package gradient

import (
	"math"
)

// rules has the rules of operators, by their names; those of com.microsoft by domain:name.
var rules = map[string]rule{
	"Add":  sum(one),
	"Sum":  sum(one),
	"Mean": sum(func(n *node, _ int) float32 { return 1 / float32(len(n.In)) }),
	"Sub":  sum(func(_ *node, i int) float32 { return float32(1 - 2*i) }),
	"Mul":  multiply,
	"Div":  pair(func(_, b, y float32) (float32, float32) { return 1 / b, -y / b }),
	"Pow":  power,
	"Max":  extreme,
	"Min":  extreme,

	"Where": choose,
	"PRelu": parametric,
	"Clip":  clip,

	"Abs":        each(func(x, _ float64) float64 { return step(x) - step(-x) }),
	"Acos":       each(func(x, _ float64) float64 { return -1 / math.Sqrt(1-x*x) }),
	"Asin":       each(func(x, _ float64) float64 { return 1 / math.Sqrt(1-x*x) }),
	"Atan":       each(func(x, _ float64) float64 { return 1 / (1 + x*x) }),
	"Cos":        each(func(x, _ float64) float64 { return -math.Sin(x) }),
	"Cosh":       each(func(x, _ float64) float64 { return math.Sinh(x) }),
	"Erf":        erf,
	"Exp":        each(func(_, y float64) float64 { return y }),
	"Log":        each(func(x, _ float64) float64 { return 1 / x }),
	"Neg":        each(func(_, _ float64) float64 { return -1 }),
	"Reciprocal": each(func(_, y float64) float64 { return -y * y }),
	"Relu":       where(func(x, _ float32) bool { return x > 0 }),
	"Sigmoid":    each(func(_, y float64) float64 { return y * (1 - y) }),
	"Sin":        each(func(x, _ float64) float64 { return math.Cos(x) }),
	"Sinh":       each(func(x, _ float64) float64 { return math.Cosh(x) }),
	"Softplus":   each(func(x, _ float64) float64 { return logistic(x) }),
	"Softsign":   each(func(x, _ float64) float64 { return 1 / ((1 + math.Abs(x)) * (1 + math.Abs(x))) }),
	"Sqrt":       each(func(_, y float64) float64 { return 0.5 / y }),
	"Tan":        each(func(_, y float64) float64 { return 1 + y*y }),
	"Tanh":       each(func(_, y float64) float64 { return 1 - y*y }),
	"Mish": each(func(x, _ float64) float64 {
		t := math.Tanh(math.Log1p(math.Exp(x)))
		return t + x*(1-t*t)*logistic(x)
	}),
	"HardSwish": each(func(x, _ float64) float64 {
		switch {
		case x <= -3:
			return 0
		case x >= 3:
			return 1
		}
		return x/3 + 0.5
	}),
	"HardSigmoid": eachOf(hardSigmoid),
	"LeakyRelu": eachOf(func(n *node) slope {
		alpha := float64(n.Float("alpha", 0.01))
		return func(x, _ float64) float64 { return step(x) + (1-step(x))*alpha }
	}),
	"ThresholdedRelu": eachOf(func(n *node) slope {
		alpha := float64(n.Float("alpha", 1))
		return func(x, _ float64) float64 { return step(x - alpha) }
	}),
	"Elu": eachOf(func(n *node) slope {
		alpha := float64(n.Float("alpha", 1))
		return func(x, y float64) float64 {
			if x > 0 {
				return 1
			}
			return y + alpha
		}
	}),
	"Celu": eachOf(func(n *node) slope {
		alpha := float64(n.Float("alpha", 1))
		return func(x, _ float64) float64 { return math.Exp(min(x, 0) / alpha) }
	}),
	"Selu": eachOf(func(n *node) slope {
		alpha, gamma := float64(n.Float("alpha", seluAlpha)), float64(n.Float("gamma", seluGamma))
		return func(x, y float64) float64 {
			if x > 0 {
				return gamma
			}
			return y + alpha*gamma
		}
	}),
	"Swish":                   eachOf(swish),
	"com.microsoft:QuickGelu": eachOf(func(n *node) slope { return swishOf(float64(n.Float("alpha", 1.702))) }),

	"Gelu":                   gelu(func(n *node) bool { return n.Text("approximate", "none") == "tanh" }),
	"com.microsoft:Gelu":     gelu(func(*node) bool { return false }),
	"com.microsoft:BiasGelu": gelu(func(*node) bool { return false }),
	"com.microsoft:FastGelu": gelu(func(*node) bool { return true }),

	"MatMul":                    matMul,
	"com.microsoft:FusedMatMul": fusedMatMul,
	"Gemm":                      gemm,
	"Conv":                      convolution,
	"ConvTranspose":             transposed,

	"Softmax":    softmax(false),
	"LogSoftmax": softmax(true),

	"LayerNormalization":           normalization(true),
	"RMSNormalization":             normalization(false),
	"SimplifiedLayerNormalization": normalization(false),
	"BatchNormalization":           batchNormalization,
	"InstanceNormalization":        instanceNormalization,

	"com.microsoft:SkipLayerNormalization":           skipNormalization(true),
	"com.microsoft:SkipSimplifiedLayerNormalization": skipNormalization(false),

	"ReduceSum":       reduction(func(_, _ float64, _ int) float64 { return 1 }),
	"ReduceMean":      reduction(func(_, _ float64, n int) float64 { return 1 / float64(n) }),
	"ReduceSumSquare": reduction(func(x, _ float64, _ int) float64 { return 2 * x }),
	"ReduceL1":        reduction(func(x, _ float64, _ int) float64 { return step(x) - step(-x) }),
	"ReduceL2": reduction(func(x, y float64, _ int) float64 {
		if y == 0 {
			return 0
		}
		return x / y
	}),
	"ReduceLogSumExp":   reduction(func(x, y float64, _ int) float64 { return math.Exp(x - y) }),
	"ReduceMax":         reduction(sameAs),
	"ReduceMin":         reduction(sameAs),
	"GlobalAveragePool": globalPool(func(_, _ float64, n int) float64 { return 1 / float64(n) }),
	"GlobalMaxPool":     globalPool(sameAs),
	"AveragePool":       averagePool,
	"MaxPool":           maxPool,
	"Resize":            resize,

	"Identity":  same,
	"Dropout":   same,
	"Cast":      same,
	"CastLike":  same,
	"Reshape":   same,
	"Flatten":   same,
	"Squeeze":   same,
	"Unsqueeze": same,

	"Transpose":       selection,
	"Concat":          selection,
	"Split":           selection,
	"Slice":           selection,
	"Gather":          selection,
	"GatherElements":  selection,
	"GatherND":        selection,
	"ScatterElements": replacement,
	"ScatterND":       replacement,
	"Expand":          selection,
	"Tile":            selection,
	"Pad":             selection,
	"Trilu":           selection,
	"Compress":        selection,
	"ReverseSequence": selection,
	"DepthToSpace":    selection,
	"SpaceToDepth":    selection,
	"CenterCropPad":   selection,
}

// flat are operators whose outputs have no gradient: their outputs are numbers of another kind, or do not
// change with small changes of their inputs.
var flat = map[string]bool{
	"Shape": true, "Size": true, "ArgMax": true, "ArgMin": true, "Equal": true, "Less": true, "LessOrEqual": true, "Greater": true,
	"GreaterOrEqual": true, "And": true, "Or": true, "Xor": true, "Not": true, "IsNaN": true, "IsInf": true, "NonZero": true, "Sign": true,
	"Floor": true, "Ceil": true, "Round": true, "ConstantOfShape": true, "EyeLike": true, "Range": true, "OneHot": true, "Hardmax": true,
}

// severalOutputs are operators whose rules know of other outputs than the first.
var severalOutputs = map[string]bool{
	"Split": true, "com.microsoft:SkipLayerNormalization": true, "com.microsoft:SkipSimplifiedLayerNormalization": true,
}

func swish(n *node) slope { return swishOf(float64(n.Float("alpha", 1))) }

// swishOf is the slope of x·sigmoid(alpha·x).
func swishOf(alpha float64) slope {
	return func(x, _ float64) float64 {
		s := logistic(alpha * x)
		return s + alpha*x*s*(1-s)
	}
}
