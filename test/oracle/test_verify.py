"""verify: models of other tools, and models that only ONNX Runtime runs.

What needs onnxquant-ort is skipped where it cannot be built: it takes a C compiler.
"""
import functools
import json
import logging
import os
import shutil
import subprocess
import tempfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

import runtime
from command import BINARY, ROOT, SHARED, onnxquant

logging.disable(logging.INFO)

REAL = SHARED / "models" / "real"


@functools.cache
def with_runtime():
    """The command in a folder with the helper beside it, and where ONNX Runtime is."""
    if not shutil.which(os.environ.get("CC", "gcc")):
        return None
    folder = tempfile.mkdtemp(prefix="verify")
    subprocess.run(["go", "build", "-tags", "ort", "-o", f"{folder}/", "./cmd/onnxquant-ort"], cwd=ROOT, check=True,
                   env=os.environ | {"CGO_ENABLED": "1"})
    return shutil.copy(BINARY, folder)


def library():
    import onnxruntime
    import pathlib
    found = sorted((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    return str(found[-1]) if found else None


def verify(*args, binary=BINARY):
    p = subprocess.run([binary, "verify", "--json", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert p.stderr == "", p.stderr
    report = json.loads(p.stdout)
    assert report["passed"] == (p.returncode == 0)
    return report


def verify_in_runtime(*args):
    if not (binary := with_runtime()):
        pytest.skip("onnxquant-ort takes a C compiler")
    if not library():
        pytest.skip("this onnxruntime has no shared library of its own")
    return verify("--engine", "ort", "--ort-lib", library(), *args, binary=binary)


def real(name):
    if not (path := REAL / name / "model.onnx").exists():
        pytest.skip("the model does not lie beside the project")
    return path


@pytest.mark.parametrize("name", ["tashkeel_fp32", "magika_v1"])
@pytest.mark.parametrize("style", ["dq", "nbits"])
def test_real_models_in_onnx_runtime(name, style, tmp_path):
    out = tmp_path / "out.onnx"
    assert onnxquant("-bits", "8", "--block", "32", "--style", style, real(name), out).status == 0
    report = verify_in_runtime(real(name), out)
    assert report["passed"], report["failures"]
    assert report["execution"]["compared"] and report["execution"]["engine"].startswith("ONNX Runtime 1.")
    # Some outputs of tashkeel_fp32 are classes, which are the same or are not.
    assert min(o["sqnr_db"] for o in report["execution"]["outputs"] if o["dtype"] == "FLOAT") > 25


@pytest.mark.parametrize("folder", range(3))
def test_mnist_in_pure_go(folder, tmp_path):
    path, out = real("mnist8"), tmp_path / "out.onnx"
    assert onnxquant("-bits", "8", "--block", "32", "--ops", "all", path, out).status == 0
    report = verify("--engine", "go", "--min-sqnr", "25", "--inputs", path.parent / f"test_data_set_{folder}" / "input_0.pb", path, out)
    assert report["passed"], report["failures"]
    assert report["execution"]["compared"] and report["structure"]["problems"] == []


# The same runs give the same outputs in either engine.
def test_engines_agree(tmp_path):
    path, out = real("mujoco_apollo_policy"), tmp_path / "out.onnx"
    assert onnxquant("-bits", "4", "--block", "32", path, out).status == 0
    go, ort = verify("--engine", "go", path, out), verify_in_runtime(path, out)
    for a, b in zip(go["execution"]["outputs"], ort["execution"]["outputs"], strict=True):
        assert a["name"] == b["name"] and abs(a["sqnr_db"] - b["sqnr_db"]) < 1e-3



# Values of every type go to ONNX Runtime and come back.
@pytest.mark.parametrize("dtype", ["FLOAT16", "FLOAT", "DOUBLE", "INT64", "INT32", "INT8", "UINT8", "BOOL"])
@pytest.mark.parametrize("dims", [["n", 3], [2, 3]], ids=["symbolic", "fixed"])
def test_types(dtype, dims, tmp_path):
    t = getattr(TensorProto, dtype)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", t, dims)], [helper.make_tensor_value_info("y", t, dims)])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    sizes = ["--dim", "n=2"] if "n" in dims else []
    output, = verify_in_runtime(*sizes, path, path)["execution"]["outputs"]
    assert output["shape"] == [2, 3] and output["dtype"] == dtype and output["sqnr_db"] == 999


# So do scalars, which the binding does not take over by itself.
@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "INT64", "INT32", "BOOL"])
def test_scalars(dtype, tmp_path):
    t = getattr(TensorProto, dtype)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", t, [])], [helper.make_tensor_value_info("y", t, [])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    output, = verify_in_runtime(path, path)["execution"]["outputs"]
    assert not output["shape"] and output["dtype"] == dtype and output["elements"] == 1 and output["sqnr_db"] == 999


def perceptron(dtype=np.float32):
    rng = np.random.default_rng(0)
    tensors = [numpy_helper.from_array(rng.standard_normal(s).astype(dtype), n) for n, s in (("w0", (64, 48)), ("b0", (48,)), ("w1", (48, 32)))]
    nodes = [helper.make_node(*n) for n in (("MatMul", ["x", "w0"], ["m"], "first"), ("Add", ["b0", "m"], ["a"], "sum"), ("Relu", ["a"], ["h"], "relu"),
                                            ("MatMul", ["h", "w1"], ["y"], "second"))]
    t = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", t, ["n", 64])], [helper.make_tensor_value_info("y", t, ["n", 32])], tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


# What ONNX Runtime's own quantizer makes, in either form, is as far off as its
# decoded weights are, and runs with them.
@pytest.mark.parametrize("form", [QuantFormat.QOperator, QuantFormat.QDQ], ids=["MatMulNBits", "DequantizeLinear"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_onnx_runtimes_quantizer(form, symmetric, tmp_path):
    model = perceptron()
    onnx.save(model, tmp_path / "in.onnx")
    q = MatMulNBitsQuantizer(model, algo_config=DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=symmetric, bits=4, quant_format=form))
    q.process()
    q.model.save_model_to_file(str(tmp_path / "out.onnx"))
    report = verify("--engine", "go", "--min-sqnr", "12", tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert report["passed"], report["failures"]
    assert {w["name"] for w in report["weights"]} == {"w0", "w1"} and report["same"] == 1
    assert {w["form"] for w in report["weights"]} == {"MatMulNBits" if form == QuantFormat.QOperator else "DequantizeLinear"}

    # The outputs differ as they do where ONNX Runtime runs both models.
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    report = verify("--engine", "go", "--inputs", tmp_path / "x.npy", tmp_path / "in.onnx", tmp_path / "out.onnx")
    want, = runtime.run(tmp_path / "in.onnx", [x])
    got, = runtime.run(tmp_path / "out.onnx", [x])
    sqnr = 10 * np.log10(np.sum(want.astype(np.float64) ** 2) / np.sum((got.astype(np.float64) - want) ** 2))
    assert abs(report["execution"]["outputs"][0]["sqnr_db"] - sqnr) < 0.05


# A quantizer that loses a weight, or does more than it says, is found out.
def test_broken_quantizations_are_found(tmp_path):
    model = perceptron()
    onnx.save(model, tmp_path / "in.onnx")
    assert onnxquant("--block", "32", tmp_path / "in.onnx", tmp_path / "out.onnx").status == 0
    good = onnx.load(tmp_path / "out.onnx")

    def spoil(change):
        m = onnx.ModelProto()
        m.CopyFrom(good)
        change(m.graph)
        onnx.save(m, tmp_path / "bad.onnx")
        return verify("--min-sqnr", "12", tmp_path / "in.onnx", tmp_path / "bad.onnx")

    def swap_nibbles(g):
        codes = next(t for t in g.initializer if t.name == "w0_i4")
        codes.raw_data = bytes(b >> 4 | (b & 15) << 4 for b in codes.raw_data)

    def skip_relu(g):
        next(n for n in g.node if n.name == "second").input[0] = "a"

    def wrong_scales(g):
        scales = next(t for t in g.initializer if t.name == "w1_scale")
        scales.raw_data = (np.frombuffer(scales.raw_data, np.float32) * np.float32(2)).tobytes()

    assert any('weight "w0"' in f for f in spoil(swap_nibbles)["failures"])
    assert any('weight "w1"' in f for f in spoil(wrong_scales)["failures"])
    assert any("second" in f for f in spoil(skip_relu)["failures"])
