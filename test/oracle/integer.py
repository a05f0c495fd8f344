"""Models for tests of operators that compute with codes."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"


def weights(seed, **shapes):
    draw = np.random.default_rng(seed)
    return [numpy_helper.from_array((draw.standard_normal(s) * 0.3).astype(np.float32), name) for name, s in shapes.items()]


def model(nodes, inputs, outputs, tensors, opset=17):
    """Inputs and outputs are {name: (type, shape)}."""
    infos = [[helper.make_tensor_value_info(name, *info) for name, info in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, tensors)
    imports = [helper.make_opsetid("", opset)]
    if any(n.domain for n in nodes):
        imports.append(helper.make_opsetid(CONTRIB, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def speech():
    """Gather, MatMuls of one activation, an LSTM, Gemm and Convs."""
    nodes = [
        helper.make_node("Gather", ["emb", "ids"], ["e"], "emb"),
        helper.make_node("MatMul", ["e", "m1"], ["a"], "mm1"),
        helper.make_node("MatMul", ["e", "m2"], ["b"], "mm2"),
        helper.make_node("Add", ["a", "b"], ["c"], "add"),
        helper.make_node("LSTM", ["c", "lw", "lr", "lb"], ["l", "", ""], "lstm", hidden_size=8, direction="bidirectional"),
        helper.make_node("Transpose", ["l"], ["lt"], "tr", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["lt", "shape"], ["f"], "rs"),
        helper.make_node("Gemm", ["f", "gw", "gb"], ["g"], "gemm", transB=1),
        helper.make_node("Relu", ["g"], ["gr"], "relu"),
        helper.make_node("Unsqueeze", ["gr", "one"], ["u"], "us"),
        helper.make_node("Conv", ["u", "cw", "cb"], ["cv"], "conv", kernel_shape=[9], pads=[4, 4]),
        helper.make_node("Conv", ["cv", "cw2"], ["y"], "conv2", kernel_shape=[9], pads=[4, 4]),
    ]
    tensors = weights(1, emb=(20, 12), m1=(12, 12), m2=(12, 12), lw=(2, 32, 12), lr=(2, 32, 8), lb=(2, 64), gw=(16, 16),
                      gb=(16,), cw=(32, 1, 9), cb=(32,), cw2=(4, 32, 9))
    tensors += [numpy_helper.from_array(np.array([-1, 16], np.int64), "shape"),
                numpy_helper.from_array(np.array([1], np.int64), "one")]
    return model(nodes, {"ids": (TensorProto.INT64, ["t", "b"])}, {"y": (TensorProto.FLOAT, ["n", 4, 16])}, tensors)


def attention():
    """com.microsoft's Attention behind an EmbedLayerNormalization."""
    nodes = [
        helper.make_node("EmbedLayerNormalization", ["ids", "segments", "word", "position", "segment", "gamma", "beta"],
                         ["x", "mask"], "embed", domain=CONTRIB),
        helper.make_node("Attention", ["x", "w", "bias"], ["y"], "attention", domain=CONTRIB, num_heads=2),
    ]
    tensors = weights(2, word=(20, 8), position=(16, 8), segment=(2, 8), gamma=(8,), beta=(8,), w=(8, 24), bias=(24,))
    ids = (TensorProto.INT32, ["b", "t"])
    return model(nodes, {"ids": ids, "segments": ids}, {"y": (TensorProto.FLOAT, ["b", "t", 8])}, tensors)


def image():
    """What quantize_static knows: Conv, Gemm, pools, sums, activations."""
    nodes = [
        helper.make_node("Conv", ["x", "cw", "cb"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "cw2"], ["c2"], "conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r"], ["a"], "add"),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["gp"], "gap"),
        helper.make_node("Flatten", ["gp"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "gw", "gb"], ["g"], "gemm", transB=1),
        helper.make_node("Sigmoid", ["g"], ["s"], "sig"),
        helper.make_node("MatMul", ["s", "mw"], ["m"], "mm"),
        helper.make_node("Clip", ["m", "low", "high"], ["k"], "clip"),
        helper.make_node("LeakyRelu", ["k"], ["l"], "lr"),
        helper.make_node("Concat", ["l", "s"], ["cc"], "cat", axis=1),
        helper.make_node("Mul", ["cc", "cc"], ["mu"], "mul"),
        helper.make_node("Softmax", ["mu"], ["y"], "sm"),
    ]
    tensors = weights(3, cw=(8, 8, 3, 3), cb=(8,), cw2=(8, 8, 3, 3), gw=(16, 8), gb=(16,), mw=(16, 16))
    tensors += [numpy_helper.from_array(np.float32(v), name) for name, v in (("low", 0), ("high", 0.5))]
    return model(nodes, {"x": (TensorProto.FLOAT, ["b", 8, 8, 8])}, {"y": (TensorProto.FLOAT, ["b", 32])}, tensors)


def embedding(segments=True, mask=False, zero_bias=False, second=False, **attributes):
    """EmbedLayerNormalization; second: another one reads the same tables, scale and bias."""
    inputs = ["ids", "segments" if segments else "", "word", "position", "segment" if segments else "", "gamma", "beta"]
    inputs += ["mask"] if mask else []
    ids = (TensorProto.INT32, ["b", "t"])
    feeds = {"ids": ids} | ({"segments": ids} if segments else {}) | ({"mask": ids} if mask else {})
    made = {"y": (TensorProto.FLOAT, ["b", "t", 8]), "lengths": (TensorProto.INT32, ["b"])}
    nodes = [helper.make_node("EmbedLayerNormalization", inputs, list(made), "embed", domain=CONTRIB, **attributes)]
    if second:
        made |= {"z": (TensorProto.FLOAT, ["b", "t", 8])}
        nodes += [helper.make_node("EmbedLayerNormalization", inputs, ["z", "l"], "again", domain=CONTRIB)]
    tensors = weights(3, word=(20, 8), position=(16, 8), gamma=(8,), **({"segment": (2, 8)} if segments else {}))
    tensors += [numpy_helper.from_array(np.zeros(8, np.float32), "beta")] if zero_bias else weights(4, beta=(8,))
    return model(nodes, feeds, made, tensors)


def attending(mask=None, past=False, **attributes):
    """com.microsoft's Attention. mask: the shape of its mask."""
    inputs = ["x", "w", "bias"] + (["mask" if mask else ""] if mask or past else []) + (["past"] if past else [])
    floats = (TensorProto.FLOAT, ["b", "t", 8])
    feeds = {"x": floats} | ({"mask": (TensorProto.INT32, mask)} if mask else {})
    made = {"y": floats}
    if past:
        feeds["past"], made["present"] = (TensorProto.FLOAT, [2, "b", 2, "p", 4]), (TensorProto.FLOAT, [2, "b", 2, "q", 4])
    nodes = [helper.make_node("Attention", inputs, list(made), "attention", domain=CONTRIB, num_heads=2, **attributes)]
    return model(nodes, feeds, made, weights(2, w=(8, 24), bias=(24,)))
