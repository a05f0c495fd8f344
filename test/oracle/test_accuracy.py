"""Cells of the tables in docs/accuracy.md, with 5 % of slack."""
import subprocess

import pytest

import models
import page
import settings
from test_verify import library, with_runtime

MODELS = {m.name: m for m in models.MODELS}
ALGORITHMS = {a.name: a for a in settings.ALGORITHMS}
SLACK = 1.05

CELLS = [(model, layout, algorithm) for model, layout, algorithms in [
    ("tinydoc", "int4 --block 32", ["rtn", "rtn-ort", "mse", "best"]),
    ("tinydoc", "int4 --block 32 --zero-point", ["rtn", "k_quant", "hqq", "mse", "best", "gptq, data"]),
    ("tinydoc", "int4 --block 16 --scale-type int8", ["rtn", "mse", "best"]),
    ("tinydoc", "int4 --block -1", ["mse", "best"]),
    ("tinydoc", "int2 --block 16 --zero-point", ["mse", "best"]),
    ("recognizer", "int4 --block 32 --zero-point", ["rtn"]),
] for algorithm in algorithms]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, layout, algorithm", CELLS)
def test_cell(name, layout, algorithm, tmp_path):
    model, chosen, out = MODELS[name], ALGORITHMS[algorithm], tmp_path / "out.onnx"
    data = ["--calib", model.calibration, "--ort-lib", library()] if chosen.data else []
    subprocess.run([with_runtime(), "--quiet", "--format", *layout.split(), *chosen.flags.split(), *data, "--target", "ort", model.path, out],
                   check=True, timeout=300)
    assert 0 < model.score(out).kl <= SLACK * page.written(model)[layout, algorithm]


@pytest.mark.parametrize("name, mix", [
    ("tinydoc", "by errors of weights, rtn"),
    ("recognizer", "by errors of weights, rtn")])
def test_mix(name, mix, tmp_path):
    """A mix has what the table says of it, and less than any uniform format of its size."""
    model, out = MODELS[name], tmp_path / "out.onnx"
    size, uniform, mixes = page.written_mixes(model)[0]
    data = ["--calib", model.calibration, "--ort-lib", library()] if mix.startswith("by outputs") else []
    subprocess.run([with_runtime(), "--quiet", "--auto", str(size), "--algorithm", "rtn", *data, "--target", "ort", model.path, out], check=True, timeout=600)
    assert out.stat().st_size <= size
    assert 0 < model.score(out).kl <= min(SLACK * mixes[mix], uniform)


@pytest.mark.parametrize("name", MODELS)
def test_table(name):
    """The table has nothing that the settings do not want."""
    model = MODELS[name]
    want = {(layout, a.name) for layout in settings.LAYOUTS for a in settings.ALGORITHMS if a.takes(layout, model)}
    assert page.written(model).keys() <= want, "make accuracy"
