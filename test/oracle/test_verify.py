"""verify: models of other tools, and models that only ONNX Runtime runs."""
import functools
import json
import logging
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

import runtime
from command import BINARY, ROOT, SHARED, onnxquant

logging.disable(logging.INFO)

REAL = SHARED / "models" / "real"


@functools.cache
def with_runtime():
    """The command, in a folder with the program that it runs ONNX Runtime with."""
    folder = tempfile.mkdtemp(prefix="verify")
    subprocess.run(["go", "build", "-o", f"{folder}/", "./cmd/onnxquant-ort"], cwd=ROOT, check=True, env=os.environ | {"CGO_ENABLED": "0"})
    return shutil.copy(BINARY, folder)


def library():
    found = sorted((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    if not found:
        pytest.skip("this onnxruntime has no shared library of its own")
    return str(found[-1])


def verify(*args, binary=BINARY):
    p = subprocess.run([binary, "verify", "--json", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert p.stderr == "", p.stderr
    report = json.loads(p.stdout)
    assert report["passed"] == (p.returncode == 0)
    return report


def verify_in_runtime(*args):
    return verify("--engine", "ort", "--ort-lib", library(), *args, binary=with_runtime())


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


# What is written for ONNX Runtime runs there as it is, with about the error of its weights.
@pytest.mark.sampled(4)
@pytest.mark.parametrize("setting", ["-bits 4 --block 32 --ops all", "-bits 8 --ops all", "-bits 8 --style nbits", "-bits 4 --block 32 --zero-point --ops all", "-bits 8 --float16 --ops all"])
@pytest.mark.parametrize("name", ["dtln_model_2", "mujoco_apollo_policy", "mnist8", "silero_vad_op18_ifless"])
def test_real_models_themselves(name, setting, tmp_path):
    out = tmp_path / "out.onnx"
    assert onnxquant(*setting.split(), "--target", "ort", real(name), out).status == 0
    report = verify_in_runtime(real(name), out)
    assert report["passed"], report["failures"]
    itself = report["execution"]["itself"]
    assert not itself.get("reason")
    for a, b in zip(report["execution"]["outputs"], itself["outputs"], strict=True):
        assert b["sqnr_db"] > min(a["sqnr_db"] - 6, 30), b["name"]  # kernels that round activations to 8 bits have about 40 dB


# Errors of some codes make up for those of others, though no data are given.
def test_best_without_data(tmp_path):
    path, out = real("dtln_model_2"), tmp_path / "out.onnx"
    assert onnxquant("--bits", "2", "--block", "16", "--algorithm", "best", "--ops", "all", path, out).status == 0
    report = verify("--engine", "none", path, out)
    assert report["passed"], report["failures"]


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



def save(path, nodes, inputs, outputs, tensors=(), opset=17):
    """Writes a model. Inputs and outputs are (name, type, shape); a shape of None is not declared."""
    def infos(values):
        return [v if isinstance(v, onnx.ValueInfoProto) else helper.make_tensor_value_info(*v) for v in values]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), tensors)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


TYPES = ["FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL"]


# Values of every type go to ONNX Runtime and come back, of any shape, whether the model declares it or not.
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
@pytest.mark.parametrize("dims", [["n", 3], [2, 3], [0, 3], []], ids=["symbolic", "fixed", "empty", "scalar"])
def test_types(dims, declared, tmp_path):
    path = save(tmp_path / "model.onnx", [helper.make_node("Identity", [f"x{t}"], [f"y{t}"]) for t in TYPES],
                [(f"x{t}", getattr(TensorProto, t), dims) for t in TYPES],
                [(f"y{t}", getattr(TensorProto, t), dims if declared else None) for t in TYPES])
    execution = verify_in_runtime(*(["--dim", "n=2"] if "n" in dims else []), path, path)["execution"]
    if 0 in dims:
        assert not execution["compared"] and "no output has a finite element, and input \"xFLOAT16\" has no rows: its shape is [0 3]" in execution["reasons"][0]
        return
    assert [o["dtype"] for o in execution["outputs"]] == TYPES
    for output in execution["outputs"]:
        assert output["shape"] == [2 if n == "n" else n for n in dims] and output["sqnr_db"] == 999


# What cannot be compared is named.
@pytest.mark.parametrize("op, info, said", [
    (helper.make_node("Constant", [], ["y"], value_strings=["a", "b"]), helper.make_tensor_value_info("y", TensorProto.STRING, [2]), "strings"),
    (helper.make_node("SequenceConstruct", ["x"], ["y"]), helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None), "a sequence"),
], ids=["strings", "sequence"])
def test_outputs_that_are_no_numbers(op, info, said, tmp_path):
    path = save(tmp_path / "model.onnx", [op], [("x", TensorProto.FLOAT, [2])], [info])
    reason, = verify_in_runtime(path, path)["execution"]["reasons"]
    assert 'output "y"' in reason and said in reason


# The hint at sizes is there where random inputs do not fit.
def test_sizes_that_do_not_fit(tmp_path):
    path = save(tmp_path / "model.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", TensorProto.FLOAT, ["batch", "width"])],
                [("y", TensorProto.FLOAT, ["batch", 4])], [numpy_helper.from_array(np.ones((5, 4), np.float32), "w")])
    report = verify_in_runtime("--require-outputs=false", path, path)
    assert "the sizes were batch=2, width=64, --dim NAME=N sets others" in report["execution"]["reasons"][0]
    assert verify_in_runtime("--dim", "width=5", path, path)["execution"]["compared"]


