package opset

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/testing/graphtext"
)

func TestAdapters(t *testing.T) {
	cases := []struct {
		name          string
		from, to      int64
		inputs        string
		before, after string
	}{
		{"squeeze", 11, 13, "x", `y = Squeeze<axes=[0,-1]>(x)`, `y = Squeeze(x, [0 -1])`},
		{"squeeze all", 11, 13, "x", `y = Squeeze(x)`, `y = Squeeze(x)`},
		{"unsqueeze", 7, 25, "x", `y = Unsqueeze<axes=[1]>(x)`, `y = Unsqueeze(x, [1])`},
		{"reduce sum", 11, 13, "x", `y = ReduceSum<axes=[1], keepdims=0>(x)`, `y = ReduceSum<keepdims=0>(x, [1])`},
		{"reduce sum all", 11, 13, "x", `y = ReduceSum(x)`, `y = ReduceSum(x)`},
		{"reduce mean waits for 18", 11, 17, "x", `y = ReduceMean<axes=[1]>(x)`, `y = ReduceMean<axes=[1]>(x)`},
		{"reduce mean", 11, 18, "x", `y = ReduceMean<axes=[1]>(x)`, `y = ReduceMean(x, [1])`},
		{"equal constants are one", 11, 18, "x", `
			h = ReduceMean<axes=[1]>(x)
			y = ReduceSum<axes=[1]>(h)`, `
			h = ReduceMean(x, [1])
			y = ReduceSum(h, [1])`},

		{"split sizes", 11, 18, "x", `y, z = Split<axis=1, split=[3,5]>(x)`, `y, z = Split<axis=1>(x, [3 5])`},
		{"split equally", 11, 18, "x", `y, z = Split(x)`, `y, z = Split<num_outputs=2>(x)`},
		{"split equally, before 18", 11, 17, "x", `y, z = Split(x)`, `y, z = Split(x)`},

		{"slice", 9, 13, "x", `y = Slice<axes=[1], starts=[0], ends=[2]>(x)`, `y = Slice(x, [0], [2], [1])`},
		{"slice with empty axes", 9, 13, "x", `y = Slice<axes=[], starts=[0], ends=[2]>(x)`, `y = Slice(x, [0], [2])`},
		{"slice all axes", 9, 13, "x", `y = Slice<starts=[0,1], ends=[2,-1]>(x)`, `y = Slice(x, [0 1], [2 -1])`},
		{"topk", 9, 24, "x", `y, i = TopK<axis=-1, k=3>(x)`, `y, i = TopK<axis=-1>(x, [3])`},
		{"scatter", 9, 18, "x i u", `y = Scatter<axis=1>(x, i, u)`, `y = ScatterElements<axis=1>(x, i, u)`},

		{"clip", 7, 13, "x:float", `y = Clip<min=-0.5, max=6.0>(x)`, `y = Clip(x, -0.5, 6.0)`},
		{"clip below", 7, 13, "x:float", `y = Clip<min=-0.5>(x)`, `y = Clip(x, -0.5)`},
		{"clip above", 7, 13, "x:float", `y = Clip<max=6.0>(x)`, `y = Clip(x, "", 6.0)`},
		{"clip nothing", 7, 13, "x:float", `y = Clip(x)`, `y = Clip(x)`},
		{"clip to all of float32", 7, 13, "x:float", `y = Clip<min=-3.4028234663852886e+38, max=3.4028234663852886e+38>(x)`, `y = Clip(x)`},
		{"clip to nothing", 7, 13, "x:float", `y = Clip<min=3.4028234663852886e+38>(x)`, `y = Clip(x, 3.4028235e+38)`},
		{"clip float16", 7, 13, "x:float16", `y = Clip<min=-0.5>(x)`, `y = Clip(x, 0xb800:float16)`},
		{"clip double", 7, 13, "x:double", `y = Clip<max=0.5>(x)`, `y = Clip(x, "", 0.5:double)`},
		{"clip of a type found upstream", 7, 13, "x:float w:float16", `
			h = MatMul(w, x)
			k = Relu(h)
			y = Clip<min=0.5>(k)`, `
			h = MatMul(w, x)
			k = Relu(h)
			y = Clip(k, 0x3800:float16)`},
		{"clip of unknown type", 7, 15, "x", `y = Clip<min=0.5>(x)`, `
			y_CastLike~2 = CastLike(0.5, x)
			y = Clip(x, y_CastLike~2)`},

		{"pad", 10, 13, "x:float", `y = Pad<pads=[0,1,0,2], value=1.5>(x)`, `y = Pad(x, [0 1 0 2], 1.5)`},
		{"pad zeros", 10, 13, "x", `y = Pad<pads=[0,-1], value=0.0>(x)`, `y = Pad(x, [0 -1])`},
		{"pad edges", 10, 13, "x", `y = Pad<mode="edge", pads=[0,1], value=1.5>(x)`, `y = Pad<mode="edge">(x, [0 1])`},

		{"dropout", 7, 22, "x", `y = Dropout<ratio=0.25>(x)`, `y = Dropout(x, 0.25)`},
		{"dropout, default", 7, 22, "x", `y = Dropout(x)`, `y = Dropout(x)`},
		{"dropout with an idle mask", 7, 22, "x", `y, m = Dropout(x)`, `y = Dropout(x)`},
		{"dropout with an unnamed mask", 10, 22, "x", `y, "" = Dropout(x)`, `y = Dropout(x)`},

		{"softmax, last axis", 11, 13, "x", `y = Softmax<axis=-1>(x)`, `y = Softmax<axis=-1>(x)`},
		{"softmax, default axis is the last", 7, 13, "x:float[2,3]", `y = Softmax(x)`, `y = Softmax<axis=-1>(x)`},
		{"softmax, last axis found upstream", 11, 13, "x:float[2,3,4] w:float[4,5]", `
			h = MatMul(x, w)
			k = Add(h, h)
			y = Softmax<axis=2>(k)`, `
			h = MatMul(x, w)
			k = Add(h, h)
			y = Softmax<axis=-1>(k)`},
		{"softmax, last axis under a mask", 11, 13, "q k m:float[2,7] t:int64[2,3]", `
			a = Transpose<perm=[0,2,1,3]>(q)
			b = Transpose<perm=[0,2,3,1]>(k)
			s = MatMul(a, b)
			n = Unsqueeze<axes=[1,2]>(m)
			g = Gather(n, t)
			u = Squeeze<axes=[0]>(g)
			h = Add(s, u)
			y = Softmax<axis=3>(h)`, `
			a = Transpose<perm=[0,2,1,3]>(q)
			b = Transpose<perm=[0,2,3,1]>(k)
			s = MatMul(a, b)
			n = Unsqueeze(m, [1 2])
			g = Gather(n, t)
			u = Squeeze(g, [0])
			h = Add(s, u)
			y = Softmax<axis=-1>(h)`},
		{"softmax, reshaped", 11, 13, "x shape:int64[3]", `
			h = Reshape(x, shape)
			y = Softmax<axis=2>(h)`, `
			h = Reshape(x, shape)
			y = Softmax<axis=-1>(h)`},
		{"softmax, rows", 11, 13, "x:float[2,3,4]", `y = Softmax(x)`, `
			y_Flatten~1 = Flatten<axis=1>(x)
			y_Shape~2 = Shape(x)
			y~3 = Softmax<axis=-1>(y_Flatten~1)
			y = Reshape(y~3, y_Shape~2)`},
		{"softmax, unknown rank", 11, 14, "x", `y = LogSoftmax<axis=2>(x)`, `
			y_Flatten~1 = Flatten<axis=2>(x)
			y_Shape~2 = Shape(x)
			y~3 = LogSoftmax<axis=-1>(y_Flatten~1)
			y = Reshape<allowzero=1>(y~3, y_Shape~2)`},

		{"upsample attributes", 7, 10, "x", `y = Upsample<mode="linear", scales=[1.0,2.0]>(x)`, `y = Resize<mode="linear">(x, [1.0 2.0])`},
		{"upsample", 9, 13, "x s", `y = Upsample(x, s)`, `y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, "", s)`},
		{"resize, linear", 10, 11, "x s", `y = Resize<mode="linear">(x, s)`, `y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(x, [], s)`},
		{"resize either way", 10, 13, "x s", `y = Resize(x, s)`, `
			y_Max~2 = Max(s, 1.0)
			y_Resize~3 = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, "", y_Max~2)
			y_Min~4 = Min(s, 1.0)
			y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="ceil">(y_Resize~3, "", y_Min~4)`},
		{"resize to sizes", 11, 13, "x roi none sizes", `y = Resize<mode="cubic">(x, roi, none, sizes)`, `y = Resize<mode="cubic">(x, roi, "", sizes)`},
		{"resize, coordinates removed", 11, 13, "x roi s", `y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor">(x, roi, s)`,
			`y = Resize<coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil">(x, roi, s)`},

		{"batchnorm", 7, 15, "x s b m v", `y = BatchNormalization<epsilon=0.001, spatial=1>(x, s, b, m, v)`, `y = BatchNormalization<epsilon=0.001>(x, s, b, m, v)`},
		{"batchnorm of elements", 7, 9, "x s b m v", `y = BatchNormalization<spatial=0>(x, s, b, m, v)`, `
			y_Flatten~1 = Flatten<axis=1>(x)
			y_Reshape~3 = Reshape(s, [-1])
			y_Reshape~4 = Reshape(b, [-1])
			y_Reshape~5 = Reshape(m, [-1])
			y_Reshape~6 = Reshape(v, [-1])
			y_Shape~7 = Shape(x)
			y~8 = BatchNormalization(y_Flatten~1, y_Reshape~3, y_Reshape~4, y_Reshape~5, y_Reshape~6)
			y = Reshape(y~8, y_Shape~7)`},
		{"batchnorm in training", 9, 15, "x s b m v", `y, rm, rv, sm, sv = BatchNormalization(x, s, b, m, v)`, `y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v)`},
		{"groupnorm", 18, 21, "x s b", `y = GroupNormalization<epsilon=0.01, num_groups=2>(x, s, b)`, `
			y_Reshape~2 = Reshape(x, [0 2 -1])
			y_Shape~3 = Shape(x)
			y~4 = InstanceNormalization<epsilon=0.01>(y_Reshape~2, s, b)
			y = Reshape<allowzero=1>(y~4, y_Shape~3)`},

		{"roialign", 10, 16, "x r b", `y = RoiAlign(x, r, b)`, `y = RoiAlign<coordinate_transformation_mode="output_half_pixel">(x, r, b)`},
		{"gridsample", 16, 22, "x g", `y = GridSample(x, g)`, `y = GridSample<mode="linear">(x, g)`},
		{"gridsample, bicubic", 16, 22, "x g", `y = GridSample<mode="bicubic">(x, g)`, `y = GridSample<mode="cubic">(x, g)`},
		{"gridsample, nearest", 16, 22, "x g", `y = GridSample<mode="nearest">(x, g)`, `y = GridSample<mode="nearest">(x, g)`},
		{"dft", 17, 20, "x", `y = DFT(x)`, `y = DFT(x, "", 1)`},
		{"dft with an axis and a length", 17, 20, "x n", `y = DFT<axis=2, inverse=1>(x, n)`, `y = DFT<inverse=1>(x, n, 2)`},
		{"erf", 9, 13, "x:float", `y = Erf(x)`, `y = Erf(x)`},

		{"affine", 7, 13, "x:float", `y = Affine<alpha=2.0, beta=0.5>(x)`, `
			y_Mul~2 = Mul(x, 2.0)
			y = Add(y_Mul~2, 0.5)`},
		{"affine, nothing", 7, 13, "x", `y = Affine(x)`, `y = Identity(x)`},
		{"scale", 7, 13, "x:float", `y = Scale<scale=2.0>(x)`, `
			y_Mul~2 = Mul(x, 2.0)
			y = Identity(y_Mul~2)`},
		{"scaled tanh", 7, 13, "x:float", `y = ScaledTanh<alpha=2.0, beta=0.5>(x)`, `
			y_Mul~3 = Mul(x, 0.5)
			y_Tanh~4 = Tanh(y_Mul~3)
			y = Mul(y_Tanh~4, 2.0)`},
		{"image scaler", 7, 13, "x:float16", `y = ImageScaler<scale=2.0, bias=[0.5,1.5]>(x)`, `
			y_Mul~2 = Mul(x, 0x4000:float16)
			y_Cast~4 = Cast<to=10>([0.5 1.5])
			y = Add(y_Mul~2, y_Cast~4)`},
		{"crop", 7, 13, "x", `y = Crop<border=[1,2,0,3]>(x)`, `y = Slice(x, [2 1], [-3 9223372036854775807], [2 3])`},
		{"crop to a size", 7, 13, "x", `y = Crop<border=[1,2,0,3], scale=[5,6]>(x)`, `y = Slice(x, [2 1], [7 7], [2 3])`},
		{"dynamic slice", 7, 13, "x s e a", `y = DynamicSlice(x, s, e, a)`, `y = Slice(x, s, e, a)`},
		{"mean and variance", 7, 9, "x", `y = MeanVarianceNormalization<across_channels=1>(x)`, `y = MeanVarianceNormalization<axes=[0,1,2,3]>(x)`},
		{"mean without variance", 7, 9, "x", `y = MeanVarianceNormalization<normalize_variance=0>(x)`, `
			y_ReduceMean~1 = ReduceMean<axes=[0,2,3]>(x)
			y = Sub(x, y_ReduceMean~1)`},
		{"layer normalization of runtimes", 11, 25, "x s", `y = LayerNormalization(x, s)`, `y = LayerNormalization(x, s)`},
		{"root mean square", 14, 21, "x:float16 s:float16", `y = SimplifiedLayerNormalization<epsilon=0.5>(x, s)`, `
			y_Cast~1 = Cast<to=1>(x)
			y_Pow~3 = Pow(y_Cast~1, 2.0)
			y_ReduceMean~4 = ReduceMean(y_Pow~3, [-1])
			y_Add~6 = Add(y_ReduceMean~4, 0.5)
			y_Sqrt~7 = Sqrt(y_Add~6)
			y_Div~8 = Div(y_Cast~1, y_Sqrt~7)
			y_Cast~9 = Cast<to=1>(s)
			y_Mul~10 = Mul(y_Div~8, y_Cast~9)
			y_Cast~11 = Cast<to=10>(y_Mul~10)
			y = Identity(y_Cast~11)`},
		{"root mean square, no casts", 20, 21, "x:float s:float", `y = SimplifiedLayerNormalization(x, s)`, `
			y_Pow~2 = Pow(x, 2.0)
			y_ReduceMean~4 = ReduceMean(y_Pow~2, [-1])
			y_Add~6 = Add(y_ReduceMean~4, 1e-05)
			y_Sqrt~7 = Sqrt(y_Add~6)
			y_Div~8 = Div(x, y_Sqrt~7)
			y_Mul~9 = Mul(y_Div~8, s)
			y = Identity(y_Mul~9)`},
		{"root mean square, double", 20, 21, "x:double s:double", `y = SimplifiedLayerNormalization<epsilon=0.5>(x, s)`, `
			y_Mul~1 = Mul(x, x)
			y_ReduceMean~3 = ReduceMean(y_Mul~1, [-1])
			y_Add~5 = Add(y_ReduceMean~3, 0.5:double)
			y_Sqrt~6 = Sqrt(y_Add~5)
			y_Div~7 = Div(x, y_Sqrt~6)
			y_Mul~8 = Mul(y_Div~7, s)
			y = Identity(y_Mul~8)`},

		{"consumed inputs", 1, 13, "x", `y = Relu<consumed_inputs=[0]>(x)`, `y = Relu(x)`},
		{"no broadcast", 6, 13, "a b", `y = Add<broadcast=0, axis=1>(a, b)`, `y = Add(a, b)`},
		{"broadcast to the last axes", 6, 13, "a b", `y = Add<broadcast=1>(a, b)`, `y = Add(a, b)`},
		{"broadcast of one number", 1, 13, "a b:float[1]", `y = Add<broadcast=1, axis=0, consumed_inputs=[0,0]>(a, b)`, `y = Add(a, b)`},
		{"broadcast at an axis", 6, 7, "a:float[2,3,4,5] b:float[3]", `y = Sub<broadcast=1, axis=1>(a, b)`, `
			y_Unsqueeze~1 = Unsqueeze<axes=[1,2]>(b)
			y = Sub(a, y_Unsqueeze~1)`},
		{"broadcast at the last axes by number", 6, 13, "a:float[2,3,4,5] b:float[4,5]", `y = Mul<broadcast=1, axis=2>(a, b)`, `y = Mul(a, b)`},
		{"broadcast at an axis from the end", 6, 13, "a b:float[3]", `y = Pow<broadcast=1, axis=-3>(a, b)`, `
			y_Unsqueeze~1 = Unsqueeze(b, [1 2])
			y = Pow(a, y_Unsqueeze~1)`},
		{"broadcast at an axis, unknown rank", 6, 13, "a b:float[3]", `y = Xor<broadcast=1, axis=1>(a, b)`, `
			y_Shape~1 = Shape(b)
			y_Shape~3 = Shape(a)
			y_Shape~4 = Shape(y_Shape~3)
			y_Sub~6 = Sub(y_Shape~4, [1])
			y_Shape~7 = Shape(y_Shape~1)
			y_Sub~8 = Sub(y_Sub~6, y_Shape~7)
			y_ConstantOfShape~9 = ConstantOfShape<value=[1]>(y_Sub~8)
			y_Concat~10 = Concat<axis=0>(y_Shape~1, y_ConstantOfShape~9)
			y_Reshape~11 = Reshape(b, y_Concat~10)
			y = Xor(a, y_Reshape~11)`},
		{"slope per channel", 6, 7, "x:float[2,3,4] s:float[3]", `y = PRelu(x, s)`, `
			y_Unsqueeze~1 = Unsqueeze<axes=[1]>(s)
			y = PRelu(x, y_Unsqueeze~1)`},
		{"slope behind a reshape", 4, 7, "x s:float[3]", `
			h = Reshape<shape=[2,3,-1]>(x)
			y = PRelu(h, s)`, `
			h = Reshape(x, [2 3 -1])
			y_Unsqueeze~2 = Unsqueeze<axes=[1]>(s)
			y = PRelu(h, y_Unsqueeze~2)`},
		{"one slope", 6, 7, "x s:float[1]", `y = PRelu(x, s)`, `y = PRelu(x, s)`},
		{"slope as it is now", 6, 7, "x s:float[3,1,1]", `y = PRelu(x, s)`, `y = PRelu(x, s)`},
		{"batchnorm, testing", 1, 7, "x s b m v", `y, rm = BatchNormalization<is_test=1, consumed_inputs=[0,0,0,1,1]>(x, s, b, m, v)`, `y = BatchNormalization(x, s, b, m, v)`},
		{"batchnorm, one output", 6, 7, "x s b m v", `y = BatchNormalization<is_test=0>(x, s, b, m, v)`, `y = BatchNormalization(x, s, b, m, v)`},
		{"batchnorm, training", 6, 14, "x s b m v", `y, rm, rv, sm, sv = BatchNormalization(x, s, b, m, v)`, `y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v)`},
		{"dropout, testing", 6, 7, "x", `y = Dropout<ratio=0.25, is_test=1>(x)`, `y = Dropout<ratio=0.25>(x)`},
		{"cast by name", 1, 13, "x", `y = Cast<to="float16">(x)`, `y = Cast<to=10>(x)`},
		{"cast by name, later", 7, 13, "x", `y = Cast<to="INT64">(x)`, `y = Cast<to=7>(x)`},
		{"type behind a cast by name", 1, 13, "x", `
			h = Cast<to="DOUBLE">(x)
			y = Clip<min=0.5>(h)`, `
			h = Cast<to=11>(x)
			y = Clip(h, 0.5:double)`},
		{"concat, default axis", 1, 13, "x", `y = Concat(x, x)`, `y = Concat<axis=1>(x, x)`},
		{"gru misspelled", 1, 14, "x w r", `y, h = GRU<direction="foward", hidden_size=2, output_sequence=1>(x, w, r)`, `y, h = GRU<hidden_size=2, direction="forward">(x, w, r)`},
		{"gemm", 1, 13, "a b c", `y = Gemm<broadcast=1, transB=1>(a, b, c)`, `y = Gemm<transB=1>(a, b, c)`},
		{"power", 1, 2, "x", `y = GlobalLpPool<p=3.0>(x)`, `y = GlobalLpPool<p=3>(x)`},
		{"power, default", 1, 2, "x", `y = LpPool<kernel_shape=[2]>(x)`, `y = LpPool<kernel_shape=[2], p=2>(x)`},
		{"paddings", 1, 13, "x", `y = Pad<paddings=[0,1]>(x)`, `y = Pad(x, [0 1])`},
		{"selu", 1, 7, "x", `y = Selu<gamma=2.0>(x)`, `y = Selu<gamma=2.0, alpha=1.6732>(x)`},
		{"split by an input", 1, 18, "x s", `y, z = Split<axis=1>(x, s)`, `
			y_Cast~1 = Cast<to=7>(s)
			y, z = Split<axis=1>(x, y_Cast~1)`},
		{"tile", 1, 7, "x:float[2,3] t:float[1] a:float[1]", `y = Tile(x, t, a)`, `
			y_Cast~3 = Cast<to=7>(a)
			y_Reshape~4 = Reshape(y_Cast~3, [1])
			y_Equal~5 = Equal([0 1], y_Reshape~4)
			y_Cast~6 = Cast<to=7>(y_Equal~5)
			y_Cast~7 = Cast<to=7>(t)
			y_Reshape~8 = Reshape(y_Cast~7, [1])
			y_Sub~9 = Sub(y_Reshape~8, [1])
			y_Mul~10 = Mul(y_Cast~6, y_Sub~9)
			y_Add~11 = Add(y_Mul~10, [1])
			y = Tile(x, y_Add~11)`},
		{"tile of unknown rank", 1, 9, "x t a", `y = Tile(x, t, a)`, `
			y_Shape~2 = Shape(x)
			y_Shape~3 = Shape(y_Shape~2)
			y_ConstantOfShape~4 = ConstantOfShape<value=[1]>(y_Shape~3)
			y_NonZero~5 = NonZero(y_ConstantOfShape~4)
			y_Squeeze~6 = Squeeze<axes=[0]>(y_NonZero~5)
			y_Cast~7 = Cast<to=7>(a)
			y_Reshape~8 = Reshape(y_Cast~7, [1])
			y_Equal~9 = Equal(y_Squeeze~6, y_Reshape~8)
			y_Cast~10 = Cast<to=7>(y_Equal~9)
			y_Cast~11 = Cast<to=7>(t)
			y_Reshape~12 = Reshape(y_Cast~11, [1])
			y_Sub~13 = Sub(y_Reshape~12, [1])
			y_Mul~14 = Mul(y_Cast~10, y_Sub~13)
			y_Add~15 = Add(y_Mul~14, [1])
			y = Tile(x, y_Add~15)`},
		{"upsample by two scales", 1, 10, "x", `y = Upsample<mode="bilinear", height_scale=2.0, width_scale=3.0>(x)`, `y = Resize<mode="linear">(x, [1.0 1.0 2.0 3.0])`},
		{"constant fill", 6, 13, "x", `y = ConstantFill<input_as_shape=1, value=0.5>(x)`, `
			y_Cast~1 = Cast<to=7>(x)
			y = ConstantOfShape<value=[0.5]>(y_Cast~1)`},
		{"constant fill like the input", 6, 13, "x", `y = ConstantFill<extra_shape=[2], dtype=7>(x)`, `
			y_Shape~1 = Shape(x)
			y_Concat~3 = Concat<axis=0>(y_Shape~1, [2])
			y~4 = ConstantOfShape<value=[0.0]>(y_Concat~3)
			y = Cast<to=7>(y~4)`},

		{"other domains", 11, 25, "x", `y = acme::Squeeze<axes=[0]>(x)`, `y = Squeeze<axes=[0]>(x)`},
		{"both spellings of the domain", 11, 25, "x", `y = ai.onnx::Squeeze<axes=[0]>(x)`, `y = Squeeze(x, [0])`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, c.from, c.inputs, c.before, "y")
			if err := Raise(m, c.to, freshNames()); err != nil {
				t.Fatal(err)
			}
			got := graphtext.Print(m.Graph.Node, m.Graph.Initializer)
			if want := graphtext.Unindent(c.after); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// Scan-8 becomes a scan over the batch of a scan over the sequence.
func TestScanBatch(t *testing.T) {
	body := graphtext.Model(t, 8, "s:float e:float", `
		h = Unsqueeze<axes=[0]>(e)
		t = Add(s, h)
		z = Identity(t)`, "t:float z:float").Graph
	for _, c := range []struct{ name, before, after string }{
		{"whole sequences", `y, ys = Scan<num_scan_inputs=1, directions=[1]>("", s0, x)`, `
y, ys = Scan<body={}, num_scan_inputs=2>(s0, x)
	(s_entry~3, e_entry~4) => (t_entry~1, z_entry~2)
	t_entry~1, z_entry~2 = Scan<num_scan_inputs=1, body={}, scan_input_directions=[1]>(s_entry~3, e_entry~4)
		(s, e) => (t, z)
		h = Unsqueeze(e, [0])
		t = Add(s, h)
		z = Identity(t)
`},
		{"lengths", `y, ys = Scan<num_scan_inputs=1>(l, s0, x)`, `
y, ys = Scan<body={}, num_scan_inputs=3>(s0, x, l)
	(s_entry~3, e_entry~4, length~5) => (t_entry~1, t_entry~1_Gather~21)
	t_entry~1_Shape~7 = Shape(e_entry~4)
	t_entry~1_Gather~8 = Gather<axis=0>(t_entry~1_Shape~7, [0])
	t_entry~1_Unsqueeze~9 = Unsqueeze(length~5, [0])
	t_entry~1_ConstantOfShape~10 = ConstantOfShape<value=[1]>(t_entry~1_Unsqueeze~9)
	t_entry~1_NonZero~11 = NonZero(t_entry~1_ConstantOfShape~10)
	t_entry~1_Squeeze~12 = Squeeze(t_entry~1_NonZero~11, [0])
	t_entry~1_Gather~13 = Gather<axis=0>(e_entry~4, t_entry~1_Squeeze~12)
	t_entry~1_ConstantOfShape~14 = ConstantOfShape<value=[1]>(t_entry~1_Gather~8)
	t_entry~1_NonZero~15 = NonZero(t_entry~1_ConstantOfShape~14)
	t_entry~1_Squeeze~16 = Squeeze(t_entry~1_NonZero~15, [0])
	t_entry~1_Sub~18 = Sub(length~5, 1)
	t_entry~1_Less~19 = Less(t_entry~1_Squeeze~16, length~5)
	t_entry~1_Where~20 = Where(t_entry~1_Less~19, t_entry~1_Squeeze~16, t_entry~1_Sub~18)
	t_entry~1, z_entry~2 = Scan<num_scan_inputs=1, body={}>(s_entry~3, t_entry~1_Gather~13)
		(s, e) => (t, z)
		h = Unsqueeze(e, [0])
		t = Add(s, h)
		z = Identity(t)
	t_entry~1_Gather~21 = Gather<axis=0>(z_entry~2, t_entry~1_Where~20)
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, 8, "l s0 x", c.before, "y ys")
			scan := m.Graph.Node[0]
			scan.Attribute = append(scan.Attribute, graphAttribute("body", proto.CloneOf(body)))
			if err := Raise(m, 21, freshNames()); err != nil {
				t.Fatal(err)
			}
			if got := graphtext.Print(m.Graph.Node, nil); got != strings.TrimPrefix(c.after, "\n") {
				t.Errorf("got\n%swant\n%s", got, c.after)
			}
		})
	}
}
