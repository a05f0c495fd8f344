"""Codes of weights that data find for static activations, and corrected biases: the error of the outputs on new inputs falls."""
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from runtime import REDUCED


def layered(path, rng):
    """Convolutions behind each other, then a Gemm. Channels of their inputs depend on each other, as in trained models."""
    tensor, values, nodes, last, channels = helper.make_tensor_value_info, [], [], "x", 6
    for i, n in enumerate((16, 16, 16)):
        mix = rng.normal(size=(n, 3)) @ rng.normal(size=(3, channels * 9)) + 0.2 * rng.normal(size=(n, channels * 9))
        values += [numpy_helper.from_array((a / np.sqrt(3 * a.size / n)).astype(np.float32), f"{k}{i}") for k, a in (("w", mix.reshape(n, channels, 3, 3)), ("b", rng.normal(size=n)))]
        nodes += [helper.make_node("Conv", [last, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1] * 4), helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        last, channels = f"r{i}", n
    values += [numpy_helper.from_array((rng.normal(size=s) / 4).astype(np.float32), n) for n, s in (("v", (16, 10)), ("d", (10,)))]
    nodes += [helper.make_node("GlobalAveragePool", [last], ["p"]), helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("Gemm", ["f", "v", "d"], ["y"])]
    m = helper.make_model(helper.make_graph(nodes, "g", [tensor("x", TensorProto.FLOAT, [1, 6, 8, 8])], [tensor("y", TensorProto.FLOAT, [1, 10])], values),
                          opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(m)
    onnx.save(m, path)


def images(rng, n):
    """Images whose channels are mixtures of two, with noise."""
    two = rng.normal(size=(n, 2, 8, 8))
    return (np.einsum("cs,nshw->nchw", np.random.default_rng(9).normal(size=(6, 2)), two) + 0.1 * rng.normal(size=(n, 6, 8, 8))).astype(np.float32)


def outputs(path, x):
    o = ort.SessionOptions()  # without fusion, operators compute in float: a processor without VNNI computes wrongly with codes
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])
    return np.concatenate([s.run(None, {"x": i[None]})[0] for i in x])


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["gptq", "best"])
def test_error_falls(tmp_path, algorithm):
    model, quotients = tmp_path / "in.onnx", []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        layered(model, rng)
        np.savez(tmp_path / "x.npz", x=images(rng, 32))
        x = images(rng, 60)
        want, errors = outputs(model, x), []
        for args in ([], ["--algorithm", algorithm]):
            out = tmp_path / "out.onnx"
            r = onnxquant("--json", "--activations", "static", "--calib", tmp_path / "x.npz", *args, *REDUCED, model, out)
            assert r.status == 0, r.stderr
            errors.append(np.square(outputs(out, x) - want).mean())
        found = json.loads(r.stdout)["plan"]["static_activations"]["codes"]
        assert found["weights"] == 0 or found["loss_after"]["damage"] < found["loss_before"]["damage"]
        quotients.append(errors[1] / errors[0])
        v = onnxquant("verify", "--inputs", tmp_path / "x.npz", model, out)
        assert v.status == 0, v.stdout + v.stderr
    assert np.median(quotients) < 0.8 and max(quotients) < 1.2
