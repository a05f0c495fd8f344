"""Dynamic activations with data: what computes in float, decided by what the outputs lose."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from runtime import REDUCED, session
from test_verify import library, with_runtime

CHANNELS, STEPS, STATE, CLASSES = 32, 12, 48, 20


@pytest.fixture
def model(tmp_path):
    """A recognizer: convolutions, an LSTM, a product. In front of the second convolution, a channel is large that hardly counts."""
    rng = np.random.default_rng(1)
    loud = np.ones((1, CHANNELS, 1), np.float32)
    loud[0, 0] = 400

    def weight(*shape):
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    second = weight(CHANNELS, CHANNELS, 3)
    second[:, 0] *= 1e-3
    values = {"c1": weight(CHANNELS, 16, 3), "loud": loud, "c2": second, "w": weight(1, 4 * STATE, CHANNELS), "r": weight(1, 4 * STATE, STATE),
              "head": 4 * weight(STATE, CLASSES)}
    nodes = [
        helper.make_node("Conv", ["x", "c1"], ["a"], pads=[1, 1]), helper.make_node("Mul", ["a", "loud"], ["b"]),
        helper.make_node("Conv", ["b", "c2"], ["c"], pads=[1, 1]), helper.make_node("Transpose", ["c"], ["d"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["d", "w", "r"], ["e"], hidden_size=STATE), helper.make_node("MatMul", ["e", "head"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, STEPS])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, 1, 1, CLASSES])], [numpy_helper.from_array(v, k) for k, v in values.items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(m)
    onnx.save(m, tmp_path / "in.onnx")
    np.save(tmp_path / "x.npy", rng.normal(size=(32, 16, STEPS)).astype(np.float32))
    return tmp_path / "in.onnx"


def divergence(a, b, count=32):
    rng, one, other, all = np.random.default_rng(9), session(a), session(b), []
    for _ in range(count):
        x = {"x": rng.normal(size=(1, 16, STEPS)).astype(np.float32)}
        p, q = (s.run(None, x)[0].astype(np.float64) for s in (one, other))
        all.append(np.mean(np.sum(p * np.log(p / q), axis=-1)))
    return np.mean(all)


def test_float_where_codes_cost_most(model, tmp_path):
    """The convolution behind the loud channel computes in float, the LSTM and what else holds the limit with codes."""
    flags = ["--activations", "dynamic", "--calib", tmp_path / "x.npy", "--ort-lib", library(), *REDUCED]
    out, all_codes = tmp_path / "out.onnx", tmp_path / "all.onnx"
    limit = 0.001
    r = onnxquant("--json", *flags, "--max-kl", limit, model, out, binary=with_runtime())
    assert r.status == 0, r.stderr
    found = json.loads(r.stdout)["plan"]["dynamic_activations"]
    assert found["limits_hold"] and found["loss"]["kl_divergence"] <= limit < found["loss_all"]["kl_divergence"]
    assert found["decoded"] == ["c2"] and found["weights"] == 4 and found["held_out"] == 8
    m = onnx.load(out)
    ops = [n.op_type for n in m.graph.node]
    assert ops.count("ConvInteger") == 1 and ops.count("Conv") == 1 and "DynamicQuantizeLSTM" in ops and "MatMulInteger" in ops
    assert "DequantizeLinear" not in ops  # ONNX Runtime decodes what Cast and Mul decode once, when it loads the model
    assert not [t.name for t in m.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) == 3 and np.prod(t.dims) > 3000]
    assert onnxquant("--activations", "dynamic", "--ops", "all", "--block=-1", *REDUCED, model, all_codes).status == 0
    assert divergence(model, out) <= 2 * limit < 0.5 * divergence(model, all_codes)
    assert onnxquant("verify", "--inputs", tmp_path / "x.npy", model, out).status == 0


def test_limits_that_do_not_hold(model, tmp_path):
    flags = ["--activations", "dynamic", "--calib", tmp_path / "x.npy", "--ort-lib", library(), "--min-sqnr", 90]
    command, out = with_runtime(), tmp_path / "out.onnx"
    r = subprocess.run([command, *map(str, flags), model, out], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "--min-sqnr 90" in r.stderr and not out.exists()
    r = onnxquant(*flags, model, out, binary=command)  # allows fallbacks
    assert r.status == 0 and "the limits do not hold" in r.stderr and out.exists()


def test_without_the_runtime(model, tmp_path, monkeypatch):
    """Pure Go measures products, convolutions and the LSTM."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("ONNXQUANT_ORT_LIB", raising=False)
    out = tmp_path / "out.onnx"
    r = onnxquant("--activations", "dynamic", "--calib", tmp_path / "x.npy", *REDUCED, model, out)
    assert r.status == 0 and "pure Go has no" not in r.stderr
    ops = [n.op_type for n in onnx.load(out).graph.node]
    assert "DynamicQuantizeLSTM" in ops and "MatMulInteger" in ops
