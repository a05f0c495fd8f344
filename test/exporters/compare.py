"""Compares the pure Go engine with ONNX Runtime: compare.py EVALUATE MODEL…, inputs are made up. A line for each model, and their number.

EVALUATE is built by go build ./test/oracle/evaluate. A model is right if no output is farther than a thousandth of its largest
element, or than a millionth, from that of ONNX Runtime, which runs it without optimizations.
"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
         "tensor(double)": np.float64, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}
SIDES = (64, 32, 48, 128, 224, 256, 576)


def dims(x, side):
    """Free dimensions: 1 for the batch, no past, the side for heights, widths and lengths."""
    found = []
    for i, d in enumerate(x.shape):
        name = d if isinstance(d, str) else ""
        if isinstance(d, int) and d > 0:
            found.append(d)
        elif "+" in name:
            found.append(side)
        elif "past" in name and "total" not in name:
            found.append(0)
        elif "channel" in name or i == 1 and len(x.shape) == 4 and not name.startswith(("h", "w")) and x.shape[-1] not in (1, 3):
            found.append(3)
        elif i == 0 and len(x.shape) > 1 or "batch" in name or "state" in x.name:
            found.append(1)
        elif "audio" in name or x.name in ("input_values", "audio", "waveform") and len(x.shape) == 2:
            found.append(4000)
        else:
            found.append(side)
    return found


def value(x, side, rng):
    kind, shape, name = TYPES[x.type], dims(x, side), x.name.lower()
    if "mask" in name or kind == np.bool_:
        return np.ones(shape, kind)
    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1], dtype=kind), shape).copy()
    if name in ("sr", "sample_rate"):
        return np.full(shape, 16000, kind)
    if np.issubdtype(kind, np.integer):
        return np.full(shape, side, kind) if "length" in name else rng.integers(0, 2 if "type" in name else 40, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def reference(path):
    """Inputs on which ONNX Runtime runs the model, and its outputs."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    failed = None
    for side in SIDES:
        feeds = {x.name: value(x, side, np.random.default_rng(5)) for x in session.get_inputs()}
        try:
            return feeds, session.run(None, feeds)
        except Exception as e:
            failed = e
    raise failed


def compare(tool, path):
    try:
        feeds, want = reference(path)
    except Exception as e:
        return "without a judge", f"ONNX Runtime: {str(e).splitlines()[0][:100]}"
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, (name, v) in enumerate(feeds.items()):
            files.append(pathlib.Path(folder, f"{i}.pb"))
            files[-1].write_bytes(numpy_helper.from_array(v, name).SerializeToString())
        p = subprocess.run([tool, path, *files], capture_output=True, text=True, timeout=300)
    if p.returncode:
        return "refused", p.stderr.strip()[-160:]
    worst = 0.0
    for o, w in zip(json.loads(p.stdout)["pure Go"], want, strict=True):
        got = np.frombuffer(base64.b64decode(o["data"] or ""), helper.tensor_dtype_to_np_dtype(o["type"])).reshape(o["dims"] or [])
        if got.shape != w.shape:
            return "wrong", f"{got.shape} for {w.shape}"
        a, b = got.astype(np.float64), w.astype(np.float64)
        if w.size and not np.array_equal(a, b, equal_nan=True):
            worst = max(worst, float(np.nan_to_num(np.abs(a - b), nan=np.inf).max() / max(np.abs(np.nan_to_num(b)).max(), 1e-3)))
    return "right" if worst <= 1e-3 else "wrong", f"{worst:.0e}"


def main():
    counts = {}
    for path in sys.argv[2:]:
        try:
            verdict, why = compare(sys.argv[1], path)
        except subprocess.TimeoutExpired:
            verdict, why = "refused", "it takes longer than five minutes"
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f"{verdict}\t{path}\t{why}", flush=True)
    print(counts)
    sys.exit(counts.get("wrong", 0) > 0)


if __name__ == "__main__":
    main()
