"""Weights behind Loop, Scan, If, Slice, Split and Concat: what is quantized, and whether it computes the same."""
import json

import onnx
import pytest

import runtime
from command import onnxquant
from followed import CARRIED, FOLDED, model

CASES = CARRIED | FOLDED
STYLES = ["dq", "qdq", "nbits"]
BITS8 = ["--bits", "8", "--block", "-1", "--ops", "all"]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("followed") / "model.onnx"
    onnx.save(model(CASES[request.param]), path)
    return CASES[request.param], path


def converted(path, *args):
    """The output, and what the command says of each float tensor."""
    out = path.with_name("out.onnx")
    r = onnxquant(*args, "--json", path, out)
    assert r.status == 0, r.stderr
    return out, {t["name"]: t.get("reason") for t in json.loads(r.stdout)["plan"]["tensors"]}


@pytest.mark.parametrize("style", STYLES)
def test_takes_and_computes(case, style):
    want, path = case
    out, tensors = converted(path, *BITS8, "--style", style)
    assert tensors == want.tensors | (want.fake if style == "qdq" else {})
    onnx.checker.check_model(out, full_check=style != "nbits")
    feeds = runtime.random_feeds(path)
    got, exact = runtime.run(out, feeds), runtime.run(path, feeds)
    assert [g.shape for g in got] == [e.shape for e in exact]
    assert runtime.relative_error(got, exact) < 0.02


@pytest.mark.parametrize("style", STYLES)
def test_can_be_verified_and_decoded(case, style):
    """verify compares every quantized weight; dequantize gives a model that computes the same."""
    want, path = case
    out, tensors = converted(path, *BITS8, "--style", style)
    r = onnxquant("verify", "--engine", "none", "--json", path, out)
    assert r.status == 0, r.stdout + r.stderr
    assert {w["name"] for w in json.loads(r.stdout)["weights"]} == (
        set(want.compared) or {name for name, why in tensors.items() if not why})
    back = path.with_name("float.onnx")
    r = onnxquant("dequantize", out, back)
    assert r.status == 0, r.stderr
    feeds = runtime.random_feeds(path)
    runtime.assert_same(runtime.run(back, feeds), runtime.run(out, feeds))
