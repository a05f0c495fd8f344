"""Edits codes, scales, zero points and inputs of decoders of converted models, and counts what verify misses.

    python test/oracle/edits.py [--count N] [--seed S]

takes N edits (default 400) of the corpus, converted with the settings of mutations.py and more. Harmful is an edit
that at least doubles the error of an output against the float model, to 2 % or more. Of these it counts those that
pass: with the record of what was written, without running anything; and with the record removed, with the outputs
compared in ONNX Runtime, too. A verdict of poor is no pass. It also counts unchanged outputs that are refused, with the
record and without.
"""
import argparse
import json
import pathlib
import random
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import mutations
import runtime
from command import CORPUS, onnxquant
from graphs import load

SETTINGS = mutations.SETTINGS + [
    ["--bits", "4", "--block", "32", "--style", "qdq", "--ops", "all"],
    ["--activations", "static", "--ranges", "RANGES", "--ops", "all"],
    ["--activations", "static", "--ranges", "RANGES", "--activation-type", "uint16", "--target", "qnn"],
    ["--activations", "dynamic", "--ops", "all"],
    ["--bits", "8", "--zero-point", "--target", "ort", "--ops", "all"],
]

LIBRARY = ["--ort-lib", next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))]


def set_values(t, values):
    t.CopyFrom(numpy_helper.from_array(values.astype(numpy_helper.to_array(t).dtype), t.name))


def edits(m):
    """Lists (kind, tensor, function that edits it)."""
    stored = {t.name: t for g in mutations.graphs(m.graph) for t in g.initializer}
    found = []

    def add(kind, name, change):
        t = stored.get(name)
        if t is not None and t.dims is not None and int(np.prod(t.dims)) > 0:
            found.append((kind, name, lambda: set_values(t, change(numpy_helper.to_array(t).copy()))))

    def one(v, change, at=None):
        flat = v.reshape(-1)
        at = np.abs(flat.astype(float)).argmax() if at is None else at
        flat[at] = change(flat[at])
        return v
    for g in mutations.graphs(m.graph):
        for n in g.node:
            places = {"DequantizeLinear": (0, 1, 2), "QuantizeLinear": (None, 1, 2), "MatMulNBits": (1, 2, 3), "GatherBlockQuantized": (0, 2, 3)}.get(n.op_type)
            if not places:
                continue
            codes, scale, zero = (n.input[i] if i is not None and i < len(n.input) else "" for i in places)
            for factor in (0.5, 0.25, 2):
                add(f"scales × {factor}", scale, lambda v, factor=factor: v * v.dtype.type(factor))
            add("one scale × 2", scale, lambda v: one(v, lambda x: x * 2))
            add("zero points + 3", zero, lambda v: (v.astype(np.int64) + 3) % 100)
            add("rows of codes swapped", codes, lambda v: np.concatenate([v[-1:], v[1:-1], v[:1]]) if v.ndim > 1 and len(v) > 1 else v[::-1])
            add("one code", codes, lambda v: one(v, lambda x: 0 * x))
    return found


def errors(got, want):
    """The largest relative error of an output; infinite if it is not finite or has another shape."""
    worst = 0.0
    for g, w in zip(map(np.asarray, got), map(np.asarray, want)):
        if not runtime.is_float(w) or w.size == 0:
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        if g.shape != w.shape:
            return np.inf
        e = np.linalg.norm(g - w) / max(np.linalg.norm(w), 1e-12)
        worst = max(worst, e if np.isfinite(e) else np.inf)
    return worst


def passes(source, path, *args):
    return onnxquant("verify", "-q", "--fail-on", "poor", *LIBRARY, *args, source, path, timeout=120).status == 0


def tally(count, seed=0, each=6):
    rng, tried, harmful = random.Random(seed), 0, 0
    models = sorted(p for p in (CORPUS / "structures").glob("*/model.onnx"))
    grid = [(m, s) for m in models for s in SETTINGS]
    rng.shuffle(grid)
    alarms, with_record, without = [], [], []
    honest = 0
    with tempfile.TemporaryDirectory() as folder:
        out, wrong = pathlib.Path(folder, "out.onnx"), pathlib.Path(folder, "wrong.onnx")
        for source, setting in grid:
            if tried >= count:
                break
            label = f"{source.parent.name} {' '.join(map(str, setting))}"
            try:
                if not mutations.convert(source, setting, folder, out):
                    continue
                float_model, model = load(source), load(out)
                feeds = runtime.random_feeds(float_model)
                want = mutations.outputs(float_model, feeds)
            except Exception:  # noqa: BLE001 - not every type has a kernel
                continue
            honest += 1
            if not passes(source, out, "--engine", "none"):
                alarms.append(label)
            del model.metadata_props[:]
            wrong.write_bytes(model.SerializeToString())
            if onnxquant("verify", "-q", *LIBRARY, source, wrong, timeout=120).status != 0:
                alarms.append(label + ", without record")
            model = load(out)
            got = want and mutations.outputs(model, feeds)
            every = edits(model)
            if not got or not every:
                continue
            base = errors(got, want)
            for k in rng.sample(range(len(every)), min(each, len(every))):
                mutant = onnx.ModelProto()
                mutant.CopyFrom(model)
                kind, name, change = edits(mutant)[k]
                try:
                    change()
                except (ValueError, TypeError, OverflowError):
                    continue
                tried += 1
                got = mutations.outputs(mutant, feeds)
                if got is None or errors(got, want) < max(2 * base, 0.02):
                    continue
                harmful += 1
                wrong.write_bytes(mutant.SerializeToString())
                if passes(source, wrong, "--engine", "none"):
                    with_record.append(f"{label}: {kind} of {name}")
                del mutant.metadata_props[:]
                wrong.write_bytes(mutant.SerializeToString())
                if passes(source, wrong, "--engine", "none") and passes(source, wrong):
                    without.append(f"{label}: {kind} of {name}")
    return {"honest": honest, "alarms": alarms, "edits": tried, "harmful": harmful, "passed": with_record, "passed_without_record": without}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    print(json.dumps(tally(args.count, args.seed), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