# The Python on the PATH knows where its ONNX Runtime is. Without one, the message says what to install.
def test_runtime_is_found(tmp_path):
    path = save(tmp_path / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX", "ONNXQUANT_ORT_LIB")}

    def run(**more):
        return subprocess.run([with_runtime(), "verify", "--engine", "ort", path, path], env=environment | more, capture_output=True, text=True, timeout=60).stdout

    here = os.path.realpath(library())
    for more in ({"PATH": os.path.dirname(sys.executable)}, {"VIRTUAL_ENV": sys.prefix}, {"ONNXQUANT_ORT_LIB": here}):
        text = run(**more)
        assert os.path.realpath(text.split("execution  ONNX Runtime ")[1].splitlines()[0].split(", ", 1)[1]) == here, text
    text = run(PATH=str(tmp_path))
    assert "pip install onnxruntime" in text or "execution  ONNX Runtime 1." in text  # one may be installed in the system


def endless(path):
    """Writes a model that never ends."""
    def infos(*values):
        return [helper.make_tensor_value_info(*v) for v in values]
    body = helper.make_graph([helper.make_node("Identity", ["cond"], ["more"]), helper.make_node("Neg", ["v"], ["next"])], "body",
                             infos(("n", TensorProto.INT64, []), ("cond", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, [])),
                             infos(("more", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, [])))
    return save(path, [helper.make_node("Loop", ["", "", "x"], ["y"], body=body)], [("x", TensorProto.FLOAT, [])], [("y", TensorProto.FLOAT, [])])


def test_timeout(tmp_path):
    path = endless(tmp_path / "model.onnx")
    reason, = verify_in_runtime("--timeout", "1s", path, path)["execution"]["reasons"]
    assert reason.endswith("the float model: stopped after 1s")
    report = verify("--timeout", "1s", "--trace", "--ort-lib", library(), path, path, binary=with_runtime())
    assert report["verdict"] == "sound" and report["execution"]["reasons"][-1].endswith("stopped after 1s")


def test_timeout_of_out(tmp_path):
    """The loop of OUT alone does not end: as often as a weight changed."""
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    tensors = [("w", w), ("was", w), ("one", np.eye(64, dtype=np.float32)), ("many", np.float32(2 ** 46))]
    path = endless(tmp_path / "model.onnx")
    m = onnx.load(path)
    m.graph.node[0].input[0] = "times"
    ops = [("MatMul", "one w", "is"), ("Sub", "is was", "change"), ("Abs", "change", "size"), ("ReduceMax", "size", "largest"), ("Mul", "largest many", "all")]
    nodes = [helper.make_node(op, i.split(), [o], **({"keepdims": 0} if op == "ReduceMax" else {})) for op, i, o in ops]
    for at, n in enumerate([*nodes, helper.make_node("Cast", ["all"], ["times"], to=TensorProto.INT64)]):
        m.graph.node.insert(at, n)
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in tensors)
    onnx.save(m, path)
    assert onnxquant("--bits", "4", "--block", "32", path, tmp_path / "out.onnx").status == 0
    report = verify("--timeout", "3s", "--ort-lib", library(), path, tmp_path / "out.onnx", binary=with_runtime())
    assert report["verdict"] == "sound" and report["execution"]["reasons"][-1].endswith("model: stopped after 3s")


