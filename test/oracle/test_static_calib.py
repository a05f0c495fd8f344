"""Static activations in one step: models with branches and states."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from runtime import REDUCED, SATURATES, relative_error, session
from test_verify import library, with_runtime

WIDTH, STATE = 64, 48


def cell(rng, name):
    """A branch that computes the next state, and whether it is loud: a recurrent cell whose weights are its own."""
    w, u, v = ((rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for shape in ((WIDTH, STATE), (STATE, STATE), (STATE, 1)))
    nodes = [
        helper.make_node("MatMul", ["x", name + "w"], [name + "a"]),
        helper.make_node("MatMul", ["state", name + "u"], [name + "b"]),
        helper.make_node("Add", [name + "a", name + "b"], [name + "c"]),
        helper.make_node("Tanh", [name + "c"], [name + "next"]),
        helper.make_node("MatMul", [name + "next", name + "v"], [name + "d"]),
        helper.make_node("Sigmoid", [name + "d"], [name + "y"]),
    ]
    values = [numpy_helper.from_array(a.astype(np.float32), name + n) for n, a in (("w", w), ("u", u), ("v", 6 * v))]
    outputs = [helper.make_tensor_value_info(name + n, TensorProto.FLOAT, shape) for n, shape in (("y", [1, 1]), ("next", [1, STATE]))]
    return helper.make_graph(nodes, name, [], outputs), values


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(1)
    (yes, a), (no, b) = cell(rng, "then_"), cell(rng, "else_")
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("If", ["first"], ["y", "stateN"], then_branch=yes, else_branch=no)], "g",
        [tensor("x", TensorProto.FLOAT, [1, WIDTH]), tensor("state", TensorProto.FLOAT, [1, STATE]), tensor("first", TensorProto.BOOL, [])],
        [tensor("y", TensorProto.FLOAT, [1, 1]), tensor("stateN", TensorProto.FLOAT, [1, STATE])], a + b)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(m)
    onnx.save(m, tmp_path / "in.onnx")
    return tmp_path / "in.onnx"


def runs(model, count, seed, first=True):
    """Inputs and outputs of runs, each with the state of the one before."""
    rng, s, state = np.random.default_rng(seed), session(model), np.zeros((1, STATE), np.float32)
    inputs, ys, level = [], [], 1.0
    for _ in range(count):
        level = 0.9 * level + 0.1 * rng.uniform(0, 3)
        x = {"x": rng.normal(size=(1, WIDTH)).astype(np.float32) * np.float32(level), "state": state, "first": np.array(first)}
        y, state = s.run(None, x)
        inputs.append(x)
        ys.append(y.item())
    return inputs, np.array(ys)


def test_branches_and_states(model, tmp_path):
    """The branch that runs gets pairs, the weights of the other one codes that are decoded; what states lose over many runs
    stays small."""
    inputs, _ = runs(model, 32, seed=1)
    np.savez(tmp_path / "x.npz", x=np.concatenate([i["x"] for i in inputs]), state=np.concatenate([i["state"] for i in inputs]), first=np.ones(32, bool))
    out = tmp_path / "out.onnx"
    r = onnxquant("--json", "--activations", "static", "--calib", tmp_path / "x.npz", "--min-sqnr", 25, *REDUCED, model, out)
    assert r.status == 0, r.stderr
    found = json.loads(r.stdout)["plan"]["static_activations"]
    assert found["limits_hold"] and found["loss"]["sqnr_db"] >= 25 and any(name.startswith("else_branch/") for name in found["no_range"])
    m = onnx.load(out)
    bodies = {a.name: [n.op_type for n in a.g.node] for n in m.graph.node if n.op_type == "If" for a in n.attribute}
    assert "QuantizeLinear" in bodies["then_branch"] and "QuantizeLinear" not in bodies["else_branch"]
    assert not [t.name for t in m.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) > 1 and t.dims[-1] == STATE and t.dims[0] >= STATE]
    assert onnxquant("verify", "--inputs", tmp_path / "x.npz", model, out).status == 0
    for first in (True, False):
        a, b = (runs(p, 300, seed=2, first=first)[1] for p in (model, out))
        assert np.mean((a > 0.5) == (b > 0.5)) >= 0.98


@pytest.mark.skipif(not SATURATES, reason="sums of products fit here")
def test_weights_of_seven_bits(tmp_path, monkeypatch):
    """Where sums of products of 8-bit codes overflow, weights get 7 bits, also if pure Go measured; --format int8 keeps 8, and its outputs are far off."""
    rng = np.random.default_rng(3)
    w = [(np.sign(rng.normal(size=shape)) + 0.4).astype(np.float32) for shape in ((64, 64), (64, 8))]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), helper.make_node("MatMul", ["b", "w1"], ["y"])]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [tensor("x", TensorProto.FLOAT, ["n", 64])], [tensor("y", TensorProto.FLOAT, ["n", 8])],
                              [numpy_helper.from_array(v, f"w{i}") for i, v in enumerate(w)])
    plain, data, unseen = tmp_path / "in.onnx", tmp_path / "x.npz", rng.uniform(0.7, 1, (16, 64)).astype(np.float32)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), plain)
    np.savez(data, x=rng.uniform(0.7, 1, (32, 64)).astype(np.float32))
    errors = {}
    for flags in (("--ort-lib", library()), ("--ort-lib", library(), "--format", "int8"), ()):
        if not flags:
            monkeypatch.delenv("ONNXQUANT_ORT_LIB", raising=False)
            monkeypatch.setenv("PATH", "/nowhere")  # no Python: no ONNX Runtime
        out = tmp_path / f"out{len(flags)}.onnx"
        r = onnxquant("--json", "--activations", "static", "--calib", data, *flags, "--min-sqnr", 0, "--allow-fallback", plain, out, binary=with_runtime())
        assert r.status == 0, r.stderr
        assert flags or "pure Go" in r.stderr
        found = json.loads(r.stdout)["plan"]["static_activations"]
        assert ("--format" in flags) != ("loss_7_bits" in found)
        want, got = (session(p).run(None, {"x": unseen})[0] for p in (plain, out))
        errors[len(flags)] = relative_error([got], [want])
    assert max(errors[0], errors[2]) < 0.05 < 0.2 < errors[4], errors
