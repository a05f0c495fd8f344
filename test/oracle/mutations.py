"""Changes one thing of converted models, and counts what verify misses without running anything.

    python test/oracle/mutations.py [--count N] [--seed S]

takes N changes (default 2000) of the corpus, converted with several settings, raised opsets
included. Of those that change what ONNX Runtime computes, it prints the ones that
`verify --engine none` lets pass.
"""
import argparse
import collections
import pathlib
import random
import tempfile

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

import runtime
from command import CORPUS, onnxquant
from graphs import load

SETTINGS = [
    ["--block", "32", "--ops", "all"],
    ["--bits", "8", "--block", "-1", "--ops", "all"],
    ["--bits", "4", "--block", "32", "--style", "nbits"],
    ["--bits", "2", "--block", "16", "--zero-point", "--ops", "all"],
    ["--format", "fp8-e4m3"],
]

OPERATORS = [o.split() for o in (
    "Relu Tanh Sigmoid Neg Abs Exp Sqrt Erf Softplus", "Add Sub Mul Div", "ReduceMax ReduceMin ReduceMean ReduceSum ReduceProd",
    "Softmax LogSoftmax", "MaxPool AveragePool", "Flatten Softmax", "Squeeze Identity", "Transpose Relu", "Clip Max", "Identity Neg",
    "GlobalAveragePool GlobalMaxPool", "Ceil Floor Round", "Sin Cos", "And Or Xor", "Less Greater Equal", "Min Max", "LSTM GRU RNN")]


def graphs(graph):
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for inner in [a.g, *a.graphs]:
                if inner.node:
                    yield from graphs(inner)


def other_operator(node):
    for names in OPERATORS:
        if node.op_type in names:
            return names[(names.index(node.op_type) + 1) % len(names)]
    return "Identity"


def change_attribute(a):
    match a.type:
        case AttributeProto.INT: a.i = 1 - a.i
        case AttributeProto.FLOAT: a.f += 0.5
        case AttributeProto.INTS if a.ints: a.ints[0] += 1
        case AttributeProto.FLOATS if a.floats: a.floats[0] += 0.5
        case AttributeProto.STRING: a.s = {b"": b"x", b"forward": b"reverse"}.get(a.s, a.s + b"x")


def set_first(tensor, change):
    """Changes the element of a stored tensor that is largest."""
    values = numpy_helper.to_array(tensor).copy()
    flat = values.reshape(-1)
    at = int(np.abs(flat.astype(np.float64)).argmax())
    flat[at] = change(flat[at])
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def mutations(model):
    """Lists (kind, what, function that changes the model)."""
    found, stored, scales, codes = [], {}, set(), set()
    every = list(graphs(model.graph))
    for f in model.functions:
        every.append(f)
    for g in every:
        for t in getattr(g, "initializer", []):
            stored[t.name] = t
        for n in g.node:
            if n.op_type == "DequantizeLinear":
                scales.update(n.input[1:2])
                codes.update([n.input[0], *n.input[2:]])
            if n.op_type in ("MatMulNBits", "GatherBlockQuantized"):
                scales.add(n.input[2])
                codes.update([n.input[1 if n.op_type == "MatMulNBits" else 0], *n.input[3:4]])
    for g in every:
        made = []
        for n in g.node:
            where = f"{n.op_type} {n.output[0]}"

            def operator(n=n, op=other_operator(n)):
                n.op_type = op
            found.append(("operator", f"{where} -> {other_operator(n)}", operator))
            for a in n.attribute:
                if a.name != "accuracy_level" and not a.g.node:
                    found.append(("attribute", f"{where}: {a.name}", lambda a=a: change_attribute(a)))
            for i, name in enumerate(n.input):
                others = [m for m in made[::-1] if m != name] if name not in stored else [
                    s for s, t in stored.items() if s != name and t.data_type == stored[name].data_type and t.dims == stored[name].dims]
                if others and name:
                    def read(n=n, i=i, other=others[0]):
                        n.input[i] = other
                    found.append(("input", f"{where}: input {i} {name} -> {others[0]}", read))
            if len(n.input) > 1 and n.input[0] != n.input[1]:
                def swap(n=n):
                    n.input[0], n.input[1] = n.input[1], n.input[0]
                found.append(("order", f"{where}: inputs swapped", swap))
            made += [o for o in n.output if o]
    for name, t in stored.items():
        floats = t.data_type in (1, 10, 11) and np.prod(t.dims) > 0
        if name in scales and floats:
            found.append(("scale", f"{name} negated", lambda t=t: set_first(t, lambda v: -v)))
            found.append(("scale", f"{name} zero", lambda t=t: set_first(t, lambda v: v * 0)))
        elif name not in codes and (floats or t.data_type in (6, 7)) and np.prod(t.dims) > 0:
            found.append(("constant", f"{name} changed", lambda t=t: set_first(t, lambda v: v + v // 2 + 1 if t.data_type > 2 and t.data_type < 8 else v + v / 2 + 0.25)))
            if floats:
                found.append(("constant", f"{name} negated", lambda t=t: set_first(t, lambda v: -v)))
    return found


def outputs(model, feeds):
    try:
        return runtime.run(model, feeds)
    except Exception:  # noqa: BLE001 - a model that does not run is no mutation of interest
        return None


def differ(got, want):
    for g, w in zip(map(np.asarray, got), map(np.asarray, want)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return True
        if not runtime.is_float(w):
            if not np.array_equal(g, w):
                return True
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        largest = np.abs(w[np.isfinite(w)]).max(initial=0)
        if not np.allclose(g, w, rtol=0, atol=1e-3 * largest, equal_nan=True):
            return True
    return False


def cases(seed):
    """Models of the corpus with settings, in random order."""
    rng = random.Random(seed)
    names = sorted(p.name for p in (CORPUS / "structures").iterdir() if (p / "model.onnx").exists())
    rng.shuffle(names)
    for i, name in enumerate(names):
        yield CORPUS / "structures" / name / "model.onnx", SETTINGS[i % len(SETTINGS)], rng


def tally(count, seed=0, each=8):
    """Tries count mutations. Returns the number of those that change outputs by kind, and the missed ones."""
    changed, missed, tried = collections.Counter(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        out, wrong = pathlib.Path(folder, "out.onnx"), pathlib.Path(folder, "wrong.onnx")
        for path, setting, rng in cases(seed):
            if tried >= count:
                break
            if onnxquant("--quiet", "--force", *setting, path, out).status != 0:
                continue
            try:
                model = load(out)
                feeds = runtime.random_feeds(model)
            except Exception:  # noqa: BLE001 - not every type has a kernel
                continue
            want = outputs(model, feeds)
            if want is None:
                continue
            size = len(mutations(model))
            for k in rng.sample(range(size), min(each, size)):
                mutant = onnx.ModelProto()
                mutant.CopyFrom(model)
                kind, what, change = mutations(mutant)[k]
                change()
                tried += 1
                got = outputs(mutant, feeds)
                if got is None or not differ(got, want):
                    continue
                changed[kind] += 1
                wrong.write_bytes(mutant.SerializeToString())
                if onnxquant("verify", "--engine", "none", path, wrong).status == 0:
                    missed.append(f"{path.parent.name} {' '.join(setting)}: {kind}: {what}")
                    print(missed[-1], flush=True)
    return changed, missed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--each", type=int, default=8)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    changed, missed = tally(args.count, args.seed, args.each)
    total = sum(changed.values())
    print(f"{total} change outputs ({dict(changed)}); verify misses {len(missed)}, {100 * len(missed) / max(total, 1):.1f} %")


if __name__ == "__main__":
    main()
