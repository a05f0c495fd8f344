"""--target ort: a run of what is written does the work of the float model. Time is not measured here: see make costs."""
import importlib.util
import json
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import runtime
from command import TINYDOC, TINYGPT, onnxquant
from test_targets import optimized, optimized_nodes

OCR = pathlib.Path(importlib.util.find_spec("rapidocr_onnxruntime").origin).parent / "models"
RNG = np.random.default_rng(3)


def model(nodes, weights, x, kind=T.FLOAT):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, x)], [helper.make_tensor_value_info("y", T.FLOAT, None)],
                              [numpy_helper.from_array(RNG.standard_normal(s).astype(np.float32), n) for n, s in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def one(op, weight, x, kind=T.FLOAT, inputs=("x", "w"), **attributes):
    return model([helper.make_node(op, inputs, ["y"], **attributes)], {"w": weight}, x, kind)


CONV_BN = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("BatchNormalization", ["c", "a", "b", "m", "v"], ["y"])]
# Models, and whether MatMulNBits reads the weight.
MODELS = {
    "Conv": (one("Conv", [32, 16, 3, 3], [1, 16, 20, 20]), False),
    "Conv, short last block": (one("Conv", [32, 15, 3, 3], [1, 15, 20, 20]), False),
    "Conv, BatchNormalization": (model(CONV_BN, {"w": [32, 16, 3, 3], **dict.fromkeys("abm", [32])}, [1, 16, 20, 20]), False),
    "ConvTranspose": (one("ConvTranspose", [32, 16, 2, 2], [1, 32, 9, 9]), False),
    "Gather": (one("Gather", [400, 64], [5], T.INT64, ("w", "x")), False),
    "LSTM": (one("LSTM", [1, 128, 32], [4, 1, 32], inputs=("x", "w", "w"), hidden_size=32), False),
    "small MatMul": (one("MatMul", [64, 64], ["rows", 64]), False),
    "MatMul of 128 rows": (one("MatMul", [64, 512], [128, 64]), False),
    "MatMul of 1 row": (one("MatMul", [64, 512], [1, 64]), True),
    "large MatMul": (one("MatMul", [1024, 1024], ["rows", 1024]), True),
}
MODELS["Conv, BatchNormalization"][0].graph.initializer.append(numpy_helper.from_array(np.ones(32, np.float32), "v"))


def converted(source, out, *args):
    r = onnxquant("--json", "--target", "ort", "--ops", "all", *args, source, out)
    assert r.status == 0, r.stderr
    return json.loads(r.stdout)


@pytest.mark.parametrize("args", [("--bits", "8"), ("--bits", "4", "--conv-format", "int4", "--zero-point")], ids=["8", "4"])
@pytest.mark.parametrize("name", MODELS)
def test_forms(name, args, tmp_path):
    m, nbits = MODELS[name]
    source, out, plain = (tmp_path / f for f in ("in.onnx", "out.onnx", "plain.onnx"))
    onnx.save(m, source)
    told = converted(source, out, *args, "--block", "32")
    forms = [t["form"] for t in told["plan"]["tensors"] if t["decision"] == "quantize"]
    assert forms == (["DequantizeLinear"] if nbits else ["Cast and Mul"])  # which ONNX Runtime fuses, or folds
    assert ("MatMulNBits" in optimized(out, tmp_path)) == nbits
    assert optimized(out, tmp_path) - {"MatMulNBits"} <= optimized(source, tmp_path)

    assert onnxquant(*args, "--block", "32", "--ops", "all", "--style", "dq", source, plain).status == 0
    feeds = runtime.random_feeds(source)
    want = runtime.run(plain, feeds, fused=False)
    runtime.assert_same(runtime.run(out, feeds, fused=False), want)
    back = tmp_path / "back.onnx"
    assert onnxquant("dequantize", out, back).status == 0
    runtime.assert_same(runtime.run(back, feeds, fused=False), want)
    assert onnxquant("verify", source, out).status == 0


@pytest.mark.parametrize("source", [TINYGPT / "model.onnx", OCR / "ch_ppocr_mobile_v2.0_cls_infer.onnx",
                                    pytest.param(OCR / "ch_PP-OCRv4_rec_infer.onnx", marks=pytest.mark.long),
                                    pytest.param(OCR / "ch_PP-OCRv4_det_infer.onnx", marks=pytest.mark.long)], ids=lambda p: p.stem)
def test_models(source, tmp_path):
    """All weights are quantized, and ONNX Runtime's optimized model has the operators of the float model."""
    out = tmp_path / "out.onnx"
    told = converted(source, out, "--bits", "8")
    assert out.stat().st_size < 0.5 * source.stat().st_size
    assert optimized(out, tmp_path) - {"MatMulNBits"} <= optimized(source, tmp_path)


@pytest.mark.parametrize("flags, form", [(["--format", "q4_k"], "DequantizeLinear and Sub"), (["--bits", "8", "--smallest"], "GatherBlockQuantized")])
def test_codes_in_memory(flags, form, tmp_path):
    """An encoding that ONNX Runtime cannot fold is written as asked for; with --smallest codes stay codes."""
    out = tmp_path / "out.onnx"
    told = converted(TINYGPT / "model.onnx", out, *flags)
    forms = {t["form"] for t in told["plan"]["tensors"] if t["decision"] == "quantize"}
    assert form in forms and "Cast and Mul" not in forms, forms
    assert onnxquant("verify", "--engine", "none", TINYGPT / "model.onnx", out).status == 0


def test_max_slowdown_without_runtime(tmp_path, monkeypatch):
    """It needs ONNX Runtime, and writes nothing without."""
    out = tmp_path / "out.onnx"
    monkeypatch.setenv("ONNXQUANT_ORT_LIB", str(tmp_path / "none.so"))
    r = onnxquant("--max-slowdown", "1.1", TINYGPT / "model.onnx", out)
    assert r.status == 1 and "the speed cannot be measured" in r.stderr, r.stderr
    assert not list(tmp_path.iterdir())


DECODED = ["-bits 8 --ops all", "-bits 4 --block 32 --ops all --zero-point --conv-format int4", "-bits 8 --block -1 --ops all", "--style nbits --ops all", "--format fp8-e4m3 --ops all",
           "--format q4_k --ops all --target ort", "-bits 8 --ops all --target ort", "-bits 8 --ops all --target ort --smallest", "--format nf4 --ops all", "--style qdq -bits 8"]


@pytest.mark.parametrize("source", [TINYGPT / "model.onnx", TINYDOC / "model.onnx", OCR / "ch_ppocr_mobile_v2.0_cls_infer.onnx"], ids=lambda p: p.parent.name)
@pytest.mark.parametrize("args", DECODED)
def test_decoded_at_every_run(args, source, tmp_path):
    """The plan says which weights ONNX Runtime decodes at every run: in its optimized model, a DequantizeLinear reads their codes."""
    out = tmp_path / "out.onnx"
    r = onnxquant("--json", *args.split(), source, out)
    assert r.status == 0, r.stderr
    told = json.loads(r.stdout)["plan"].get("decoded", [])
    weights = [w for d in told for w in d["weights"]]
    assert len(set(weights)) == len(weights) and all(d["bytes"] > 0 for d in told)
    decoders = {n.input[0] for n in optimized_nodes(out, tmp_path) if n.op_type == "DequantizeLinear"}
    assert all(any(codes.startswith(w) for codes in decoders) for w in weights)
    assert all(any(codes.startswith(w) for w in weights) for codes in decoders)
    assert ("decoded " in r.stderr) == bool(weights)
