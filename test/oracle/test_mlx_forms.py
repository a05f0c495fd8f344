"""Forms for weights of MLX (code · scale + bias of a group) in ONNX Runtime: which are exact. docs/log/targets.md has times."""
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

N, K, GROUP = 64, 256, 64


def bfloat16(x):
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)


def weights():
    """Codes, scales and biases as MLX finds them, in bfloat16."""
    w = np.random.default_rng(0).normal(size=(N, K // GROUP, GROUP)).astype(np.float32) * .02
    low, high = w.min(-1), w.max(-1)
    scale = (high - low) / 15
    scale, edge = np.where(abs(low) > abs(high), scale, -scale), np.where(abs(low) > abs(high), low, high)
    steps = np.round(edge / scale)
    scale, bias = bfloat16(edge / steps), bfloat16(edge)
    codes = np.clip(np.round((w - bias[..., None]) / scale[..., None]), 0, 15).astype(np.uint8)
    return codes, scale, bias, -steps


def product(nodes, tensors):
    """The weights [N, K] that nodes multiply the input by."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["r", K])], [info("y", TensorProto.FLOAT, ["r", N])],
                              [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.eye(K, dtype=np.float32)})[0].T


@pytest.mark.parametrize("form, exact", [("integer", False), ("float", False), ("sums", True)])
def test_exact(form, exact):
    codes, scale, bias, zeros = weights()
    want = (scale[..., None] * codes + bias[..., None]).reshape(N, K)
    tensors = {"q": (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8), "s": scale}
    more = []
    if form == "integer":
        zeros = np.clip(zeros, 0, 15).astype(np.uint8)
        tensors["z"] = (zeros[:, ::2] | zeros[:, 1::2] << 4).reshape(-1)
    elif form == "float":
        tensors["z"] = (-bias / scale).astype(np.float32)
    else:
        tensors |= {"c": np.ascontiguousarray((bias + 8 * scale).T), "shape": np.array([0, K // GROUP, GROUP]), "axis": np.array([2])}
        more = [helper.make_node("Reshape", ["x", "shape"], ["blocks"]), helper.make_node("ReduceSum", ["blocks", "axis"], ["sums"], keepdims=0),
                helper.make_node("MatMul", ["sums", "c"], ["added"]), helper.make_node("Add", ["product", "added"], ["y"])]
    first = helper.make_node("MatMulNBits", ["x", "q", "s"] + ["z"] * ("z" in tensors), ["product" if more else "y"], domain="com.microsoft",
                             K=K, N=N, bits=4, block_size=GROUP, accuracy_level=1)
    got = product([first, *more], tensors)
    assert np.array_equal(got, want) == exact
    assert np.abs(got - want).max() < (.2 if form == "integer" else 1e-5) * np.abs(scale).max()
