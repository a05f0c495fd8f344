"""--calib where weights are read in branches of Ifs, as in the merged decoders of optimum."""
import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import divergence
import merged
from command import TINYGPT
from runtime import session
from test_calibrated import CALIB, calibrate, floats

SETTINGS = ["--samples", 16, "--block", 32, "--algorithm", "gptq"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """The language model merged with itself, and data half of which runs each branch."""
    folder = tmp_path_factory.mktemp("merged")
    model = merged.merge(onnx.load(TINYGPT / "model.onnx"))
    onnx.checker.check_model(model)
    onnx.save(model, folder / "merged.onnx")
    ids = np.load(CALIB)["ids"]
    np.savez(folder / "both.npz", ids=ids, use_cache_branch=np.arange(len(ids)) % 2 == 1)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "out.onnx"
    calibrate(CALIB, *SETTINGS, TINYGPT / "model.onnx", out)
    return {t.name: t for t in onnx.load(out).graph.initializer}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("data", ["one branch", "both"])
def test_codes_are_those_of_the_decoder(data, decoder, plain, tmp_path):
    report = calibrate(CALIB if data == "one branch" else decoder / "both.npz", *SETTINGS, decoder / "merged.onnx", tmp_path / "out.onnx")
    assert not any("calibrated" in w for w in report.get("warnings", []))
    assert {t.name: t for t in onnx.load(tmp_path / "out.onnx").graph.initializer} == plain
    kl = [branch_divergence(tmp_path / "out.onnx", b) for b in (False, True)]
    assert max(kl) < 0.0042  # mse has 0.0051
    assert report["calibration"]["output_error"] < 0.7 * report["calibration"]["output_error_mse"]


def branch_divergence(model, cached):
    logits, = session(model).run(None, {"ids": divergence._ids(), "use_cache_branch": np.array([cached])})
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    p, q = divergence._float_model(), logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return (np.exp(p) * (p - q)).sum(-1).mean()


def branch(name, *nodes):
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)])


@pytest.mark.parametrize("algorithm", ["gptq", "best", "awq"])
def test_branches_in_branches(algorithm, tmp_path):
    """The model computes which branch runs. Weights of branches that no sample runs get mse."""
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal((96, 40)).astype(np.float32) for name in ("w", "reached", "not reached")}
    x = rng.standard_normal((1200, 96)) @ (rng.standard_normal((96, 96)) / 4 + np.eye(96)) * np.exp(rng.uniform(-1, 1, 96))
    x = x.astype(np.float32).reshape(40, 30, 96)
    x[::2] = np.abs(x[::2])
    np.savez(tmp_path / "x.npz", x=x)
    inner = helper.make_node("If", ["never"], ["chosen"],
                             then_branch=branch("then", helper.make_node("MatMul", ["x", "not reached"], ["m"])),
                             else_branch=branch("else", helper.make_node("MatMul", ["x", "reached"], ["m"]), helper.make_node("Relu", ["m"], ["r"])))
    outer = helper.make_node("If", ["negative"], ["y"],
                             then_branch=branch("then", inner, helper.make_node("Identity", ["chosen"], ["i"])),
                             else_branch=branch("else", helper.make_node("MatMul", ["x", "w"], ["m"])))
    nodes = [helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0), helper.make_node("Less", ["least", "zero"], ["negative"]),
             helper.make_node("Less", ["least", "far"], ["never"]), outer]
    stored = weights | {"zero": np.array(0, np.float32), "far": np.array(-1e9, np.float32)}
    graph = helper.make_graph(nodes, "g", [floats("x", "batch", 30, 96)], [floats("y", "batch", 30, 40)], [numpy_helper.from_array(w, n) for n, w in stored.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "in.onnx")
    report = calibrate(tmp_path / "x.npz", "--block", 32, "--algorithm", algorithm, tmp_path / "in.onnx", tmp_path / "out.onnx")
    notes = {t["name"]: t.get("note", "") for t in report["quantized"]}
    assert "algorithm mse" in notes["not reached"] and "algorithm mse" not in notes["w"] + notes["reached"], notes
    float_model, quantized = session(tmp_path / "in.onnx"), session(tmp_path / "out.onnx")
    for sample in (x[:1], x[1:2]):
        want, = float_model.run(None, {"x": sample})
        assert np.abs(quantized.run(None, {"x": sample})[0] - want).mean() < 0.2 * np.abs(want).mean()


FUNCTIONS = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[N,96] x, bool c) => (float[N,40] y) {
    h = local.layer <alpha = 0.5> (x, u, c)
    m = local.layer <alpha = 0.125> (h, v, c)
    y = MatMul(m, w)
}
<domain: "local", opset_import: ["": 21, "local": 1]>
layer <alpha> (x, v, c) => (y) {
    p = local.product(x, v)
    s = If(c) <then_branch = a () => (float[N,96] r) { r = LeakyRelu<alpha: float = @alpha>(p) },
               else_branch = b () => (float[N,96] r) { r = MatMul(p, v) }>
    y = Add(s, x)
}
<domain: "local", opset_import: ["": 21]>
product (x, v) => (y) { y = MatMul(x, v) }
"""


@pytest.mark.parametrize("algorithm", ["gptq", "best", "awq"])
def test_functions(algorithm, tmp_path):
    """Weights that are multiplied in functions have the codes of the model without functions."""
    rng = np.random.default_rng(2)
    model = onnx.parser.parse_model(FUNCTIONS)
    for name, n in {"u": 96, "v": 96, "w": 40}.items():
        model.graph.initializer.append(numpy_helper.from_array((rng.standard_normal((96, n)) / 9).astype(np.float32), name))
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "functions.onnx")
    onnx.save(onnx.inliner.inline_local_functions(model), tmp_path / "plain.onnx")
    x = rng.standard_normal((40, 30, 96)) @ (rng.standard_normal((96, 96)) / 4 + np.eye(96)) * np.exp(rng.uniform(-1, 1, 96))
    for sample in range(40):
        (tmp_path / "data" / str(sample)).mkdir(parents=True)
        for name, value in {"x": x[sample].astype(np.float32), "c": np.array(sample % 2 == 0)}.items():
            np.save(tmp_path / "data" / str(sample) / f"{name}.npy", value)
    codes = []
    for kind in ("functions", "plain"):
        report = calibrate(tmp_path / "data", "--block", 32, "--algorithm", algorithm, tmp_path / f"{kind}.onnx", tmp_path / "out.onnx")
        assert report["calibration"]["layers"] == 3
        codes.append({t.name: t for t in onnx.load(tmp_path / "out.onnx").graph.initializer})
        assert all("held-out" in t.get("note", "held-out") for t in report["quantized"])
    assert codes[0] == codes[1]
