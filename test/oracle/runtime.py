"""Runs models and compares what they compute."""
import os
import pathlib
import platform

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)

# Rounding that two right ways of computing the same thing may differ by,
# relative to the largest output.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}
FLOAT_TOLERANCE = 1e-5

# Without VNNI, sums of two products of 8-bit codes do not always fit into the 16 bits that x86 processors have for them. ONNX Runtime
# is near the float model with weights of 7 bits only (--reduce-range).
CPU = pathlib.Path("/proc/cpuinfo")
SATURATES = platform.machine() == "x86_64" and CPU.exists() and "vnni" not in CPU.read_text()
REDUCED = ["--reduce-range"] if SATURATES else []


def session(model, fused=True, packed=True):
    """A session on a path or a model. Weights fused into what reads them are multiplied in float, not in int8.

    Not packed, stored weights are summed up in the same order as decoded ones.
    """
    options = ort.SessionOptions()
    if not fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not packed:
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if hasattr(model, "SerializeToString"):
        copy = type(model)()
        copy.CopyFrom(model)
        compute_in_float(copy)
        return ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    path = pathlib.Path(model)
    if b"accuracy_level" not in path.read_bytes():
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    changed = path.with_name(f"{path.name}.float.{os.getpid()}")  # beside its external data
    try:
        proto = onnx.load(path, load_external_data=False)
        compute_in_float(proto)
        changed.write_bytes(proto.SerializeToString())
        return ort.InferenceSession(str(changed), options, providers=["CPUExecutionProvider"])
    finally:
        changed.unlink(missing_ok=True)


def compute_in_float(model):
    """Makes MatMulNBits of every graph multiply in float: what is compared is what the codes stand for."""
    def graph(g):
        for n in g.node:
            for a in n.attribute:
                if a.name == "accuracy_level":
                    a.i = 1
                for sub in [a.g, *a.graphs]:
                    if sub.node:
                        graph(sub)
    graph(model.graph)


def run(model, feeds, runner="onnxruntime", fused=True, packed=True):
    """The outputs of a model for feeds in the order of its inputs that need one."""
    if runner == "onnxruntime":
        s = session(model, fused, packed)
        return s.run(None, dict(zip((i.name for i in s.get_inputs()), feeds, strict=True)))
    r = ReferenceEvaluator(model if hasattr(model, "SerializeToString") else str(model))
    stored = {t.name for t in r.proto_.graph.initializer}
    names = [n for n in r.input_names if n not in stored]
    with np.errstate(all="ignore"):
        return r.run(None, dict(zip(names, feeds, strict=True)))


def random_feeds(model, seed=0, size=4, **given):
    """Feeds for a model without stored ones: symbolic dims become size, but those that count the past are 0."""
    rng, feeds = np.random.default_rng(seed), []
    for i in session(model).get_inputs():
        if i.name in given:
            feeds.append(given[i.name])
            continue
        shape = [d if isinstance(d, int) and d > 0 else 0 if "past" in str(d) else size for d in i.shape]
        match i.type.removeprefix("tensor(").removesuffix(")"):
            case "float16": feeds.append(rng.standard_normal(shape).astype(np.float16))
            case "float": feeds.append(rng.standard_normal(shape).astype(np.float32))
            case "double": feeds.append(rng.standard_normal(shape))
            case "bool": feeds.append(np.ones(shape, bool))
            case "int32": feeds.append(rng.integers(0, 8, shape).astype(np.int32))
            case _: feeds.append(rng.integers(0, 8, shape))
    return feeds


def is_float(a):
    return a.dtype.kind == "f" or a.dtype.name == "bfloat16"


def assert_same(got, want):
    """Equal outputs, up to rounding in the output's type."""
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(map(np.asarray, got), map(np.asarray, want))):
        assert g.shape == w.shape and g.dtype == w.dtype, f"output {i}: {g.dtype}{g.shape}, want {w.dtype}{w.shape}"
        if not is_float(w):
            assert (g == w).all(), f"output {i} differs"
            continue
        tolerance = TOLERANCE.get(w.dtype.name, FLOAT_TOLERANCE)
        g, w = g.astype(np.float64), w.astype(np.float64)
        finite = np.isfinite(w)
        assert np.array_equal(g[~finite], w[~finite], equal_nan=True), f"output {i}: other values are not finite"
        if finite.any():
            error, largest = np.abs(g[finite] - w[finite]).max(), np.abs(w[finite]).max()
            assert error <= tolerance * largest, f"output {i}: off by {error:.3g} where the largest is {largest:.3g}"


def relative_error(got, want):
    """Root mean square of the error over that of what is wanted; over the float outputs, the worst."""
    worst = 0.0
    for g, w in zip(map(np.asarray, got), map(np.asarray, want)):
        if is_float(w) and w.size and np.isfinite(w.astype(np.float64)).all():
            g, w = g.astype(np.float64), w.astype(np.float64)
            size = np.sqrt(np.mean(w * w))
            error = np.sqrt(np.mean((g - w) ** 2))
            worst = max(worst, error / size if size else error)
    return worst
