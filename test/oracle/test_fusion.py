"""What ONNX Runtime fuses: fusion.txt, which package target follows, and what is made of it.

`make fusion` measures the whole table again; here is a part of it.
"""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
import runtime
from command import CORPUS, TINYGPT, onnxquant

TABLE = fusion.read()
FORMS = [
    ("dq", "uint4", 128, "float16", False),
    ("dq", "int2", -1, "float32", False),
    ("dq", "int4", 48, "float32", False),
    ("dq", "int4", 32, "float32", True),
    ("dq", "int8", -1, "float16", False),
    ("dq", "uint4", -1, "float32", False),
    ("dq", "int8", -1, "float32", True),
    ("qdq", "int8", 32, "float32", False),
    ("nbits", "int4", 32, "float32", False),
]


def unfused(path):
    """The weights that inspect says are decoded at every run."""
    r = onnxquant("inspect", "--json", path)
    assert r.status == 0, r.stderr
    hazards = {h["check"]: h["where"] for h in json.loads(r.stdout)["hazards"]}
    return {w.removesuffix("_DequantizeLinear_Output") for w in hazards.get("ort-unfused", [])}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [fusion.FIRST, *FORMS], ids=fusion.label)
def test_table(form, tmp_path):
    """The table is as measured, and inspect says the same of every weight."""
    chains = [c for c in fusion.CHAINS if c in TABLE[fusion.label(form)]][::1 if form != fusion.FIRST else 2]
    for some in fusion.portions(chains):
        path, _ = fusion.convert(form, some, tmp_path)
        left, told = fusion.decoded(fusion.optimized(path, tmp_path)), unfused(path)
        for chain in some:
            layers = ["/".join((*chain, str(i))) for i in range(fusion.LAYERS)]
            got = "".join("d" if w in left else "f" for w in layers)
            assert got == TABLE[fusion.label(form)][chain], chain
            if form[0] != "qdq":  # its codes are not in the file
                assert got == "".join("d" if w in told else "f" for w in layers), f"inspect: {chain}"


def left_without_reason(path, plan, folder):
    """The quantized weights that ONNX Runtime decodes at every run although the plan tells no reason."""
    left = fusion.decoded(fusion.optimized(path, folder))
    return {t["name"] for t in plan["tensors"] if t["decision"] == "quantize" and t["name"] in left and "no MatMulNBits" not in t.get("note", "")}


# Products for which no form is fused.
NO_FORM = {"Conv"}


@pytest.mark.parametrize("form", [fusion.FIRST, *FORMS[:2], FORMS[3]], ids=fusion.label)
def test_target_ort(form, tmp_path):
    """With --target ort only those weights are decoded at every run for which there is no other form."""
    chains = [c for c in (fusion.CHAINS[::2] if form == fusion.FIRST else fusion.FEW) if c[0] not in NO_FORM]
    for some in fusion.portions(chains):
        path, plan = fusion.convert(form, some, tmp_path, "--target", "ort")
        assert not fusion.decoded(fusion.optimized(path, tmp_path)), plan


SETTINGS = ["--bits 4 --block 32 --ops all", "--bits 8"]
CASES = {c["case"] for c in json.loads((CORPUS / "structures" / "INDEX.json").read_text()) if c["runner"] == "onnxruntime"}


@pytest.mark.long
@pytest.mark.parametrize("args", SETTINGS)
def test_structures(args, tmp_path):
    for case in sorted(CASES):
        out = tmp_path / "out.onnx"
        r = onnxquant("--json", "--target", "ort", *args.split(), CORPUS / "structures" / case / "model.onnx", out)
        assert r.status == 0, r.stderr
        assert not left_without_reason(out, json.loads(r.stdout)["plan"], tmp_path), case


