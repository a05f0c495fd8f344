"""The styles nbits and qdq, by what the models compute.

The style dq is checked elsewhere against the codes themselves; here each model
in another style has to compute what the float model does with the weights that
the style dq decodes to.
"""
import json
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

import graphs
import grid
import runtime
from command import CORPUS, TINYGPT, onnxquant
from conversion import Conversion

FOLDER = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((FOLDER / "INDEX.json").read_text()) if c["runner"] == "onnxruntime"}
SETTINGS = {
    "int4-32": ["-bits", "4", "-block", "32", "--ops", "all"],
    "zero-point": ["--bits", "4", "--block", "16", "--zero-point", "--ops", "all"],
    "int8-channel": ["--bits", "8", "--block", "-1", "--ops", "all"],
    "int2-zero-point": ["--bits", "2", "--block", "64", "--zero-point"],
    "products": ["-bits", "4", "-block", "32"],
}


PRODUCTS = ["int2-zero-point", "products"]


@pytest.fixture(scope="module", params=grid.pairs(CASES, PRODUCTS, [s for s in SETTINGS if s not in PRODUCTS]), ids=lambda p: f"{p[1]}-{p[0]}")
def pair(request, tmp_path_factory):
    name, setting = request.param
    folder = tmp_path_factory.mktemp("styles")
    (folder / "dq").mkdir()
    return name, setting, Conversion(FOLDER / name / "model.onnx", folder / "dq", SETTINGS[setting]), folder


def stored_inputs(name):
    files = sorted((FOLDER / name / "test_data_set_0").glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(p)) for p in files]


def in_style(style, setting, source, path):
    r = onnxquant(*SETTINGS[setting], "--style", style, source, path)
    assert r.status == 0, r.stderr
    return path


@pytest.mark.sampled(2)
def test_nbits_computes_the_same(pair):
    name, setting, dq, folder = pair
    path = in_style("nbits", setting, dq.source, folder / "out.onnx")
    if CASES[name]["checked"] != "none":
        onnx.checker.check_model(path)
    feeds = stored_inputs(name)
    # A weight without codes that the operators can read stays behind DequantizeLinear.
    fused = setting != "int2-zero-point"
    runtime.assert_same(runtime.run(path, feeds, fused=fused), runtime.run(dq.pair.put_back(), feeds))


# ONNX Runtime 1.31 has no QuantizeLinear to two bits in blocks.
@pytest.mark.parametrize("setting", ["int4-32", "zero-point", "int8-channel"])
@pytest.mark.parametrize("name", ["mm_chain", "gemm_nt_c", "conv2d", "tied_embed_gemm", "const_node", "if_outer_weight", "opset12", "batched_3d"])
def test_qdq_computes_the_same(name, setting, tmp_path):
    (tmp_path / "dq").mkdir()
    dq = Conversion(FOLDER / name / "model.onnx", tmp_path / "dq", SETTINGS[setting])
    path = in_style("qdq", setting, dq.source, tmp_path / "out.onnx")
    onnx.checker.check_model(path, full_check=True)
    feeds = stored_inputs(name)
    runtime.assert_same(runtime.run(path, feeds), runtime.run(dq.pair.put_back(), feeds))
    kept, model = graphs.load(dq.source), graphs.load(path)
    assert Counter(sizes(kept)) - Counter(sizes(model)) == Counter(), "a float weight is gone"


def sizes(model):
    return [tuple(t.dims) for s in graphs.scopes(model).values() for t in s.stored.values() if t.data_type == onnx.TensorProto.FLOAT]


def operators(model):
    return Counter(n.op_type for s in graphs.scopes(model).values() for n in s.body.node)


# What becomes of the operators of some models: MatMulNBits, GatherBlockQuantized, and what is left of them.
TAKEN = {
    "mm_chain": {"MatMulNBits": 3, "MatMul": 0, "Add": 0},  # biases go along
    "gemm_nt_c": {"MatMulNBits": 1, "Gemm": 0},
    "tied_embed_transpose": {"MatMulNBits": 1, "GatherBlockQuantized": 1, "Transpose": 0},
    "tied_embed_gemm": {"MatMulNBits": 1, "GatherBlockQuantized": 1},
    "shared_two_matmul": {"MatMulNBits": 2, "DequantizeLinear": 0},
    "behind_transpose": {"MatMulNBits": 1, "Transpose": 0},
    "if_outer_weight": {"MatMulNBits": 2, "DequantizeLinear": 0},
    "weight_left": {"MatMulNBits": 0, "DequantizeLinear": 1},
    "batched_3d": {"MatMulNBits": 0, "DequantizeLinear": 1},
}


