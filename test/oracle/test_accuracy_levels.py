"""--accuracy-level auto: which MatMulNBits compute with int8 activations, decided by what the outputs lose."""
import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from test_verify import library, with_runtime

WIDTH, LAYERS, CLASSES, ROWS = 256, 6, 32, 64
NBITS = ["--bits", 8, "--block", 32, "--style", "nbits"]


@pytest.fixture
def model(tmp_path):
    """A classifier of noisy examples. In front of w3, few channels are large that hardly count, and blocks with them lose the
    others: level 4 flips rows there, as in onnxruntime #29849."""
    rng = np.random.default_rng(1)
    examples = rng.normal(size=(CLASSES, WIDTH)).astype(np.float32)
    loud = np.ones(WIDTH, np.float32)
    loud[::32] = 300
    values, nodes, x = {"loud": loud}, [], "x"
    features = examples
    for i in range(LAYERS):
        w = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0].astype(np.float32)
        if i == 3:
            nodes.append(helper.make_node("Mul", [x, "loud"], ["louder"]))
            x = "louder"
            w[::32] *= 1e-4
            features = features * loud
        values[f"w{i}"] = w
        nodes += [helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]), helper.make_node("Tanh", [f"m{i}"], [f"t{i}"])]
        x, features = f"t{i}", np.tanh(features @ w)
    values["head"] = (features.T / np.linalg.norm(features, axis=1)).astype(np.float32)
    nodes.append(helper.make_node("MatMul", [x, "head"], ["logits"]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])], [numpy_helper.from_array(v, k) for k, v in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "in.onnx")
    rows = examples[rng.integers(CLASSES, size=(16, ROWS))] + 1.7 * rng.normal(size=(16, ROWS, WIDTH))
    np.savez(tmp_path / "x.npz", x=rows.astype(np.float32))
    return tmp_path / "in.onnx", rows.astype(np.float32)


def classes(path, rows):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.stack([session.run(None, {"x": x})[0].argmax(-1) for x in rows])


def levels(path):
    return {n.output[0]: helper.get_node_attr_value(n, "accuracy_level") for n in onnx.load(path, load_external_data=False).graph.node if n.op_type == "MatMulNBits"}


@pytest.mark.parametrize("more", [[], pytest.param(["--external-data", "always", "--algorithm", "gptq"], marks=pytest.mark.long)])
def test_outliers(model, tmp_path, more):
    """Level 1 goes to the product with the loud channels alone. Codes by data see none of the samples that decide."""
    path, rows = model
    auto = ["--accuracy-level", "auto", "--calib", tmp_path / "x.npz", "--ort-lib", library()]
    command = with_runtime()
    for level, flags in {"1": ["--accuracy-level", 1], "4": [], "auto": auto}.items():
        data = ["--calib", tmp_path / "x.npz", "--samples", 12, "--ort-lib", library()] if "gptq" in more and level != "auto" else []
        r = onnxquant("--json", *NBITS, *flags, *data, *more, path, tmp_path / f"{level}.onnx", binary=command)
        assert r.status == 0, r.stderr
    found = json.loads(r.stdout)["plan"]["accuracy_levels"]
    assert found["level_1"] == ["w3"] and found["weights"] == LAYERS + 1 and found["held_out"] == 4 and found["rows"] == 4 * ROWS
    assert found["loss_level_4"]["flipped"] > 0 and found["loss_level_4"]["damage"] > 10 * found["limit"]
    assert found["loss"]["flipped"] == 0 and found["loss"]["damage"] <= found["limit"]
    assert "levels     1 for 1 of 7 weights, 4 for the others: \"w3\"" in r.stderr
    assert levels(tmp_path / "auto.onnx") == {y: 1 if y == "m3" else 4 for y in levels(tmp_path / "4.onnx")}
    held_out = {name: classes(tmp_path / f"{name}.onnx", rows[12:]) for name in ("in", "1", "4", "auto")}
    kept = held_out["1"] == held_out["in"]
    assert np.sum((held_out["4"] != held_out["in"]) & kept) == found["loss_level_4"]["flipped"]
    assert not np.any((held_out["auto"] != held_out["in"]) & kept)


@pytest.mark.long
def test_few_flips_are_allowed(model, tmp_path):
    """--max-drop lets rows flip; the damage still has its limit. 4 bits lose more by themselves, and have level 4 everywhere."""
    path, _ = model
    flags = ["--json", "--block", 32, "--style", "nbits", "--accuracy-level", "auto", "--calib", tmp_path / "x.npz", "--ort-lib", library()]
    r = onnxquant(*flags, "--bits", 8, "--max-drop", "10%", path, tmp_path / "out.onnx", binary=with_runtime())
    found = json.loads(r.stdout)["plan"]["accuracy_levels"]
    assert found["most_flipped"] == 25 and found["level_1"] == ["w3"]
    r = onnxquant(*flags, "--bits", 4, "--exclude", "w3", path, tmp_path / "out4.onnx", binary=with_runtime())
    found = json.loads(r.stdout)["plan"]["accuracy_levels"]
    assert "level_1" not in found and found["limit"] > 1e-4, found


def test_without_the_runtime(model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("ONNXQUANT_ORT_LIB", raising=False)
    r = onnxquant(*NBITS, "--accuracy-level", "auto", "--calib", tmp_path / "x.npz", model[0], tmp_path / "out.onnx")
    assert r.status == 1 and "ONNX Runtime" in r.stderr and not (tmp_path / "out.onnx").exists()


def test_no_product_has_a_level(model, tmp_path):
    """A setting that concerns no weight is refused."""
    flags = ["--bits", 4, "--exclude", "w*", "--target", "ort", "--accuracy-level", "auto", "--calib", tmp_path / "x.npz", "--ort-lib", library()]
    r = subprocess.run([with_runtime(), *map(str, flags), model[0], tmp_path / "out.onnx"], capture_output=True, text=True)
    assert r.returncode == 2 and "add --style nbits; --allow-fallback permits that" in r.stderr and not (tmp_path / "out.onnx").exists(), r.stderr
