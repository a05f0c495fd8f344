"""What inspect says that ONNX Runtime refuses, it refuses."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from command import onnxquant

SIZES = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.UINT8: 1}


def zeros(name, kind, *dims):
    return helper.make_tensor(name, kind, dims, bytes(int(np.prod(dims)) * SIZES[kind]), raw=True)


def product(kind, bits=4, zero=None):
    """A MatMulNBits of a type, with zero points of another or none."""
    tensors = [zeros("q", TensorProto.UINT8, 16, 2, 32 * bits // 8), zeros("s", kind, 32)]
    if zero is not None:
        tensors.append(zeros("z", zero, 32 if zero != TensorProto.UINT8 else 16 * 2 * bits // 8))
    node = helper.make_node("MatMulNBits", ["x", *(t.name for t in tensors)], ["y"], domain="com.microsoft", K=64, N=16, bits=bits, block_size=32, accuracy_level=4)
    return node, tensors, [1, 64], [1, 16]


def rows(kind):
    node = helper.make_node("GatherBlockQuantized", ["q", "x", "s"], ["y"], domain="com.microsoft", bits=4, block_size=32, gather_axis=0, quantize_axis=1)
    return node, [zeros("q", TensorProto.UINT8, 16, 32), zeros("s", kind, 16, 2)], [2], [2, 64]


def table(kind):
    node = helper.make_node("MatMulBnb4", ["x", "q", "s"], ["y"], domain="com.microsoft", K=64, N=16, quant_type=1, block_size=32)
    return node, [zeros("q", TensorProto.UINT8, 512), zeros("s", kind, 32)], [1, 64], [1, 16]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("make", [product, rows, table, lambda k: product(k, zero=k), lambda k: product(k, 8, k), lambda k: product(k, 8, TensorProto.UINT8)],
                         ids=["product", "rows", "table", "float zeros", "float zeros, 8 bits", "codes as zeros, 8 bits"])
def test_refused(make, kind, tmp_path):
    node, tensors, x, y = make(kind)
    of_ids = node.op_type == "GatherBlockQuantized"
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.INT64 if of_ids else kind, x)], [helper.make_tensor_value_info("y", kind, y)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    found = json.loads(onnxquant("inspect", "--json", path).stdout)["hazards"]
    refused = [h["check"] for h in found if h["check"].startswith("ort-") and h["effect"] == "refused"]
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.run(None, {"x": np.zeros(x, np.int64 if of_ids else {TensorProto.FLOAT: np.float32}.get(kind, np.float16))})
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        assert "ort-bfloat16" in refused
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        assert refused == ["ort-nbits"]
    else:
        assert not refused
    slow = node.op_type == "MatMulNBits" and len(node.input) == 4 and tensors[-1].data_type == kind and tensors[0].dims[2] == 16
    assert ("ort-float-zeros" in [h["check"] for h in found]) == slow