@pytest.mark.parametrize("name", TAKEN)
def test_nbits_takes_the_place(name, tmp_path):
    path = in_style("nbits", "int4-32", FOLDER / name / "model.onnx", tmp_path / "out.onnx")
    found = operators(onnx.load(path))
    assert {op: found[op] for op in TAKEN[name]} == TAKEN[name]


@pytest.mark.parametrize("style", ["dq", "nbits"])
@pytest.mark.parametrize("name", ["tied_embed_transpose", "tied_embed_gemm"])
def test_tied_weight_is_stored_once(name, style, tmp_path):
    """In bytes: the codes of one matrix, its scales, and a structure without room for another."""
    source = FOLDER / name / "model.onnx"
    path = in_style(style, "int4-32", source, tmp_path / "out.onnx")
    model = onnx.load(source)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    rows, k = weight.dims
    stored = graphs.load(path).graph.initializer
    codes = [t for t in stored if t.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT8)]
    assert [len(t.raw_data) for t in codes] == [rows * k // 2]
    structure = path.stat().st_size - sum(len(t.raw_data) for t in stored)
    assert structure < source.stat().st_size - len(weight.raw_data) - sum(len(t.raw_data) for t in model.graph.initializer if t is not weight) + 1200
    assert not any(t.name == weight.name for t in stored), "the float weight is still there"


def test_nbits_of_a_language_model(tmp_path):
    """tinygpt, with an embedding that is its head too: nearly the same in both styles."""
    source = TINYGPT / "model.onnx"
    tokens = runtime.random_feeds(source, size=16)
    outputs = {}
    for style in ("dq", "nbits"):
        path = in_style(style, "int4-32", source, tmp_path / f"{style}.onnx")
        outputs[style] = runtime.run(path, tokens)
    runtime.assert_same(outputs["nbits"], outputs["dq"])
    assert np.isfinite(outputs["nbits"][0]).all()


@pytest.mark.parametrize("args, level", [((), 4), (("--accuracy-level", "1"), 1), (("--accuracy-level", "0"), None)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_accuracy_level(args, level, bits, tmp_path):
    """By default MatMulNBits has the level that DequantizeLinear has where it is fused, and errors of that size."""
    out = tmp_path / "out.onnx"
    onnxquant("--style", "nbits", "--bits", bits, "--block", 32, *args, TINYGPT / "model.onnx", out)
    found = [{a.name: a.i for a in n.attribute}.get("accuracy_level") for n in onnx.load(out).graph.node if n.op_type == "MatMulNBits"]
    assert found and set(found) == {level}
    feeds = runtime.random_feeds(out)
    exact = runtime.run(out, feeds)
    s = ort.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    got = s.run(None, dict(zip((i.name for i in s.get_inputs()), feeds, strict=True)))
    assert runtime.relative_error(got, exact) < (0.05 if level == 4 else 1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("fmt,quant_type", [("nf4", 1), ("fp4", 0)])
def test_bnb4_equals_onnxruntime(fmt, quant_type, dtype, tmp_path):
    """MatMulBnb4 has the bytes of MatMulBnb4Quantizer, and dequantize returns what it multiplies by."""
    k, n, block = 192, 37, 64
    w = (np.random.default_rng(quant_type).standard_normal((k, n)) * 0.05).astype(dtype)
    w[:, 0], w[5, 1], w[:block, 2] = 0, 1000, -0.0
    w[:, 3] = np.linspace(-1, 1, k)
    w[:, 4] = [(-1) ** i * 1e-6 for i in range(k)]
    w[0, 4] = 1  # small negative quotients
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                                   [value("x", element, [None, k])], [value("y", element, [None, n])], [numpy_helper.from_array(w, "w")])
    source, path, back = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "back.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), source)
    quantizer = MatMulBnb4Quantizer(onnx.load(source), quant_type, block)
    quantizer.process()
    want = quantizer.model.model.graph

    assert onnxquant("--format", fmt, "--style", "nbits", source, path).status == 0
    got = onnx.load(path).graph
    assert [t.raw_data for t in got.initializer] == [t.raw_data for t in want.initializer]
    assert [{a.name: a.i for a in g.node[0].attribute} for g in (got, want)] == [{"K": k, "N": n, "block_size": block, "quant_type": quant_type}] * 2
    assert onnxquant("verify", source, path).status == 0
    assert onnxquant("dequantize", path, back).status == 0
    [decoded] = [numpy_helper.to_array(t) for t in onnx.load(back).graph.initializer]
    np.testing.assert_array_equal(runtime.run(path, [np.eye(k, dtype=dtype)])[0], decoded)
