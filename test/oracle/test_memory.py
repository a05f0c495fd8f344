"""Peak memory does not grow with the model."""
import subprocess

import pytest

from command import BINARY, ROOT
from measured import Run

MIB = 96


@pytest.fixture(scope="module", params=["external", "embedded"])
def model(request, tmp_path_factory):
    """256 MiB of weights."""
    path = tmp_path_factory.mktemp("big") / "big.onnx"
    size = ["-layers", "4", "-k", "2048", "-n", "8192"]
    where = ["-embedded"] if request.param == "embedded" else []
    subprocess.run(["go", "run", "./testmodels/mkmodel", *size, *where, "big", path], cwd=ROOT, check=True)
    yield path
    for p in path.parent.iterdir():
        p.unlink()


@pytest.mark.parametrize("args", [
    ["--bits", "4", "--block", "128"],
    ["--bits", "8", "--block", "-1"],
    ["--bits", "4", "--block", "32", "--zero-point", "--external-data", "always"],
    ["--bits", "4", "--exclude", "*"],
], ids=" ".join)
def test_bounded(model, args, tmp_path):
    r = Run([BINARY, "--quiet", *args, model, tmp_path / "out.onnx"], tmp_path / "stderr", timeout=60)
    for p in tmp_path.iterdir():
        p.unlink()
    assert r.status == 0, r.stderr
    assert r.mib <= MIB, f"{r.mib:.0f} MiB"
