"""--calib: codes against the published recipe of GPTQ, and what calibration gains."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphs
from command import TINYGPT
from divergence import divergence
from test_verify import library, with_runtime

BLOCK = 32
CALIB = TINYGPT / "calib_ids.npz"


def calibrate(data, *args, status=0):
    p = subprocess.run([with_runtime(), "--json", "--ort-lib", library(), "--calib", data, *map(str, args)],
                       capture_output=True, text=True, timeout=300)
    assert p.returncode == status, p.stderr
    return json.loads(p.stdout) if status == 0 else p.stderr


def save(path, nodes, weights, inputs, outputs):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def product(folder, k=96, n=40, op="MatMul", samples=40, rows=15):
    """A model of one product, and data whose columns are correlated and of different sizes."""
    rng = np.random.default_rng(k + n)
    w = rng.standard_normal((n, k) if op == "Gemm" else (k, n)).astype(np.float32)
    shape = ["rows", k] if op == "Gemm" else ["batch", rows, k]
    made = ["rows", n] if op == "Gemm" else ["batch", rows, n]
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1) if op == "Gemm" else helper.make_node("MatMul", ["x", "w"], ["y"])
    path = save(folder / "model.onnx", [node], {"w": w}, [floats("x", *shape)], [floats("y", *made)])
    x = rng.standard_normal((samples * rows, k)) @ (rng.standard_normal((k, k)) / 4 + np.eye(k)) * np.exp(rng.uniform(-1, 1, k))
    x = x.astype(np.float32)
    np.savez(folder / "x.npz", x=x if op == "Gemm" else x.reshape(samples, rows, k))
    return path, w.T if op == "Gemm" else w, x.reshape(samples, rows, k)


def decoded(source, out):
    """Codes, scales and zero points by column of the only weight, and its values."""
    weight, = graphs.Pair(graphs.load(source), graphs.load(out)).weights
    return weight.decoded


def reference(w, x, scale, zero, least, greatest):
    """GPTQ with the largest diagonal first: the inverse Hessian's Cholesky factor, row by row."""
    h = x.T @ x
    h[np.diag_indices_from(h)] += 0.01 * np.diag(h).mean()
    order = np.argsort(-np.diag(h), kind="stable")
    u = np.linalg.cholesky(np.linalg.inv(h[order][:, order])).T
    w, q = w[order].astype(np.float64), np.zeros(w.shape)
    for i, at in enumerate(order):
        s, z = scale[at // BLOCK], zero[at // BLOCK]
        code = np.clip(np.rint(w[i] / s) + z, least, greatest)
        q[at] = code
        w[i + 1:] -= np.outer(u[i, i + 1:], (w[i] - (code - z) * s) / u[i, i])
    return q


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("zero_point", [False, True], ids=["symmetric", "zero-point"])
def test_gptq_of_the_recipe(op, zero_point, tmp_path):
    path, w, x = product(tmp_path, op=op)
    out = tmp_path / "out.onnx"
    args = ["--samples", 1000, "--block", BLOCK, "--algorithm", "gptq", "--style", "dq"] + ["--zero-point"] * zero_point
    calibrate(tmp_path / "x.npz", *args, path, out)
    d = decoded(path, out)
    turn = (lambda a: np.asarray(a, np.float64).T) if op == "Gemm" else (lambda a: np.asarray(a, np.float64))
    codes, scale = turn(d.codes), turn(d.scale)
    zero = turn(d.zero_point) if zero_point else np.zeros_like(scale)
    used = x.astype(np.float64)
    if op == "MatMul":
        used = used[[i for i in range(len(x)) if i % 10 != 9]]
    rows = used.reshape(-1, w.shape[0])
    if op == "Gemm":
        rows = rows[[i for i in range(len(rows)) if i % 10 != 9]]
    want = reference(w, rows, scale, zero, *((0, 15) if zero_point else (-8, 7)))
    assert (codes == want).mean() > 0.999


# Measured, with 5 % of slack; round to nearest has 0.0069 and 0.0052, mse 0.0051 and 0.0042.
@pytest.mark.parametrize("args, most", [("gptq", 0.00257), ("gptq --zero-point", 0.00241)])
def test_divergence_of_a_language_model(args, most, tmp_path):
    out = tmp_path / "out.onnx"
    report = calibrate(CALIB, "--format", "int4", "--block", 32, "--target", "ort", "--algorithm", *args.split(), TINYGPT / "model.onnx", out)
    assert divergence(out) < most
    assert report["calibration"]["error"] < 0.5 * report["calibration"]["error_mse"]


def test_same_bytes_at_any_number_of_threads(tmp_path):
    path, _, _ = product(tmp_path)
    made = []
    for threads in (1, 2, 5):
        for algorithm in ("gptq", "best"):
            out = tmp_path / f"{algorithm}{threads}.onnx"
            calibrate(tmp_path / "x.npz", "--threads", threads, "--algorithm", algorithm, path, out)
            made.append(onnx.load(out).graph.SerializeToString())
    assert made[0::2] == made[:1] * 3 and made[1::2] == made[1:2] * 3


@pytest.mark.parametrize("algorithm", ["gptq", "best"])
def test_inputs_of_no_use(algorithm, tmp_path):
    """Layers whose inputs are zero or infinite get mse, and say so; some zero columns, equal columns or bad rows do no harm."""
    path, w, x = product(tmp_path)
    x[:, :, :7] = 0
    x[:, :, 8] = x[:, :, 9]
    x[3, 2, 5] = np.inf
    for name, data, note in [("some", x, None), ("zero", np.zeros_like(x), "the inputs of the layer are zero"), ("infinite", np.full_like(x, np.inf), "NaN or infinity")]:
        np.savez(tmp_path / "x.npz", x=data)
        report = calibrate(tmp_path / "x.npz", "--block", BLOCK, "--algorithm", algorithm, path, tmp_path / f"{name}.onnx")
        tensor, = report["quantized"]
        assert note is None and "note" not in tensor or note in tensor["note"], name
        assert 12 < tensor["sqnr_db"] < 30


@pytest.mark.parametrize("algorithm", ["gptq", "best"])
def test_layers_without_inputs(algorithm, tmp_path):
    """A weight that is a first factor, one in a branch, and one of a convolution get mse."""
    rng = np.random.default_rng(1)
    weights = {n: rng.standard_normal((64, 64)).astype(np.float32) for n in ("used", "left", "inner")}
    branch = lambda w: helper.make_graph([helper.make_node("MatMul", ["h", w], [f"{w}_y"])], f"g{w}", [], [floats(f"{w}_y", "rows", 64)])
    nodes = [helper.make_node("MatMul", ["x", "used"], ["h"]), helper.make_node("MatMul", ["left", "h2"], ["z"]),
             helper.make_node("Transpose", ["h"], ["h2"], perm=[1, 0]), helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
             helper.make_node("Greater", ["sum", "sum"], ["never"]),
             helper.make_node("If", ["never"], ["y"], then_branch=branch("inner"), else_branch=branch("used"))]
    nodes[1], nodes[2] = nodes[2], nodes[1]
    path = save(tmp_path / "model.onnx", nodes, weights, [floats("x", "rows", 64)], [floats("y", "rows", 64), floats("z", 64, "rows")])
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((200, 64)).astype(np.float32))
    report = calibrate(tmp_path / "x.npz", "--block", BLOCK, "--algorithm", algorithm, path, tmp_path / "out.onnx")
    notes = {t["name"]: t.get("note", "") for t in report["quantized"]}
    assert "second factor" in notes["left"] and "subgraph" in notes["inner"] and "subgraph" in notes["used"]