def test_timeout_of_a_node(tmp_path):
    """A node that computes for minutes does not hold up the pure Go engine."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("MatMul", ["e", "e"], ["y"])]
    path = save(tmp_path / "model.onnx", nodes, [("x", TensorProto.FLOAT, [1, 1])], [("y", TensorProto.FLOAT, [7000, 7000])], [numpy_helper.from_array(np.array([7000, 7000]), "shape")])
    start = time.monotonic()
    reason, = verify("--engine", "go", "--timeout", "1s", path, path)["execution"]["reasons"]
    assert reason.endswith("the float model: stopped after 1s") and time.monotonic() - start < 30


def children(pid):
    return [child for f in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in f.read_text().split()]


def ignores(pid, sig):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False  # it has ended
    return int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16) & 1 << sig - 1


# An interruption ends both programs, and says so and no more.
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
def test_interruption(tmp_path):
    path = endless(tmp_path / "model.onnx")
    p = subprocess.Popen([with_runtime(), "verify", "--engine", "ort", "--ort-lib", library(), path, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, start_new_session=True)
    while p.poll() is None and not (ready := [child for child in children(p.pid) if ignores(child, signal.SIGINT)]):
        time.sleep(0.01)
    os.killpg(p.pid, signal.SIGINT)  # as a terminal does
    stdout, stderr = p.communicate(timeout=60)
    assert (p.returncode, stdout, stderr) == (130, "", "onnxquant: stopped by a signal: interrupt\n")
    assert not os.path.exists(f"/proc/{ready[0]}")


# What the Go package does with a session: many runs, values inside a graph, crashes, memory.
def test_sessions():
    p = subprocess.run(["go", "test", "-count=1", "-run=TestSessions", "-v", "./internal/run/execute/ort"], cwd=ROOT, capture_output=True, text=True,
                       env=os.environ | {"CGO_ENABLED": "0", "ONNXQUANT_ORT_LIB": library()})
    assert p.returncode == 0 and "--- PASS: TestSessions/many_runs" in p.stdout, p.stdout + p.stderr


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
    assert abs(report["execution"]["outputs"][0]["sqnr_db"] - sqnr) < 0.05 and report["execution"]["samples"] == 1

    # Samples along a first axis of their own are a run each, of which the report has the sum.
    np.save(tmp_path / "x.npy", x.reshape(4, 2, 64))
    samples = verify("--engine", "go", "--inputs", tmp_path / "x.npy", tmp_path / "in.onnx", tmp_path / "out.onnx")["execution"]
    assert samples["samples"] == 4 and samples["inputs"][0]["shape"] == [2, 64]
    for key, value in report["execution"]["outputs"][0].items():
        if isinstance(value, float):
            assert samples["outputs"][0][key] == pytest.approx(value, rel=1e-4), key


# Rounding is all that this model computes, so engines disagree. Then the verdict is no better than poor, though OUT has IN's weights.
def test_engines_that_disagree(tmp_path):
    rng, path, out = np.random.default_rng(0), tmp_path / "in.onnx", tmp_path / "out.onnx"
    order, w = rng.permutation(512), rng.integers(-126, 127, (512, 16)).astype(np.float32)
    w[0] = 127
    save(path, [helper.make_node("MatMul", ["x", "w"], ["a"], "first"), helper.make_node("Gather", ["x", "order"], ["p"], "other_order", axis=1),
                helper.make_node("MatMul", ["p", "v"], ["b"], "second"), helper.make_node("Sub", ["a", "b"], ["y"], "difference")],
         [("x", TensorProto.FLOAT, ["n", 512])], [("y", TensorProto.FLOAT, ["n", 16])],
         [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w[order], "v"), numpy_helper.from_array(order.astype(np.int64), "order")])
    assert onnxquant("--bits", "8", "--block", "-1", path, out).status == 0
    report = verify("--ort-lib", library(), path, out, binary=with_runtime())
    found = report["execution"]["disagreement"]
    assert report["verdict"] == "poor" and report["execution"]["outputs"][0]["sqnr_db"] == 999
    assert found["model"] == "IN" and found["node"] == "difference" and found["engines"][0] == "pure Go" and found["sqnr_db"] < 40


# ONNX Runtime runs OUT itself, too: kernels that round activations to 8 bits have a larger error than the weights.
def test_out_itself(tmp_path):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(perceptron(), path)
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert onnxquant("--bits", "8", "--activations", "dynamic", path, out).status == 0
    report = verify_in_runtime("--inputs", tmp_path / "x.npy", path, out)
    want, = runtime.run(path, [x])
    got, = runtime.run(out, [x])
    sqnr = 10 * np.log10(np.sum(want.astype(np.float64) ** 2) / np.sum((got.astype(np.float64) - want) ** 2))
    itself, = report["execution"]["itself"]["outputs"]
    decoded, = report["execution"]["outputs"]
    assert abs(itself["sqnr_db"] - sqnr) < 0.05 and decoded["sqnr_db"] > sqnr + 1

    # Limits hold for it.
    limit = (itself["sqnr_db"] + decoded["sqnr_db"]) / 2
    failed = verify_in_runtime("--inputs", tmp_path / "x.npy", "--min-output-sqnr", limit, path, out)
    assert len(failed["failures"]) == 1 and "of OUT itself: SQNR" in failed["failures"][0]

    # A model that has codes already is compared with itself.
    static = verify_in_runtime("--inputs", tmp_path / "x.npy", out, out)["execution"]["itself"]
    assert [o["sqnr_db"] for o in static["outputs"]] == [999]

    # It is run where it has codes, and a runtime without kernels for them is a warning.
    assert "itself" not in verify_in_runtime(path, path)["execution"]
    assert onnxquant("--format", "nvfp4", path, out).status == 0
    report = verify_in_runtime(path, out)
    assert report["passed"] and report["execution"]["itself"]["outputs"] == []
    assert "does not run OUT itself" in report["warnings"][0] and report["execution"]["itself"]["reason"] in report["warnings"][0]


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


@pytest.mark.parametrize("bits, warned", [(2, True), (4, False), (8, False)])
def test_other_classes(tmp_path, bits, warned):
    """A classifier that finds other classes is poor."""
    w = numpy_helper.from_array((3 * np.random.default_rng(0).standard_normal((64, 16))).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 64), ("y", 16))]
    plain, out, data = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "x.npy"
    onnx.save(helper.make_model(helper.make_graph(nodes, "classifier", values[:1], values[1:], [w]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10), plain)
    x = np.random.default_rng(1).standard_normal((50, 64)).astype(np.float32)
    np.save(data, x)
    assert onnxquant("--quiet", "--bits", bits, "--block", 32, plain, out).status == 0
    report = json.loads(onnxquant("verify", "--json", "--inputs", data, plain, out).stdout)
    assert report["verdict"] == ("poor" if warned else "sound")
    text = onnxquant("verify", "--inputs", data, plain, out).stdout
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # weights are decoded, as verify does
    a, b = (onnxruntime.InferenceSession(str(p), options).run(None, {"x": x})[0].argmax(-1) for p in (plain, out))
    same = f"only {100 * (a == b).mean():.3g} % of 50 rows have the same class as in the float model"
    assert warned == (same in " ".join(text.split())) == any(same in t for t in report.get("poor", []))


class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": np.random.default_rng(i).standard_normal((1, 3, 8, 8)).astype(np.float32)} for i in range(3)]

    def get_next(self):
        return self.left.pop() if self.left else None


def plain_network(path):
    """Writes a model with what the first level of ONNX Runtime's optimizer rewrites: Identity, and MatMul with Add."""
    def tensor(name, *shape):
        return numpy_helper.from_array((np.random.default_rng(len(name)).standard_normal(shape) / shape[0]).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "kernel", "kernel_bias"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["rc"]),
        helper.make_node("Identity", ["rc"], ["ic"]), helper.make_node("Flatten", ["ic"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m"]), helper.make_node("Add", ["m", "bias"], ["a"]), helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Identity", ["ra"], ["ia"]), helper.make_node("Gemm", ["ia", "v", "last_bias"], ["g"], transB=1),
        helper.make_node("Identity", ["g"], ["y"]),
    ]
    tensors = [tensor("kernel", 8, 3, 3, 3), tensor("kernel_bias", 8), tensor("w", 512, 64), tensor("bias", 64), tensor("v", 16, 64), tensor("last_bias", 16)]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ends, tensors), opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def optimize(source, target, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.optimized_model_filepath, options.log_severity_level = level, str(target), 3
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def quantized_network(form, folder):
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    plain_network(source)
    if form == "quantize_static":
        quantize_static(source, target, Samples())
    else:
        onnxquant("--quiet", "--ops", "all", "--bits", "8", source, target)
    return source, target


def double(gemm):
    others = [a for a in gemm.attribute if a.name != "alpha"]
    del gemm.attribute[:]
    gemm.attribute.extend([*others, helper.make_attribute("alpha", 2.0)])


FORMS = ["quantize_static", "weights"]


@pytest.mark.parametrize("form", FORMS)
def test_optimized(form, tmp_path):
    """What the first level of ONNX Runtime's optimizer saves is the same model. A change in it is found."""
    source, target = quantized_network(form, tmp_path)
    saved, changed = tmp_path / "saved.onnx", tmp_path / "changed.onnx"
    optimize(target, saved, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    model = onnx.load(saved)
    assert not [n for n in model.graph.node if n.op_type == "Identity"], "nothing was optimized"
    report = verify("--engine", "none", source, saved)
    assert report["passed"], report["failures"]
    for op, change in [
        ("Conv", lambda n: n.input.__setitem__(2, "")),
        ("Gemm", double),
        ("Gemm", lambda n: n.input.pop()),
        ("Flatten", lambda n: setattr(n, "op_type", "Identity")),
    ]:
        model = onnx.load(saved)
        change(next(n for n in model.graph.node if n.op_type == op))
        onnx.save(model, changed)
        assert verify("--engine", "none", source, changed)["structure"]["problems"], op


@pytest.mark.parametrize("form", FORMS)
def test_fused(form, tmp_path):
    """Further levels fuse nodes, which one line tells."""
    source, target = quantized_network(form, tmp_path)
    optimize(target, tmp_path / "saved.onnx", onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
    report = verify("--engine", "none", source, tmp_path / "saved.onnx")
    assert len(report["structure"]["problems"]) > 1
    assert len(report["failures"]) == 1 and report["failures"][0].startswith("OUT was optimized by ONNX Runtime ("), report["failures"]


def halves_in_a_branch(path):
    """An If whose branch multiplies float16 by a weight of the main graph, between other operators."""
    rng, width, columns = np.random.default_rng(3), 128, 64
    value = helper.make_tensor_value_info
    branch = helper.make_graph([helper.make_node("Erf", ["x"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["m"]), helper.make_node("Erf", ["m"], ["r"])],
                               "t", [], [value("r", TensorProto.FLOAT16, [None, columns])])
    other = helper.make_graph([helper.make_node("Slice", ["x", "zero", "end", "one"], ["s"])], "e", [], [value("s", TensorProto.FLOAT16, [None, columns])])
    nodes = [helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0), helper.make_node("Cast", ["top"], ["c"], to=TensorProto.BOOL),
             helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)]
    stored = [numpy_helper.from_array((rng.normal(size=(width, columns)) / 8).astype(np.float16), "w")]
    stored += [numpy_helper.from_array(np.array([v]), n) for n, v in (("zero", 0), ("end", columns), ("one", 1))]
    g = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT16, [8, width])], [value("y", TensorProto.FLOAT16, [8, columns])], stored)
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


# ONNX Runtime computes zeros there. That is no rounding to 8 bits, and the hint avoids it.
def test_cause_of_zeros(tmp_path):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    halves_in_a_branch(path)
    binary = with_runtime()
    settings = ["--bits", "8", "--block", "32", "--style", "nbits", "--accuracy-level", "4"]
    assert onnxquant(*settings, path, out, binary=binary).status == 0
    r = verify("--ort-lib", library(), path, out, binary=binary)
    warnings = [w for w in r["warnings"] if "OUT itself" in w]
    assert len(warnings) == 1 and "(ort-nested-scales)" in warnings[0] and "round" not in warnings[0], warnings
    hints = [h for h in r["hints"] if h.startswith("onnxquant ")]
    assert len(hints) == 1, r["hints"]
    words = shlex.split(hints[0])[1:]
    assert "--accuracy-level 4" not in hints[0] and "--accuracy-level 1" in hints[0], hints
    assert onnxquant(*words, binary=binary).status == 0
    r = verify("--ort-lib", library(), path, words[-1], binary=binary)
    assert not [w for w in r.get("warnings", []) if "OUT itself" in w] and r["verdict"] in ("sound", "passed"), r
