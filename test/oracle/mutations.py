"""Changes one thing of converted models, and counts what verify misses without running anything.

    python test/oracle/mutations.py [--count N] [--seed S] [--setting N] [--kind KIND]

takes N changes (default 2000) of the corpus, converted with several settings, raised opsets
included. Of those that change what ONNX Runtime computes, it prints the ones that
`verify --engine none` lets pass without the record of what was written, and each unchanged output that it refuses.
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
    ["--bits", "8", "--block", "-1", "--activations", "dynamic", "--ops", "all"],
    ["--bits", "8", "--block", "-1", "--activations", "static", "--ranges", "RANGES"],
    ["--float16"],
    ["--float16", "--bits", "4", "--block", "32", "--ops", "all"],
    ["--bits", "8", "--block", "32", "--style", "qdq"],
    ["--bits", "4", "--block", "32", "--target", "ort", "--zero-point", "--ops", "all"],
    ["--format", "q4_k", "--ops", "all"],
    ["--format", "nf4", "--ops", "all"],
    [],
    ["--ops", "all"],
    ["--bits", "4", "--block", "32", "--algorithm", "best", "--ops", "all"],
    ["--bits", "4", "--block", "16", "--scale-type", "int8", "--ops", "all"],
    ["--bits", "4", "--block", "32", "--scale-type", "float16", "--zero-point", "--ops", "all"],
    ["--bfloat16", "--bits", "8", "--block", "32"],
    ["--bits", "4", "--block", "32", "--algorithm", "gptq", "--calib", "DATA", "--ops", "all"],
    ["--bits", "4", "--block", "16", "--zero-point", "--algorithm", "best", "--calib", "DATA", "--style", "nbits"],
    ["--bits", "4", "--block", "32", "--algorithm", "awq", "--calib", "DATA"],
    ["--bits", "4", "--block", "32", "--style", "nbits", "|", "--style", "dq"],
    ["--bits", "4", "--block", "32", "--zero-point", "|", "--style", "nbits"],
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
        case AttributeProto.TENSOR: set_first(a.t, larger)


def larger(v):
    """Another value of the same type."""
    return ~v if v.dtype == bool else v + v // 2 + 1 if v.dtype.kind in "iu" else v + v / 2 + v.dtype.type(0.25)


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
            if n.op_type == "QuantizeLinear":
                codes.update([n.input[0], *n.input[2:]])  # of fake quantization, or of activations
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
            for i, name in enumerate(n.input):
                if name and i > 0:
                    def drop(n=n, i=i):
                        n.input[i] = ""
                        while n.input and not n.input[-1]:
                            n.input.pop()
                    found.append(("dropped", f"{where}: input {i} {name} removed", drop))
            for a in n.attribute:
                if not a.g.node:
                    found.append(("default", f"{where}: {a.name} removed", lambda n=n, a=a: n.attribute.remove(a)))
            if n.input and n.input[0] and n.output[0]:
                def bypass(g=g, n=n):
                    n.CopyFrom(onnx.helper.make_node("Identity", n.input[:1], n.output[:1], n.name))
                found.append(("bypassed", where, bypass))

                def insert(g=g, n=n):
                    old, n.output[0] = n.output[0], n.output[0] + "_before"
                    g.node.insert(list(g.node).index(n) + 1, onnx.helper.make_node("Neg", [n.output[0]], [old]))
                found.append(("inserted", f"Neg after {where}", insert))
            if len(n.output) > 1 and n.output[0] and n.output[1]:
                def outputs_swapped(n=n):
                    n.output[0], n.output[1] = n.output[1], n.output[0]
                found.append(("outputs", f"{where}: outputs swapped", outputs_swapped))
            if not n.domain and n.op_type in ("Gelu", "LayerNormalization", "Attention", "GroupNormalization", "RotaryEmbedding", "SkipLayerNormalization"):
                def domain(n=n):
                    n.domain = "com.microsoft"
                found.append(("domain", where, domain))
            made += [o for o in n.output if o]
        for ends in ("input", "output"):
            names = getattr(g, ends)
            if len(names) > 1:
                def reorder(names=names):
                    first = names.pop(0)
                    names.append(first)
                found.append((f"{ends}s", f"{ends}s of {g.name} in another order", reorder))
        for i, o in enumerate(g.output):
            others = [m for m in made if m != getattr(o, "name", o)]
            if others:
                def returned(g=g, i=i, other=others[-1]):
                    if hasattr(g.output[i], "name"):
                        g.output[i].name = other
                    else:
                        g.output[i] = other
                found.append(("returned", f"{g.name}: output {i} -> {others[-1]}", returned))
        for a in getattr(g, "attribute_proto", []):
            found.append(("attribute", f"function {g.name}: default of {a.name}", lambda a=a: change_attribute(a)))
    for name, t in stored.items():
        floats = t.data_type in (1, 10, 11) and np.prod(t.dims) > 0
        if name in scales and floats:
            found.append(("scale", f"{name} negated", lambda t=t: set_first(t, lambda v: -v)))
            found.append(("scale", f"{name} zero", lambda t=t: set_first(t, lambda v: v * 0)))
        elif name not in codes and (floats or t.data_type in (6, 7)) and np.prod(t.dims) > 0:
            found.append(("constant", f"{name} changed", lambda t=t: set_first(t, larger)))
            if floats:
                found.append(("constant", f"{name} doubled", lambda t=t: set_first(t, lambda v: v + v)))
                found.append(("constant", f"{name} negated", lambda t=t: set_first(t, lambda v: -v)))
        if np.prod(t.dims) > 0 and (name not in codes or t.dims):  # zero points of activations are a choice, as scales
            if len(t.dims) > 1 and len(set(t.dims)) > 1:
                def turn(t=t):
                    t.dims[:] = list(t.dims)[::-1]
                found.append(("shape", f"{name} {list(t.dims)} reversed", turn))
            for kind in (1, 7, 10, 11, 6, 2, 3, 21, 22):
                if kind != t.data_type and (name in codes or t.data_type in (2, 3, 21, 22)) == (kind in (2, 3, 21, 22)):
                    found.append(("type", f"{name} as type {kind}", lambda t=t, kind=kind: retype(t, kind)))
    versions = [model.opset_import, *(f.opset_import for f in model.functions)]
    for k, imports in enumerate(versions):
        for o in imports:
            for by in (-8, -3, -1, 1):
                if o.version + by > 0:
                    def version(o=o, by=by):
                        o.version += by
                    found.append(("version", f"import {k} of {o.domain!r}: {by:+}", version))
    return found


def retype(tensor, kind):
    """Stores the same numbers, or the same codes, as another type."""
    if tensor.data_type in (2, 3, 21, 22):
        narrow = {2: 8, 3: 8, 21: 4, 22: 4}
        if narrow[kind] == narrow[tensor.data_type]:
            tensor.data_type = kind
        return
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(values.real.astype(onnx.helper.tensor_dtype_to_np_dtype(kind)), tensor.name))


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


def cases(seed, setting=None):
    """Models of the corpus with settings, in random order."""
    rng = random.Random(seed)
    names = sorted(p.name for p in (CORPUS / "structures").iterdir() if (p / "model.onnx").exists())
    rng.shuffle(names)
    for i, name in enumerate(names):
        yield CORPUS / "structures" / name / "model.onnx", SETTINGS[i % len(SETTINGS) if setting is None else setting], rng


def with_data(path, setting, folder):
    """A setting whose DATA are a file of random inputs, and whose RANGES are those of such inputs."""
    if not {"RANGES", "DATA"} & {*setting}:
        return setting
    ranges, feeds = pathlib.Path(folder, "ranges.json"), pathlib.Path(folder, "feeds.npz")
    model = load(path)
    np.savez(feeds, **dict(zip([i.name for i in runtime.session(model).get_inputs()], runtime.random_feeds(model))))
    if "RANGES" in setting:
        onnxquant("calibrate", "--quiet", "--data", feeds, "-o", ranges, path)
    return [{"RANGES": ranges, "DATA": feeds}.get(s, s) for s in setting]


def convert(path, setting, folder, out):
    """Converts as a setting says; what comes after a bar is for restyle. Reports whether it could."""
    setting = with_data(path, setting, folder)
    at = setting.index("|") if "|" in setting else len(setting)
    if onnxquant("--quiet", "--force", *setting[:at], path, out).status != 0:
        return False
    if at == len(setting):
        return True
    before = out.replace(out.with_name("before.onnx"))
    return onnxquant("restyle", "--quiet", "--force", *setting[at + 1:], before, out).status == 0


def tally(count, seed=0, each=8, setting=None, kind=None):
    """Tries count mutations. Returns the number of those that change outputs by kind, the missed ones, and the
    conversions that are refused unchanged."""
    changed, missed, refused, tried = collections.Counter(), [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        out, wrong = pathlib.Path(folder, "out.onnx"), pathlib.Path(folder, "wrong.onnx")
        for path, flags, rng in cases(seed, setting):
            if tried >= count:
                break
            label = f"{path.parent.name} {' '.join(flags)}"
            try:
                if not convert(path, flags, folder, out):
                    continue
                if (verdict := onnxquant("verify", "--engine", "none", path, out)).status != 0:
                    refused.append(label)
                    print(f"{label}: refused unchanged: {verdict.stdout}{verdict.stderr}", flush=True)
                model = load(out)
                feeds = runtime.random_feeds(model)
            except Exception:  # noqa: BLE001 - not every type has a kernel
                continue
            want = outputs(model, feeds)
            if want is None or differ(outputs(model, feeds), want):  # with 2 bits ONNX Runtime may read what is not there
                continue
            every = [k for k, (what, *_) in enumerate(mutations(model)) if kind in (None, what)]
            for k in rng.sample(every, min(each, len(every))):
                mutant = onnx.ModelProto()
                mutant.CopyFrom(model)
                what, where, change = mutations(mutant)[k]
                try:
                    change()
                except (ValueError, TypeError, AttributeError):  # no such value in the type
                    continue
                tried += 1
                got = outputs(mutant, feeds)
                if got is None or not differ(got, want):
                    continue
                changed[what] += 1
                for e in [e for e in mutant.metadata_props if e.key == "onnxquant.written"]:
                    mutant.metadata_props.remove(e)  # it finds every change
                wrong.write_bytes(mutant.SerializeToString())
                if onnxquant("verify", "--engine", "none", path, wrong).status == 0:
                    missed.append(f"{label}: {what}: {where}")
                    print(missed[-1], flush=True)
    return changed, missed, refused


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--each", type=int, default=8)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--setting", type=int, help="number of one setting of the list")
    p.add_argument("--kind", help="one kind of change")
    args = p.parse_args()
    changed, missed, refused = tally(args.count, args.seed, args.each, args.setting, args.kind)
    total = sum(changed.values())
    print(f"{total} change outputs ({dict(changed)}); verify misses {len(missed)}, {100 * len(missed) / max(total, 1):.1f} %; refuses {len(refused)} unchanged")


if __name__ == "__main__":
    main()
