"""Whole models compute the same after internal/opset raised them."""
import json

import onnx
import pytest
from onnx import numpy_helper

import graphs
import grid
import opsets
import runtime
from command import CORPUS
from test_real import FEEDS, MODELS

FOLDER = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((FOLDER / "INDEX.json").read_text())}
TARGETS = 21, 25

# What ONNX Runtime does not run at an opset, though the operator did not change.
NOT_RUN = {("opset24", 25): "Swish"}


def low(case):
    """Whether the case is below one of the targets."""
    versions = [v for d, v in case["opset"].items() if d in ("", "ai.onnx")]
    return not versions or max(versions) < max(TARGETS)


@pytest.mark.parametrize("name, to", grid.pairs([name for name, case in CASES.items() if low(case)], TARGETS))
def test_structure(name, to):
    case = CASES[name]
    original = graphs.load(FOLDER / name / "model.onnx")
    model = opsets.raised(original, to)
    assert opsets.opset_of(model.opset_import) == max(to, opsets.opset_of(original.opset_import) or 0)
    if case["checked"] == "full":
        onnx.checker.check_model(model, full_check=True)
    if case["runner"] != "onnxruntime":
        return
    files = sorted((FOLDER / name / "test_data_set_0").glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    feeds = [numpy_helper.to_array(onnx.load_tensor(p)) for p in files]
    if (name, to) in NOT_RUN:
        with pytest.raises(Exception, match=NOT_RUN[name, to]):
            runtime.run(model, feeds)
        return
    runtime.assert_same(runtime.run(model, feeds), runtime.run(original, feeds))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("to", TARGETS)
def test_real_model(name, to):
    original = graphs.load(MODELS[name])
    model = opsets.raised(original, to)
    if opsets.opset_of(original.opset_import) >= to:
        assert model == original
        return
    feeds = runtime.random_feeds(original, **FEEDS.get(name, {}))
    runtime.assert_same(runtime.run(model, feeds), runtime.run(original, feeds))
