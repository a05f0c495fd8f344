"""calibrate finds the ranges that ONNX Runtime's calibrators find."""
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import gguf
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator
from onnxruntime.quantization.calibrate import HistogramCollector

from command import BINARY, ROOT, TINYGPT, onnxquant
from divergence import divergence

LIBRARY = next(pathlib.Path(ort.__file__).parent.glob("capi/libonnxruntime.so.*"))
SAMPLES = 6


@functools.cache
def with_runtime():
    """The command, in a folder with the program that it runs ONNX Runtime with."""
    folder = tempfile.mkdtemp(prefix="calibrate")
    subprocess.run(["go", "build", "-o", f"{folder}/", "./cmd/onnxquant-ort"], cwd=ROOT, check=True, env=os.environ | {"CGO_ENABLED": "0"})
    return shutil.copy(BINARY, folder)


class Reader(CalibrationDataReader):
    """Hands on the samples of arrays one by one."""

    def __init__(self, **arrays):
        n = len(next(iter(arrays.values())))
        self.feeds = iter([{name: a[i:i + 1] for name, a in arrays.items()} for i in range(n)])

    def get_next(self):
        return next(self.feeds, None)


def calibrate(folder, model, arrays, *more):
    np.savez(folder / "data.npz", **arrays)
    r = onnxquant("calibrate", "--data", folder / "data.npz", "--ort-lib", LIBRARY, "--engine", "ort", *more, model, binary=with_runtime())
    assert r.status == 0, r.stderr
    return json.loads(r.stdout)


def reference(folder, model, arrays, method, **options):
    inferred = folder / "inferred.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(model)), inferred)
    calibrator = create_calibrator(inferred, None, str(folder / "augmented.onnx"), method, extra_options=options)
    calibrator.collect_data(Reader(**arrays))
    found = calibrator.compute_data()
    return {name: tuple(float(np.ravel(x)[0]) for x in found[name].range_value) for name in found.keys()}


def tinygpt(folder):
    tokens = onnx.numpy_helper.to_array(onnx.TensorProto.FromString((TINYGPT / "eval_tokens.pb").read_bytes()))
    return TINYGPT / "model.onnx", {"ids": np.ascontiguousarray(tokens[:SAMPLES, :64])}


def convolutions(folder):
    rng = np.random.default_rng(0)
    w = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        onnx.helper.make_node("Flatten", ["p"], ["f"]),
        onnx.helper.make_node("Gemm", ["f", "v"], ["g"]),
        onnx.helper.make_node("Softmax", ["g"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, ["n", 3, 16, 16])],
                                   [onnx.helper.make_tensor_value_info("y", 1, ["n", 5])],
                                   [onnx.numpy_helper.from_array(w(8, 3, 3, 3), "w"), onnx.numpy_helper.from_array(w(8), "b"),
                                    onnx.numpy_helper.from_array(w(8, 5), "v")])
    path = folder / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path, {"x": w(SAMPLES, 3, 16, 16)}


@pytest.mark.parametrize("make, least", [(tinygpt, 100), (convolutions, 7)])
def test_minmax(make, least, tmp_path):
    """They are equal to the last bit, for all values that both look at."""
    model, arrays = make(tmp_path)
    found = calibrate(tmp_path, model, arrays)
    assert found["samples"] == SAMPLES and found["method"] == "minmax"
    assert found["model"] == {"file": model.name, "sha256": hashlib.sha256(model.read_bytes()).hexdigest()}
    want = reference(tmp_path, model, arrays, CalibrationMethod.MinMax)
    ours = {name: (r["min"], r["max"]) for name, r in found["tensors"].items()}
    both = want.keys() & ours.keys()
    assert len(both) >= max(least, 0.9 * len(ours))
    assert {name: ours[name] for name in both} == {name: want[name] for name in both}


def test_percentile(tmp_path):
    """It is that of all values of all samples, up to the width of a bucket, and ONNX Runtime's up to its bins."""
    model, arrays = convolutions(tmp_path)
    found = calibrate(tmp_path, model, arrays, "--range", "percentile:99")["tensors"]["c"]
    proto = onnx.load(model)
    proto.graph.output.append(onnx.ValueInfoProto(name="c"))
    values = np.sort(ort.InferenceSession(proto.SerializeToString()).run(["c"], arrays)[0].ravel())
    at = int(0.99 * len(values))
    np.testing.assert_allclose([found["min"], found["max"]], [values[len(values) - 1 - at], values[at]], rtol=1 / 1024)
    theirs = reference(tmp_path, model, arrays, CalibrationMethod.Percentile, percentile=98, num_bins=2048, symmetric=False)["c"]
    np.testing.assert_allclose([found["min"], found["max"]], theirs, atol=3 * np.abs(values).max() / 1024)