def test_errors(tmp_path):
    path, _, x = product(tmp_path)
    np.savez(tmp_path / "y.npz", z=x.astype(np.int64))
    for data, says in [("y.npz", "x"), ("missing.npz", "missing.npz")]:
        error = calibrate(tmp_path / data, "--algorithm", "gptq", path, tmp_path / "out.onnx", status=1)
        assert says in error and error.count("\n") == 1 and not (tmp_path / "out.onnx").exists()
    assert not list(tmp_path.glob(".onnxquant*"))


@pytest.mark.parametrize("algorithm", ["gptq", "best"])
def test_a_layer_that_lost_gets_mse(algorithm, tmp_path):
    """The samples that are held out are of another kind: what helps the others harms them."""
    path, _, x = product(tmp_path)
    rng = np.random.default_rng(2)
    x[:] = rng.standard_normal(x.shape[:2])[..., None] + 0.01 * x
    x[9::10] = rng.standard_normal(x[9::10].shape)
    np.savez(tmp_path / "x.npz", x=x)
    report = calibrate(tmp_path / "x.npz", "--algorithm", algorithm, path, tmp_path / "out.onnx")
    tensor, = report["quantized"]
    assert report["calibration"]["lost"] == 1 and tensor["note"].startswith(f"algorithm mse: {algorithm} has an error of")
    subprocess.run([with_runtime(), "--quiet", "--algorithm", "mse", path, tmp_path / "mse.onnx"], check=True)
    assert onnx.load(tmp_path / "out.onnx").graph == onnx.load(tmp_path / "mse.onnx").graph


def test_best_on_a_language_model(tmp_path):
    """Few samples, for time; with all of them it is 0.0017."""
    out = tmp_path / "out.onnx"
    report = calibrate(CALIB, "--samples", 24, "--format", "int4", "--block", 32, "--target", "ort", "--algorithm", "best", TINYGPT / "model.onnx", out)
    assert divergence(out) < 0.0030
    assert report["calibration"]["output_error"] < 0.6 * report["calibration"]["output_error_mse"]