@pytest.mark.parametrize("args", [*SETTINGS, "--bits 4 --block 32", "--bits 8 --ops all"])
def test_tinygpt(args, tmp_path):
    out = tmp_path / "out.onnx"
    r = onnxquant("--target", "ort", *args.split(), TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    assert not fusion.decoded(fusion.optimized(out, tmp_path))


def narrow(kind):
    """A product with five columns, whose weight ONNX Runtime gets in one of several ways; of one column for "one", of 40 for "wide" and "long"."""
    rows = 300 if kind == "long" else 32
    w = np.random.default_rng(0).standard_normal((rows, {"one": 1, "wide": 40, "long": 40}.get(kind, 5))).astype(np.float32)
    node, opsets, functions = helper.make_node, [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)], []
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(w.T.copy() if kind in ("turned", "one", "wide", "long") else w, "w"), numpy_helper.from_array(np.array(True), "yes")]
    product = node("MatMul", ["x", "w"], ["y"])
    nodes = [product]
    if kind in ("Identity", "Cast", "turned", "one", "wide", "long"):
        op = kind if kind in ("Identity", "Cast") else "Transpose"
        nodes = [node(op, ["w"], ["v"], **{"Cast": {"to": 1}, "Transpose": {"perm": [1, 0]}}.get(op, {})), node("MatMul", ["x", "v"], ["y"])]
    elif kind == "If":
        branches = [helper.make_graph([p], "g", [], [y]) for p in (product, node("Identity", ["x"], ["y"]))]
        nodes = [node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    elif kind == "function":
        functions = [helper.make_function("f", "F", ["x", "w"], ["y"], [product], opsets[:1])]
        nodes = [node("F", ["x", "w"], ["y"], domain="f")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", rows])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], stored), opset_imports=opsets, functions=functions, ir_version=10)


@pytest.mark.parametrize("args", ["--block 16", "--block -1 --zero-point", "--style qdq --block 16", "--target ort"])
@pytest.mark.parametrize("kind", ["plain", "Identity", "Cast", "If", "function", "turned", "one", "wide"])
def test_two_bits(kind, args, tmp_path):
    """ONNX Runtime 1.31 computes wrongly with 2 bits that it fuses, if their columns are not a multiple of 4, and refuses to turn some: it must do neither."""
    if kind == "wide" and "qdq" in args:
        pytest.skip("it has no QuantizeLinear to 2 bits in blocks")
    given, out, back = (tmp_path / n for n in ("in.onnx", "out.onnx", "back.onnx"))
    onnx.save(narrow(kind), given)
    for command in (["--bits", "2", *args.split(), given, out], ["dequantize", out, back]):
        r = onnxquant(*command)
        assert r.status == 0, r.stderr
    model = onnx.load(out)
    feeds = runtime.random_feeds(model)
    assert runtime.relative_error(runtime.run(model, feeds), runtime.run(onnx.load(back), feeds)) < 1e-3


@pytest.mark.parametrize("kind, perm", [("wide", True), ("wide", False), ("long", True)])
@pytest.mark.parametrize("opset", [13, 20, 21])
@pytest.mark.parametrize("args", ["--bits 8", "--bits 8 --zero-point"])
def test_turned_channels(args, opset, kind, perm, tmp_path):
    """Codes of int8 behind a Transpose with its perm are fused from opset 21 on: --target ort knows, and inspect says it."""
    given, plain, out = (tmp_path / n for n in ("in.onnx", "plain.onnx", "out.onnx"))
    model = narrow(kind)
    model.opset_import[0].version = opset
    if not perm:
        del model.graph.node[0].attribute[:]
    onnx.save(model, given)
    for path, target in ((plain, "portable"), (out, "ort")):
        r = onnxquant(*args.split(), "--block", "-1", "--target", target, given, path)
        assert r.status == 0, r.stderr
        assert bool(unfused(path)) == bool(fusion.decoded(fusion.optimized(path, tmp_path)))
    assert not unfused(out)
    feeds = runtime.random_feeds(model)
    assert runtime.relative_error(runtime.run(onnx.load(out), feeds), runtime.run(onnx.load(plain), feeds)) < 0.02  # activations are rounded