def test_entropy(tmp_path):
    """It leaves out lone outliers as ONNX Runtime's does, whose distributions are smoothed and merged otherwise."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.standard_normal(100_000), [40, -40]]).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    r = onnxquant("calibrate", "--range", "entropy", "--json", tmp_path / "x.npy")
    assert r.status == 0, r.stderr
    ours = json.loads(r.stdout)["tensors"][0]
    histogram = *np.histogram(x, 4096, range=(-40, 40)), x.min(), x.max(), 40
    theirs = HistogramCollector("entropy", False, 4096, 256, None, None).get_entropy_threshold(histogram, 256)
    assert ours["max"] < 8 and theirs[1] < 8
    np.testing.assert_allclose([ours["min"], ours["max"]], theirs[:2], rtol=0.3)


def test_self(tmp_path):
    """A language model makes its own samples; a seed makes the same ones again."""
    def ranges(seed):
        r = onnxquant("calibrate", "--data", "self", "--ort-lib", LIBRARY, "--samples", 2, "--length", 24, "--seed", seed,
                      TINYGPT / "model.onnx", binary=with_runtime())
        assert r.status == 0, r.stderr
        return json.loads(r.stdout)["tensors"]
    first = ranges(1)
    assert len(first) > 100 and first == ranges(1) != ranges(2)


def test_importance(tmp_path):
    """It is the mean square of what each column of a weight is multiplied by, in the form that llama.cpp reads."""
    model, arrays = tinygpt(tmp_path)
    np.savez(tmp_path / "data.npz", **arrays)
    out = tmp_path / "imatrix.gguf"
    r = onnxquant("calibrate", "--data", tmp_path / "data.npz", "--ort-lib", LIBRARY, "--imatrix", out, model, binary=with_runtime())
    assert r.status == 0, r.stderr
    reader = gguf.GGUFReader(out)
    assert {f: reader.get_field(f).contents() for f in ("general.type", "imatrix.chunk_count")} == {"general.type": "imatrix", "imatrix.chunk_count": SAMPLES}
    found = {t.name: t.data for t in reader.tensors}
    proto = onnx.load(model)
    stored = {t.name for t in proto.graph.initializer}
    feeds = {n.input[1]: n.input[0] for n in proto.graph.node if n.op_type == "MatMul" and n.input[1] in stored}
    assert len(feeds) == 17 and len(found) == 2 * len(feeds)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in set(feeds.values()))
    values = dict(zip(feeds, ort.InferenceSession(proto.SerializeToString()).run(list(feeds.values()), arrays)))
    for w, v in values.items():
        rows = v.reshape(-1, v.shape[-1]).astype(np.float64)
        assert found[f"{w}.counts"].ravel() == len(rows)
        np.testing.assert_allclose(found[f"{w}.in_sum2"].ravel(), (rows ** 2).sum(0), rtol=1e-4)


@pytest.mark.long
def test_mix(tmp_path):
    """The mix by what weights do to the outputs is a fifth better than each format of its size."""
    data, mix = tmp_path / "ids.npz", tmp_path / "mix.json"
    np.savez(data, ids=tinygpt(tmp_path)[1]["ids"][:4])
    uniform = ["int4:32", "int4:32:zp", "q4_k", "iq4_nl"]
    size = 1_500_000
    r = onnxquant("analyze", "--calib", data, "--ort-lib", LIBRARY, "--candidates", ",".join([*uniform, "int8:channel"]), "--max-size", size,
                  "--emit", mix, "--json", TINYGPT / "model.onnx", binary=with_runtime(), timeout=300)
    assert r.status == 0, r.stderr
    found = json.loads(r.stdout)
    assert not any(c.get("estimated") for w in found["weights"] for c in w["choices"])

    def measured(most, *args):
        out = tmp_path / "out.onnx"
        r = onnxquant(*args, "--force", TINYGPT / "model.onnx", out)
        assert r.status == 0 and out.stat().st_size <= most, r.stderr
        return divergence(out)
    ours = measured(size, "--precision-info", mix)
    for c in uniform:
        name, _, block = c.removesuffix(":zp").partition(":")
        assert ours <= 0.8 * measured(1.01 * size, "--format", name, *(["--block", block] if block else []), *(["--zero-point"] if c.endswith(":zp") else [])), c
