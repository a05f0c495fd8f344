package evaluate

import (
	"math"
	"strings"

	"onnxquant/internal/run/execute"
)

// operators lists the supported operators. It is filled by init because of an
// initialization cycle: If runs graphs.
var operators map[string]operator

func init() {
	operators = map[string]operator{
		// Computed by the arithmetic.
		"MatMul":  {2, nil, runMatMul},
		"Gemm":    {2, words("alpha beta transA transB"), runGemm},
		"Conv":    {2, words("auto_pad dilations group kernel_shape pads strides"), runConv},
		"MaxPool": {1, words("auto_pad ceil_mode dilations kernel_shape pads storage_order strides"), runMaxPool},
		"Add":     calculation(func(a, b int64) int64 { return a + b }),
		"Sub":     calculation(func(a, b int64) int64 { return a - b }),
		"Mul":     calculation(func(a, b int64) int64 { return a * b }),
		"Div":     calculation(func(a, b int64) int64 { return a / b }),
		"Abs":     function(),
		"Ceil":    function(),
		"Cos":     function(),
		"Exp":     function(),
		"Floor":   function(),
		"Log":     function(),
		"Neg":     function(),
		"Relu":    function(),
		"Sigmoid": function(),
		"Sin":     function(),
		"Sqrt":    function(),
		"Tanh":    function(),

		// Composed of the above.
		"ConvTranspose":      {2, words("auto_pad dilations group kernel_shape output_padding pads strides"), runConvTranspose},
		"BatchNormalization": {5, words("epsilon momentum spatial training_mode"), runBatchNormalization},
		"LayerNormalization": {2, words("axis epsilon stash_type"), runLayerNormalization},
		"Softmax":            {1, words("axis"), runSoftmax},

		// Computed here.
		"Erf":               {1, nil, mapped(math.Erf)},
		"Reciprocal":        {1, nil, mapped(func(x float64) float64 { return 1 / x })},
		"Round":             {1, nil, mapped(math.RoundToEven)},
		"LeakyRelu":         {1, words("alpha"), runLeakyRelu},
		"Clip":              {1, words("min max"), runClip},
		"Pow":               {2, nil, runPow},
		"Min":               {1, nil, variadic(math.Min)},
		"Max":               {1, nil, variadic(math.Max)},
		"ReduceMean":        reduction(mean),
		"ReduceSum":         reduction(sum),
		"ReduceMax":         reduction(most),
		"GlobalAveragePool": {1, nil, runGlobalAveragePool},

		// Of com.microsoft.
		"MoE": {3, words("activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion swiglu_limit use_sparse_mixer"), runMoE},

		// Codes of activations.
		"QuantizeLinear":   {2, words("axis block_size output_dtype saturate"), runQuantizeLinear},
		"DequantizeLinear": {2, words("axis block_size"), runDequantizeLinear},

		// Comparisons and logic.
		"Equal":          comparison(func(c int) bool { return c == 0 }),
		"Less":           comparison(func(c int) bool { return c < 0 }),
		"LessOrEqual":    comparison(func(c int) bool { return c == 0 || c < 0 }),
		"Greater":        comparison(func(c int) bool { return c > 0 }),
		"GreaterOrEqual": comparison(func(c int) bool { return c >= 0 }),
		"And":            {2, nil, logic(func(a, b int64) int64 { return a & b })},
		"Or":             {2, nil, logic(func(a, b int64) int64 { return a | b })},
		"Not":            {1, nil, runNot},
		"Where":          {3, nil, runWhere},

		// Move elements.
		"Identity":        {1, nil, runSame},
		"Dropout":         {1, words("ratio seed"), runSame},
		"Constant":        {0, words("value value_int value_ints value_float value_floats"), runConstant},
		"ConstantOfShape": {1, words("value"), runConstantOfShape},
		"Cast":            {1, words("to saturate round_mode"), runCast},
		"Concat":          {1, words("axis"), runConcat},
		"DepthToSpace":    {1, words("blocksize mode"), runDepthToSpace},
		"Expand":          {2, nil, runExpand},
		"Flatten":         {1, words("axis"), runFlatten},
		"Gather":          {2, words("axis"), runGather},
		"Pad":             {1, words("mode pads value"), runPad},
		"Range":           {3, nil, runRange},
		"Reshape":         {1, words("shape allowzero"), runReshape},
		"Shape":           {1, words("start end"), runShape},
		"Slice":           {1, words("starts ends axes"), runSlice},
		"Split":           {1, words("axis split num_outputs"), runSplit},
		"Squeeze":         {1, words("axes"), runSqueeze},
		"Transpose":       {1, words("perm"), runTranspose},
		"Unsqueeze":       {1, words("axes"), runUnsqueeze},
		"If":              {1, words("then_branch else_branch"), runIf},
	}
}

// contrib are the operators that com.microsoft has, under the same name and meaning if ONNX has them, too.
var contrib = map[string]bool{"QuantizeLinear": true, "DequantizeLinear": true, "MoE": true}

func words(list string) []string { return strings.Fields(list) }

// calculation is a binary operator: of the arithmetic on floats, ints on integers.
func calculation(ints func(a, b int64) int64) operator {
	return operator{2, nil, func(c *call) ([]*execute.Tensor, error) { return oneOutput(c.calculate(ints)) }}
}

// function is a unary elementwise operator of the arithmetic.
func function() operator {
	return operator{1, nil, func(c *call) ([]*execute.Tensor, error) {
		return oneOutput(c.function(c.node.GetOpType(), c.in[0]))
	}}
}

func reduction(f func(x []float64) float64) operator {
	return operator{1, words("axes keepdims noop_with_empty_axes"), func(c *call) ([]*execute.Tensor, error) { return oneOutput(c.reduce(f)) }}
}
