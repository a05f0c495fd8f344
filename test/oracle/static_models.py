"""Models with the operators that quantize_static knows, each behind and before convolutions."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import integer

SHAPE = (2, 8, 6, 6)


def arrays(**values):
    return [numpy_helper.from_array(np.array(v[0], v[1]), name) for name, v in values.items()]


def between(nodes, tensors=(), result="b", opset=17):
    """x → Conv → a → nodes → b → Conv → y."""
    weights = integer.weights(5, cw=(8, 8, 3, 3), cb=(8,), dw=(8, 8, 1, 1))
    last = helper.make_node("Conv", [result, "dw"], ["y"], "last")
    first = helper.make_node("Conv", ["x", "cw", "cb"], ["a"], "first", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    info = {"x": (TensorProto.FLOAT, list(SHAPE))}, {"y": (TensorProto.FLOAT, ["i", "j", "k", "l"])}
    m = integer.model([first, *nodes, last], *info, [*weights, *tensors], opset)
    m.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, SHAPE))
    return m


def node(op, inputs, outputs="b", **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), f"{op}_{outputs.split()[0]}", **attrs)


def models():
    w = integer.weights
    one = w(6, s=(8,), t=(8,), c=(1, 8, 1, 1), k=(8, 8, 2, 2), kg=(8, 4, 2, 2), kb=(8,), table=(12, 6))
    named = {t.name: t for t in one}
    pads = arrays(p=([0, 0, 1, 1, 0, 0, 1, 1], np.int64), zero=(0.0, np.float32), half=(0.5, np.float32))
    positive = numpy_helper.from_array(np.abs(numpy_helper.to_array(named["s"])) + 0.5, "v")
    yield "relu", between([node("Relu", "a")])
    yield "relu_twice", between([node("Relu", "a", "r"), node("Relu", "r")])
    yield "relu_shared", between([node("Relu", "a", "r"), node("Add", "a r")])
    yield "clip", between([node("Clip", "a zero six")], arrays(zero=(0.0, np.float32), six=(0.6, np.float32)))
    yield "clip_old", between([node("Clip", "a", min=0.0, max=0.5)], opset=10)
    yield "leaky", between([node("LeakyRelu", "a", alpha=0.1)])
    yield "sigmoid", between([node("Sigmoid", "a", "g"), node("Mul", "a g")])
    yield "softmax", between([node("Softmax", "a", axis=1)])
    yield "softmax_relu", between([node("Softmax", "a", "s1", axis=1), node("Relu", "s1")])
    yield "residual", between([node("Conv", "a k2 kb", "q", kernel_shape=[1, 1]), node("Add", "q a", "s1"), node("Relu", "s1")],
                              w(7, k2=(8, 8, 1, 1), kb=(8,)))
    yield "constant", between([node("Add", "a c", "d"), node("Mul", "d c")], [named["c"]])
    yield "max_pool", between([node("MaxPool", "a", kernel_shape=[2, 2], strides=[1, 1])])
    yield "max_pool_old", between([node("MaxPool", "a", kernel_shape=[2, 2], strides=[1, 1])], opset=11)
    yield "average", between([node("AveragePool", "a", kernel_shape=[2, 2], strides=[1, 1])])
    yield "global", between([node("GlobalAveragePool", "a")])
    yield "pool_first", between([node("MaxPool", "x", "m", kernel_shape=[1, 1]), node("Add", "m a")])
    yield "reshape", between([node("Reshape", "a shape", "r"), node("Transpose", "r", perm=[0, 1, 3, 2])], arrays(shape=([2, 8, 4, 9], np.int64)))
    yield "squeeze", between([node("Unsqueeze", "a axes", "u"), node("Squeeze", "u axes")], arrays(axes=([4], np.int64)))
    yield "flatten", between([node("Flatten", "a", "f"), node("Gemm", "f gw gb", "g", transB=1), node("Reshape", "g shape")],
                             [*w(8, gw=(32, 288), gb=(32,)), *arrays(shape=([2, 8, 2, 2], np.int64))])
    yield "gemm", between([node("Flatten", "a", "f"), node("Gemm", "f gw gb", "g"), node("Reshape", "g shape")],
                          [*w(8, gw=(288, 32), gb=(32,)), *arrays(shape=([2, 8, 2, 2], np.int64))])
    yield "matmul", between([node("MatMul", "a mw", "m"), node("MatMul", "m a", "n"), node("Relu", "n")], w(9, mw=(6, 6)))
    yield "resize", between([helper.make_node("Resize", ["a", "", "scales"], ["b"], "rs", mode="nearest")], arrays(scales=([1, 1, 2, 2], np.float32)))
    yield "concat", between([node("MaxPool", "a", "m", kernel_shape=[1, 1]), node("Relu", "a", "r"), node("Concat", "m r", "c2", axis=2), node("Relu", "c2")])
    yield "split", between([node("Split", "a", "s1 s2", axis=2), node("Add", "s1 s2")], opset=11)
    yield "slice", between([node("Slice", "a starts ends")], arrays(starts=([0, 0, 1, 0], np.int64), ends=([2, 8, 5, 6], np.int64)))
    yield "pad_zero", between([node("Pad", "a p")], pads[:1])
    yield "pad_value", between([node("Pad", "a p half")], [pads[0], pads[2]])
    yield "pad_reflect", between([node("Pad", "a p", mode="reflect")], pads[:1])
    yield "pad_old", between([node("Pad", "a", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0)], opset=10)
    yield "where", between([node("Relu", "a", "r"), node("Sigmoid", "a", "g"), node("Greater", "a g", "t"), node("Where", "t r g")])
    yield "gather", between([node("Gather", "a at", axis=1)], arrays(at=([7, 6, 5, 4, 3, 2, 1, 0], np.int64)))
    yield "table", between([node("Gather", "table at", "e"), node("Add", "a e")], [named["table"], *arrays(at=([1, 2, 3, 4, 5, 6], np.int64))])
    yield "top", between([node("TopK", "a k1", "b i", axis=3)], arrays(k1=([4], np.int64)))
    yield "arg", between([node("ArgMax", "a", "i", axis=1), node("Cast", "i", "f", to=1), node("Add", "a f")])
    yield "instance", between([node("InstanceNormalization", "a s t")], [named["s"], named["t"]])
    yield "layer", between([node("LayerNormalization", "a ls lt")], w(10, ls=(6,), lt=(6,)))
    yield "batch", between([node("BatchNormalization", "a s t t2 v")], [named["s"], named["t"], *w(11, t2=(8,)), positive])
    yield "transposed", between([node("ConvTranspose", "a k kb", kernel_shape=[2, 2])], [named["k"], named["kb"]])
    yield "cumsum", between([node("CumSum", "a ax")], arrays(ax=(1, np.int64)))
    yield "bias_shared", between([node("Conv", "a dw cb", "q"), node("Conv", "q dw cb")])
    yield "weight_shared", between([node("Conv", "a dw kb", "q"), node("Conv", "q dw")], [named["kb"]])
    yield "branch", between([node("Conv", "a dw", "q"), node("Tanh", "q", "u"), node("Add", "q u")])
    yield "large_bias", between([node("Conv", "a tiny big")], [numpy_helper.from_array(np.full((8, 8, 1, 1), 1e-9, np.float32), "tiny"),
                                                              numpy_helper.from_array(np.arange(8).astype(np.float32) * 2e-4, "big")])
    yield "image", integer.image()


def feed(m, seed=0):
    draw = np.random.default_rng(seed)
    (x,) = [i for i in m.graph.input if i.name == "x"]
    shape = [d.dim_value or 2 for d in x.type.tensor_type.shape.dim]
    return {"x": draw.standard_normal(shape).astype(np.float32)}


def masked(low=-1e9):
    """Attention: a product of a with itself, a mask of zeros and low, Softmax, and a product with a."""
    mask = np.triu(np.full((6, 6), low, np.float32), 1)
    return between([node("MatMul", "a a", "s1"), node("Add", "s1 mask", "s2"), node("Softmax", "s2", "p1", axis=-1), node("MatMul", "p1 a")],
                   [numpy_helper.from_array(mask, "mask")])
