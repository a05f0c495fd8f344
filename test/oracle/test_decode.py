"""The oracle itself: its decoding against the evaluator of the onnx package, and that its checks can fail."""
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import conversion
import decode
import graphs
import runtime


def quantized_model(kind, dtype, shape, axis, block, zero_point, seed=3):
    """y = x · DequantizeLinear(w_i4) and what it was made of."""
    rng = np.random.default_rng(seed)
    bits, signed = decode.INTEGERS[kind]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2 ** bits)
    q = rng.integers(low, high, shape)
    blocks = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape)) if block else (shape[axis],)
    scale = rng.uniform(0.01, 0.2, blocks).astype(dtype)
    tensors = [helper.make_tensor("w_i4", kind, shape, q.ravel()), numpy_helper.from_array(scale, "w_scale")]
    if zero_point:
        tensors.append(helper.make_tensor("w_zp", kind, blocks, rng.integers(low, high, blocks).ravel()))
    attributes = dict(axis=axis, **({"block_size": block} if block else {}))
    nodes = [helper.make_node("DequantizeLinear", [t.name for t in tensors], ["w"], name="d", **attributes),
             helper.make_node("MatMul", ["x", "w"], ["y"], name="m")]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", element, ["b", shape[0]])],
                          [helper.make_tensor_value_info("y", element, ["b", shape[1]])], tensors)
    for t in g.initializer:
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t), t.name))  # as raw_data
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def float_model(converted, weight):
    """The model that a quantized_model might have been made from."""
    m = onnx.ModelProto()
    m.CopyFrom(converted)
    del m.graph.initializer[:], m.graph.node[0]
    m.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return m


@pytest.mark.parametrize("zero_point", [False, True], ids=["symmetric", "zero-point"])
@pytest.mark.parametrize("shape, axis, block", [((64, 6), 0, 32), ((33, 7), 0, 16), ((5, 9), 1, 4), ((6, 11), 1, 0), ((11, 6), 0, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", decode.INTEGERS, ids=TensorProto.DataType.Name)
def test_decodes_as_the_evaluator_does(kind, dtype, shape, axis, block, zero_point):
    m = quantized_model(kind, dtype, shape, axis, block, zero_point)
    d = decode.Decoded(m.graph.node[0], m.graph.initializer)
    del m.graph.node[1], m.graph.output[:]
    m.graph.output.append(helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape))
    want = ReferenceEvaluator(m).run(["w"], {"x": np.zeros((1, shape[0]), dtype)})[0]
    assert d.value.dtype == want.dtype
    assert (d.value == want).all()


@pytest.fixture
def pair():
    m = quantized_model(TensorProto.INT4, np.float32, (64, 6), 0, 32, False)
    weight = decode.Decoded(m.graph.node[0], m.graph.initializer).value
    return graphs.Pair(float_model(m, weight), m)


def test_finds_and_puts_back(pair):
    (w,) = pair.weights
    assert w.name == "w" and w.uses == [((), "y", 1)]
    feeds = [np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)]
    runtime.assert_same(runtime.run(pair.converted, feeds), runtime.run(pair.put_back(), feeds))
    assert not graphs.differences(*pair.undo())
    conversion.assert_near(w, w.value.astype(np.float64))


def test_sees_values_that_are_too_far_off(pair):
    (w,) = pair.weights
    x = w.value.astype(np.float64)
    x[5, 3] += 0.6 * w.decoded.step()[5, 3]
    with pytest.raises(AssertionError, match="at .*5.*3"):
        conversion.assert_near(w, x)


def test_sees_other_outputs(pair):
    feeds = [np.ones((1, 64), np.float32)]
    want = runtime.run(pair.put_back(), feeds)
    with pytest.raises(AssertionError, match="off by"):
        runtime.assert_same([want[0] * np.float32(1.0001)], want)
    with pytest.raises(AssertionError, match="float16"):
        runtime.assert_same([want[0].astype(np.float16)], want)


@pytest.mark.parametrize("change, where", [
    (lambda m: m.graph.ClearField("name"), "graph.name"),
    (lambda m: m.metadata_props.add(key="k", value="v"), "metadata_props"),
    (lambda m: setattr(m.graph.node[1], "doc_string", "d"), "doc_string"),
    (lambda m: setattr(m.graph.node[1], "name", "other"), "name"),
    (lambda m: setattr(m.graph.output[0], "name", "z"), "name"),
    (lambda m: m.graph.value_info.add(name="y"), "value_info"),
    (lambda m: m.MergeFromString(bytes([0xc2, 0xbb, 4, 1, 7])), "unknown fields"),
])
def test_sees_what_else_changed(pair, change, where):
    change(pair.converted)
    found = graphs.differences(*pair.undo())
    assert found and where in found[0]
