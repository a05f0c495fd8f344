"""verify runs OUT itself in ONNX Runtime, with the options that users' sessions have."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import runtime
from command import CORPUS, onnxquant
from test_verify import library, perceptron, verify, with_runtime


def by_default(*args):
    return verify("--ort-lib", library(), *args, binary=with_runtime())


def sqnr(want, got):
    want, got = want.astype(np.float64), got.astype(np.float64)
    return 10 * np.log10(np.sum(want ** 2) / np.sum((got - want) ** 2))


def test_by_default(tmp_path):
    """The Go engine runs the weights as floats, ONNX Runtime runs OUT: as an inference session of Python does."""
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(perceptron(), path)
    assert onnxquant("--bits", "8", "--block", "32", path, out).status == 0
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    x[:, 5] *= 30
    np.save(tmp_path / "x.npy", x)
    report = by_default("--inputs", tmp_path / "x.npy", path, out)["execution"]
    itself, users = report["itself"], onnxruntime.InferenceSession(out).run(None, {"x": x})[0]
    assert report["engine"] == "pure Go" and itself["engine"].startswith("ONNX Runtime")
    assert abs(itself["outputs"][0]["sqnr_db"] - sqnr(runtime.run(path, [x])[0], users)) < 0.5
    # Another accuracy level makes a difference: both are shown.
    exact = itself["accuracy_level_1"][0]["sqnr_db"]
    assert exact > itself["outputs"][0]["sqnr_db"] + 1 and abs(exact - report["outputs"][0]["sqnr_db"]) < 0.5


def transposed(half):
    """A Transpose before a MatMul, which ends ONNX Runtime if they are of half floats."""
    w = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float16 if half else np.float32)
    nodes = [("Transpose", "x", "t", {"perm": [1, 2, 0]}), ("MatMul", "t w", "y", {})]
    if half:
        nodes = [("Cast", "x", "xh", {"to": TensorProto.FLOAT16}), ("Transpose", "xh", "t", {"perm": [1, 2, 0]}),
                 ("MatMul", "t w", "yh", {}), ("Cast", "yh", "y", {"to": TensorProto.FLOAT})]
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node(op, i.split(), [o], **a) for op, i, o, a in nodes], "g", [value("x", TensorProto.FLOAT, [4, 32, 8])],
                              [value("y", TensorProto.FLOAT, [32, 8, 16])], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("engine", ["auto", "ort"])
def test_a_session_that_dies(engine, tmp_path):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(transposed(False), path)
    onnx.save(transposed(True), out)
    report = by_default("--engine", engine, path, out)
    assert not report["passed"] and report["execution"]["itself"]["broken"]
    assert "runs IN and does not run OUT" in report["failures"][0] and "SIGSEGV" in report["failures"][0]


def test_a_session_that_does_not_load(tmp_path):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(perceptron(), path)
    assert onnxquant("--block", "32", path, out).status == 0
    model = onnx.load(out)
    model.ir_version = 14  # ONNX Runtime 1.31 has 13
    onnx.save(model, out)
    report = by_default(path, out)
    assert not report["passed"] and "does not run OUT: Load model" in report["failures"][0]
    # IN does not load, either: nothing is said against OUT.
    model = perceptron()
    model.ir_version = 14  # ONNX Runtime 1.31 has 13
    onnx.save(model, path)
    report = by_default(path, out)
    assert report["passed"] and "does not run OUT itself" in report["warnings"][0]


@pytest.mark.parametrize("args", ["--format nvfp4", "--target tensorrt --format nvfp4"])
def test_for_another_runtime(args, tmp_path):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(perceptron(), path)
    assert onnxquant(*args.split(), path, out).status == 0
    report = by_default(path, out)
    assert report["passed"] and "does not run OUT itself" in report["warnings"][0]


@pytest.mark.parametrize("name, args", [("ext_in_subgraph", "--format mxfp4"), ("scan_body_weight", "--bfloat16 --bits 8 --block 32"), ("function_const_weight", "--bfloat16 --bits 8 --block 32")])
def test_types_in_bodies(name, args, tmp_path):
    """Types that ONNX Runtime lacks are seen in branches, bodies and functions."""
    path, out = CORPUS / "structures" / name / "model.onnx", tmp_path / "out.onnx"
    assert onnxquant(*args.split(), "--ops", "all", path, out).status == 0
    assert by_default(path, out)["verdict"] == "sound"


def test_about_zero(tmp_path):
    """What is about zero in both models is rounding."""
    path, out = CORPUS / "structures" / "val_zeros" / "model.onnx", tmp_path / "out.onnx"
    assert onnxquant("--float16", "--bits", "4", "--block", "32", "--ops", "all", path, out).status == 0
    assert by_default(path, out)["verdict"] == "sound"
