"""internal/target/kernels_ort.txt, and what a conversion does where it says that a kernel is missing."""
import json

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
import numpy as np

import kernels
from command import CORPUS, onnxquant

TABLE = {line.split()[0]: [tuple(map(int, s.split("-"))) for s in line.split()[1:]]
         for line in kernels.FILE.read_text().splitlines() if not line.startswith("#")}
LOST = {op: spans[-1][1] for op, spans in TABLE.items() if spans and spans[-1][1] < kernels.NEWEST and kernels.schema_at(op, kernels.NEWEST)}


def test_the_table_is_that_of_the_runtime():
    assert kernels.FILE.read_text() == kernels.table(), "make kernels writes it anew"


def test_the_table_of_newer_opsets_is_that_of_a_newer_runtime():
    if ort.__version__ in kernels.FILE.read_text():
        pytest.skip("the pinned ONNX Runtime loads none of them")
    assert kernels.NEXT.read_text() == kernels.table(kernels.NEWEST + 1, kernels.LAST), "make kernels-next writes it anew"
    assert kernels.lost() == []


@pytest.mark.parametrize("product, style, decision", [("MatMul", [], "quantize"), ("Conv", [], "quantize"), ("Conv", ["--style", "dq"], "keep")])
def test_an_opset_without_dequantize_linear(product, style, decision, tmp_path):
    """ONNX Runtime 1.32 loads opset 28, but decodes nothing there."""
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    model = beside("Neg", 28, (64, 32) if product == "MatMul" else (8, 4, 3, 3))
    model.ir_version = 13
    onnx.save(model, source)
    plan = convert(source, out, "--bits", "4", "--block", "32", "--target", "ort", *style)
    assert plan["tensors"][0]["decision"] == decision and "DequantizeLinear" not in {n.op_type for n in onnx.load(out).graph.node}
    if decision == "keep":
        assert "no kernel for DequantizeLinear at opset 28" in plan["tensors"][0]["reason"]
    convert(source, out, "--bits", "4", "--block", "32")
    found = json.loads(onnxquant("inspect", "--json", out).stdout)["hazards"]
    assert ["w_DequantizeLinear (DequantizeLinear) at opset 28"] in [h["where"] for h in found if h["check"] == "ort-kernels"]


def test_the_table_of_bfloat16_is_that_of_the_runtime():
    assert kernels.HALVES.read_text() == kernels.halves(), "make kernels writes it anew"


def test_the_operators_without_float16_are_those_of_the_runtime():
    assert kernels.FLOAT_OPS.read_text() == kernels.float_ops(), "make kernels writes it anew"


def beside(op, opset, weight=(64, 32)):
    """A node without a kernel at higher opsets, beside a product with a weight."""
    m = kernels.node_model(kernels.schema_at(op, opset), opset)
    w = np.random.default_rng(3).standard_normal(weight).astype(np.float32)
    m.graph.initializer.append(numpy_helper.from_array(w, "w"))
    product = "Conv" if len(weight) > 2 else "MatMul"
    m.graph.node.append(helper.make_node(product, ["x", "w"], ["y"]))
    m.graph.input.append(helper.make_tensor_value_info("x", T.FLOAT, [1, weight[1], 5, 5] if product == "Conv" else [2, weight[0]]))
    m.graph.output.append(helper.make_tensor_value_info("y", T.FLOAT, None))
    return m


def convert(source, out, *args):
    r = onnxquant("--json", "--ops", "all", *args, source, out)
    assert r.status == 0, r.stderr
    return json.loads(r.stdout)["plan"]


@pytest.mark.parametrize("op", sorted(LOST))
def test_lost_kernels(op, tmp_path):
    """A portable model says so, --target ort keeps what ONNX Runtime loads."""
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(beside(op, LOST[op]), source)
    assert kernels.loads(onnx.load(source))

    plan = convert(source, out, "--bits", "2")
    assert not kernels.loads(onnx.load(out))
    assert any(op in w and "ONNX Runtime" in w for w in plan["warnings"])
    found = json.loads(onnxquant("inspect", "--json", out).stdout)["hazards"]
    assert [h["where"] for h in found if h["check"] == "ort-kernels"] == [[f"o0 ({op}) at opset 25"]]

    plan = convert(source, out, "--bits", "2", "--target", "ort")
    assert kernels.loads(onnx.load(out))
    assert plan["tensors"][0]["form"] == "MatMulNBits" and plan["opset_after"] == LOST[op]

    onnx.save(beside(op, LOST[op], (8, 4, 3, 3)), source)
    for args in (["--bits", "2", "--conv-format", "int2"], ["--format", "mxfp8"] if LOST[op] < 24 else ["--format", "uint2", "--conv-format", "uint2", "--zero-point"]):
        plan = convert(source, out, "--target", "ort", *args)
        assert kernels.loads(onnx.load(out))
        assert plan["tensors"][0]["decision"] == "keep" and op in plan["tensors"][0]["reason"]
    plan = convert(source, out, "--target", "ort")
    assert kernels.loads(onnx.load(out)) and plan["tensors"][0]["decision"] == "quantize"


def test_restyling_says_so(tmp_path):
    source, nbits, out = (tmp_path / f for f in ("in.onnx", "nbits.onnx", "out.onnx"))
    onnx.save(beside("RoiAlign", 16), source)
    convert(source, nbits, "--bits", "2", "--style", "nbits", "--block", "32")
    r = onnxquant("restyle", "--style", "dq", nbits, out)
    assert r.status == 0 and "RoiAlign" in r.stderr, r.stderr
    assert not kernels.loads(onnx.load(out))


CASES = ["gather_embed", "mm_single", "conv2d", "transformer", "lstm", "if_own_weights", "behind_split", "only_elementwise", "gemm_nt_c",
         "deep_graph", "gather_elements_nd", "ms_attention", "up_squeeze_op11", "behind_concat", "loop_body_weight", "scalars"]


@pytest.mark.parametrize("case", CASES)
def test_bfloat16(case, tmp_path):
    """inspect and a warning foresee which models ONNX Runtime refuses."""
    source, out = CORPUS / "structures" / case / "model.onnx", tmp_path / "out.onnx"
    r = onnxquant("--bfloat16", source, out)
    assert r.status == 0, r.stderr
    found = [h["check"] for h in json.loads(onnxquant("inspect", "--json", out).stdout)["hazards"]]
    refused = "ort-bfloat16" in found
    assert refused == ("no kernels with bfloat16" in r.stderr)
    assert kernels.loads(onnx.load(out)) != refused
