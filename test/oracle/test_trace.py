"""verify --trace names the weight or the activation that was made harmful."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from command import BINARY, TINYGPT, onnxquant
from test_verify import library, perceptron, with_runtime


def trace(engine, *args):
    command = ["--engine", "ort", "--ort-lib", library()] if engine == "ort" else ["--engine", engine]
    p = subprocess.run([with_runtime() if engine == "ort" else BINARY, "verify", "--json", "--trace", *command, *map(str, args)],
                       capture_output=True, text=True, timeout=300)
    assert p.returncode in (0, 1), p.stderr
    found = json.loads(p.stdout)["trace"]
    assert not found.get("reason") and found["points"]
    return found


def changed(path, name, change):
    model = onnx.load(path)
    [tensor] = [t for t in model.graph.initializer if t.name == name]
    values = numpy_helper.to_array(tensor).copy()
    change(values)
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    onnx.save(model, path)


@pytest.mark.parametrize("engine", ["go", "ort"])
def test_a_wrong_scale(engine, tmp_path):
    """A weight of the third layer has scales that are wrong in a quarter of its columns."""
    source, out = TINYGPT / "model.onnx", tmp_path / "out.onnx"
    assert onnxquant("--bits", "8", "--block", "32", source, out).status == 0
    clean = trace(engine, source, out)
    assert clean["breaks"] == -1 and min(p["alone_db"] for p in clean["points"] if p.get("weights")) > 35

    def wrong(scales):
        scales[:, ::4] *= 3

    changed(out, "onnx::MatMul_506_scale", wrong)
    found = trace(engine, source, out)
    point = found["points"][found["breaks"]]
    assert found["breaks"] == found["blame"]
    assert [w["name"] for w in point["weights"]] == ["onnx::MatMul_506"] and point["alone_db"] < 10 < point["before_db"]
    if engine == "ort":
        assert abs(point["itself_db"] - point["sqnr_db"]) < 1
    # Each row of the others is as good as it was.
    others = [p["alone_db"] for i, p in enumerate(found["points"]) if p.get("weights") and i != found["breaks"]]
    assert min(others) > 35


@pytest.mark.parametrize("engine", ["go", "ort"])
def test_a_clipped_range(engine, tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(perceptron(), source)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32))
    assert onnxquant("calibrate", "--data", tmp_path / "x.npy", "--engine", "go", "-o", tmp_path / "r.json", source).status == 0
    assert onnxquant("--activations", "static", "--ranges", tmp_path / "r.json", source, out).status == 0
    given = ["--inputs", tmp_path / "x.npy"]
    clean = trace(engine, *given, source, out)
    assert clean["breaks"] == -1

    def clip(scale):
        scale *= np.float32(0.1)

    changed(out, "h_scale", clip)
    found = trace(engine, *given, source, out)
    point = found["points"][found["breaks"]]
    assert point["codes"] and point["value"] == "h" and point["alone_db"] < 10
    assert point["range"][1] < 0.2 * point["float_range"][1]
