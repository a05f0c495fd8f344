"""onnx's own node tests in the pure Go engine."""
import subprocess
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from command import ROOT

# How many tests must be right, at least. None may be wrong.
RIGHT = 1733


def write(value, path):
    """A tensor becomes a file, a sequence a folder, nothing an empty file."""
    if value is None:
        path.with_name(path.name + ".none").touch()
    elif isinstance(value, list):
        path.mkdir()
        for i, item in enumerate(value):
            write(item, path / f"item_{i}")
    else:
        tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value))
        path.with_name(path.name + ".pb").write_bytes(tensor.SerializeToString())


def write_all(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        place = folder / case.name
        place.mkdir()
        place.joinpath("model.onnx").write_bytes(case.model.SerializeToString())
        place.joinpath("tolerance").write_text(f"{case.rtol} {case.atol}")
        (inputs, outputs), = case.data_sets
        for kind, values in (("input", inputs), ("output", outputs)):
            for i, value in enumerate(values):
                write(value, place / f"{kind}_{i}")


@pytest.mark.long
def test_nodes(tmp_path):
    write_all(tmp_path)
    lines = subprocess.run(["go", "run", "./test/oracle/nodetests", tmp_path], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    verdicts = [line.split(maxsplit=2) for line in lines]
    assert not [v for v in verdicts if v[1] == "wrong"]
    assert sum(v[1] == "right" for v in verdicts) >= RIGHT, f"of {len(verdicts)}"
