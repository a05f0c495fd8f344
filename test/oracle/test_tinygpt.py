"""How much a trained language model suffers, and the tables of that in the documents."""
import pytest

import accuracy
from command import TINYGPT, onnxquant
from divergence import divergence

# The reference tool's round-to-nearest reaches 0.0069, 0.0093 and 0.0118.
BOUNDS = [
    ("32", [], 0.0070), ("128", [], 0.0095), ("-1", [], 0.0120), ("32", ["--zero-point"], 0.0060),
    ("32", ["--algorithm", "rtn-ort"], 0.0063), ("32", ["--algorithm", "mse"], 0.0052),
    ("32", ["--zero-point", "--algorithm", "mse"], 0.0043), ("32", ["--algorithm", "best"], 0.0036),
    ("32", ["--zero-point", "--algorithm", "best"], 0.0033), ("32", ["--zero-point", "--algorithm", "hqq", "--style", "nbits"], 0.0048), ("-1", ["--algorithm", "mse"], 0.0073),
    ("32", ["--scale-type", "float16"], 0.0070), ("16", ["--algorithm", "best", "--scale-type", "int8"], 0.0028),
    ("32", ["--algorithm", "best", "--scale-type", "float16"], 0.0038),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("block, more, bound", BOUNDS)
def test_divergence(block, more, bound, tmp_path):
    out = tmp_path / "out.onnx"
    r = onnxquant("-bits", "4", "-block", block, *more, TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    assert 0 < divergence(out) <= bound


@pytest.mark.parametrize("name, settings", accuracy.TABLES.items())
def test_table(name, settings):
    """The table has all settings in their order, and sizes as they are now."""
    rows = accuracy.written(name)
    assert [row[0] for row in rows] == [accuracy.setting(args) for args in settings]
    for args, row in zip(settings, rows):
        assert row[1] == f"{accuracy.bits_per_weight(args):.3f}", f"{row[0]}: make accuracy"
