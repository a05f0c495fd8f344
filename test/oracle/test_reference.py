"""Codes and scales against those that nvidia-modelopt 0.47.0 wrote for the same models, byte for byte.

Two known departures. A Gemm with transB=1 is blocked along N by the
reference, and along K, over which it sums, by us. The model of opset 17 comes
out of the reference invalid; its codes are compared, and ours has to run.
"""
import json

import numpy as np
import onnx
import pytest

import graphs
from command import SHARED
from conversion import Conversion

FOLDER = SHARED / "golden" / "e2e"
CASES = json.loads((FOLDER / "cases.json").read_text())["cases"] if FOLDER.is_dir() else []


class Reference(Conversion):
    def __init__(self, case, folder):
        params = self.params = case["params"]
        self.theirs = graphs.Pair(graphs.load(FOLDER / params["model"]), graphs.load(FOLDER / params["output_model"])).weights
        args = ["-bits", "4", "-block", str(params["block_size"])]
        if eight := {w.name: {"bits": 8, "block": -1} for w in self.theirs if w.decoded.bits == 8}:
            (folder / "in").mkdir()
            precision = folder / "in" / "precision.json"
            precision.write_text(json.dumps(eight))
            args += ["--precision-info", precision]
        (folder / "out").mkdir()
        super().__init__(FOLDER / params["model"], folder / "out", args)


@pytest.fixture(scope="module", params=CASES, ids=lambda c: c["name"].removeprefix("e2e/"))
def case(request, tmp_path_factory):
    return Reference(request.param, tmp_path_factory.mktemp("reference"))


def test_converts(case):
    case.check_converted()
    case.check_valid()


def test_runs(case):
    width = case.pair.original.graph.input[0].type.tensor_type
    rng, shape = np.random.default_rng(0), [d.dim_value or 3 for d in width.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(width.elem_type)
    case.check_runs([rng.standard_normal(shape).astype(dtype)])


def test_same_codes_and_scales(case):
    ours = {w.name: w.decoded for w in case.pair.weights}
    assert ours.keys() == {w.name for w in case.theirs}
    for w in case.theirs:
        a, b = ours[w.name], w.decoded
        if "transb" in case.params["model"]:
            assert (a.axis, b.axis) == (1, 0)
            continue
        assert (a.axis, a.block_size, a.codes_tensor.data_type) == (b.axis, b.block_size, b.codes_tensor.data_type)
        assert a.codes_tensor.raw_data == b.codes_tensor.raw_data, f"codes of {w.name}"
        assert a.scale.dtype == b.scale.dtype and a.scale.shape == b.scale.shape, f"scales of {w.name}"
        assert a.scale.tobytes() == b.scale.tobytes(), f"scales of {w.name}"
