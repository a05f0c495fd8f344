"""A conversion of a whole 7B with the weights of a quantized checkpoint, beside the conversion of the same model from float32: CPU time, time,
and peak memory of the process. whole7b.py [--layers N] [gptq|awq|bfloat16] … in the folder build/bench/whole7b, 12 GB. Codes, scales and zero points of some
weights are compared with the files, bit for bit.

The model has the shapes of Llama 7B. Its 27 GB are a hole in a file, which takes no disk and reads as zeros; the checkpoint has random codes of its
own for each weight, in files of 1 GB."""
import argparse
import json
import os
import pathlib
import subprocess
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

HIDDEN, INNER, VOCABULARY, GROUP = 4096, 11008, 32000, 128
SHAPES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
          "mlp.gate_proj": (HIDDEN, INNER), "mlp.up_proj": (HIDDEN, INNER), "mlp.down_proj": (INNER, HIDDEN)}
BINARY = pathlib.Path(os.environ.get("ONNXQUANT", "bin/onnxquant")).resolve()
rng = np.random.default_rng(7)


def model(folder, layers):
    """Writes the graph as Optimum names it. Attention is a product of q, k and v: nothing is run."""
    inits, nodes, at = [], [], 0

    def weight(name, shape):
        nonlocal at
        size = 4 * int(np.prod(shape))
        t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "model.data", "offset": at, "length": size}.items():
            t.external_data.add(key=key, value=str(value))
        at += size
        inits.append(t)
        return name

    def node(op, *inputs, name):
        nodes.append(helper.make_node(op, inputs, [name + "_output_0"], name=name))
        return name + "_output_0"

    x = node("Gather", weight("model.embed_tokens.weight", [VOCABULARY, HIDDEN]), "input_ids", name="/model/embed_tokens/Gather")
    for i in range(layers):
        def product(module, x):
            path = f"/model/layers.{i}/{module.replace('.', '/')}/MatMul"
            return node("MatMul", x, weight(f"onnx::MatMul_{len(inits)}", SHAPES[module]), name=path)

        h = node("Mul", x, weight(f"model.layers.{i}.input_layernorm.weight", [HIDDEN]), name=f"/model/layers.{i}/input_layernorm/Mul")
        q, k, v = (product(f"self_attn.{c}_proj", h) for c in "qkv")
        h = node("Mul", node("Mul", q, k, name=f"/l{i}/qk"), v, name=f"/l{i}/qkv")
        x = node("Add", x, product("self_attn.o_proj", h), name=f"/l{i}/add")
        h = node("Mul", x, weight(f"model.layers.{i}.post_attention_layernorm.weight", [HIDDEN]), name=f"/model/layers.{i}/post_attention_layernorm/Mul")
        h = node("Mul", product("mlp.gate_proj", h), product("mlp.up_proj", h), name=f"/l{i}/gated")
        x = node("Add", x, product("mlp.down_proj", h), name=f"/l{i}/add2")
    x = node("Mul", x, weight("model.norm.weight", [HIDDEN]), name="/model/norm/Mul")
    nodes.append(helper.make_node("MatMul", [x, weight("onnx::MatMul_head", [HIDDEN, VOCABULARY])], ["logits"], name="/lm_head/MatMul"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", VOCABULARY])], inits)
    with open(folder / "model.data", "wb") as f:
        f.truncate(at)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "model.onnx")


class Random:
    """Bytes that differ from tensor to tensor, out of one random block."""

    def __init__(self):
        self.block, self.made = rng.integers(0, 256, 80 << 20, dtype=np.uint8), 0

    def take(self, n):
        self.made += 1
        at = self.made * 1009 * 64 % (len(self.block) - n) if n < len(self.block) else 0
        return np.resize(self.block[at:at + n], n)


def checkpoint(folder, kind, layers):
    """Writes sharded safetensors, and returns where the tensors are."""
    folder.mkdir(exist_ok=True)
    random, where, tensors = Random(), {}, {}

    def scales(k, n):
        return (random.take(2 * k // GROUP * n).view(np.uint16) & 0x3FF | 0x1400).view(np.float16).reshape(k // GROUP, n)  # 2^-10 to 2^-9

    shapes = {f"model.layers.{i}.{m}": s for i in range(layers) for m, s in SHAPES.items()}
    for module, (k, n) in shapes.items():
        if kind == "bfloat16":
            tensors[module + ".weight"] = "BF16", (n, k), lambda k=k, n=n: random.take(2 * k * n).view(np.uint16) & 0x83FF | 0x3A00
            continue
        rows = (k // 8, n) if kind == "gptq" else (k, n // 8)
        tensors[module + ".qweight"] = "I32", rows, lambda k=k, n=n: random.take(k * n // 2)
        tensors[module + ".qzeros"] = "I32", (k // GROUP, n // 8), lambda k=k, n=n: random.take(k // GROUP * n // 2) & 0x77
        tensors[module + ".scales"] = "F16", (k // GROUP, n), lambda k=k, n=n: scales(k, n)
        if kind == "gptq":
            tensors[module + ".g_idx"] = "I32", (k,), lambda k=k: np.arange(k, dtype=np.int32) // GROUP
    half = lambda *shape: (lambda: random.take(2 * int(np.prod(shape))).view(np.uint16) & 0x83FF | 0x2000)  # noqa: E731
    for name, shape in {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
                        **{f"model.layers.{i}.{n}_layernorm.weight": (HIDDEN,) for i in range(layers) for n in ("input", "post_attention")}}.items():
        tensors[name] = "F16", shape, half(*shape)
    size = {"I32": 4, "F16": 2, "BF16": 2}
    names, shards = list(tensors), [[]]
    for name in names:
        if sum(size[tensors[n][0]] * int(np.prod(tensors[n][1])) for n in shards[-1]) > 1 << 30:
            shards.append([])
        shards[-1].append(name)
    for s, group in enumerate(shards):
        file, header, at = f"model-{s + 1:05}-of-{len(shards):05}.safetensors", {}, 0
        for name in group:
            typ, shape, _ = tensors[name]
            n = size[typ] * int(np.prod(shape))
            header[name] = {"dtype": typ, "shape": shape, "data_offsets": [at, at + n]}
            where[name] = [file, at, shape, typ]
            at += n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for name in group:
                f.write(np.ascontiguousarray(tensors[name][2]()).tobytes())
                where[name][1] = header[name]["data_offsets"][0] + 8 + len(text)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: w[0] for name, w in where.items()}}))
    if kind == "bfloat16":
        return where
    settings = {"bits": 4, "group_size": GROUP, "quant_method": kind, **({"checkpoint_format": "gptq_v2"} if kind == "gptq" else {"version": "gemm"})}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": settings}))
    return where


def run(*args):
    """CPU time, time and peak memory of the command."""
    before, started = os.times(), time.perf_counter()
    p, peak = subprocess.Popen([BINARY, "--quiet", *map(str, args)]), 0
    while p.poll() is None:
        for line in pathlib.Path(f"/proc/{p.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peak = int(line.split()[1]) / 1024
        time.sleep(.02)
    if p.returncode:
        raise SystemExit(f"exit status {p.returncode}")
    after = os.times()
    return f"CPU {after.children_user - before.children_user:.1f} s + {after.children_system - before.children_system:.1f} s, {time.perf_counter() - started:.1f} s, {peak:.0f} MiB"


def stored(folder, where, name):
    file, at, shape, typ = where[name]
    return np.memmap(folder / file, {"I32": np.uint32, "F16": np.float16}[typ], "r", at, tuple(shape))


def columns(words, order=range(8)):
    """Codes of words that hold eight columns each."""
    return np.stack([words >> np.uint32(4 * i) & np.uint32(15) for i in order], -1).reshape(len(words), -1).astype(np.uint8)


def codes(folder, where, kind, module):
    """Codes and zero points [K,N], and scales."""
    w, z, s = (stored(folder, where, f"{module}.{part}") for part in ("qweight", "qzeros", "scales"))
    if kind == "awq":
        order = [0, 4, 1, 5, 2, 6, 3, 7]
        return columns(w, order), columns(z, order), s
    return np.stack([w >> np.uint32(4 * i) & np.uint32(15) for i in range(8)], 1).reshape(-1, w.shape[1]).astype(np.uint8), columns(z), s


def written(out):
    """Codes, scales and zero points of the products by the names of their nodes, as [K,N]."""
    m = onnx.load(out, load_external_data=False)
    inits = {t.name: t for t in m.graph.initializer}
    makers = {n.output[0]: n for n in m.graph.node}

    def raw(name):
        t = inits[name]
        if t.data_location != TensorProto.EXTERNAL:
            return np.frombuffer(t.raw_data, np.uint8), t
        e = {x.key: x.value for x in t.external_data}
        return np.memmap(out.parent / e["location"], np.uint8, "r", int(e.get("offset", 0)), (int(e["length"]),)), t

    def nibbles(data):
        return np.stack([data & 15, data >> 4], -1).reshape(-1)

    def floats(name):
        data, t = raw(name)
        return data.view(np.float32).reshape(t.dims)

    def get(node):
        if node.op_type == "MatMulNBits":
            a = {x.name: x.i for x in node.attribute}
            k, n, blocks = a["K"], a["N"], a["K"] // a["block_size"]
            zeros = nibbles(raw(node.input[3])[0]).reshape(n, -1)[:, :blocks]
            return nibbles(raw(node.input[1])[0]).reshape(n, k).T, zeros.T, floats(node.input[2]).reshape(n, blocks).T
        dq = makers[node.input[1]]
        data, t = raw(dq.input[0])
        z, zt = raw(dq.input[2])
        return nibbles(data).reshape(t.dims), nibbles(z).reshape(zt.dims), floats(dq.input[1])

    return {n.name: get for n in m.graph.node}, {n.name: n for n in m.graph.node}


def compare(out, folder, where, kind, layers):
    gets, nodes = written(out)
    count = 0
    for layer in {0, layers // 2, layers - 1}:
        for module in SHAPES:
            name = f"model.layers.{layer}.{module}"
            at = f"/model/layers.{layer}/{module.replace('.', '/')}/MatMul"
            for got, want in zip(gets[at](nodes[at]), codes(folder, where, kind, name), strict=True):
                assert got.shape == want.shape and np.array_equal(got, want.astype(got.dtype)), name
            count += 1
    return f"{count} weights have the codes, scales and zero points of the files"


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--layers", type=int, default=32)
    args.add_argument("--styles", default="dq,nbits")
    args.add_argument("kinds", nargs="*", default=["gptq", "awq"])
    args = args.parse_args()
    folder = pathlib.Path("build/bench/whole7b")
    folder.mkdir(parents=True, exist_ok=True)
    model(folder, args.layers)
    out = folder / "out.onnx"

    def remove():
        for file in folder.glob("out.onnx*"):
            file.unlink()

    for kind in args.kinds:
        where = checkpoint(folder / kind, kind, args.layers)
        for style in args.styles.split(","):
            for label, flags in {"float32": [], kind: ["--weights-from", folder / kind]}.items():
                print(style, label, run("-b", 4, "--style", style, *flags, folder / "model.onnx", out), flush=True)
                if flags and kind != "bfloat16":
                    print("  ", compare(out, folder / kind, where, kind, args.layers), flush=True)
                remove()
        for file in (folder / kind).iterdir():
            file.unlink()
        (folder / kind).rmdir()
    for file in folder.glob("model.*"):
        file.unlink()


if __name__ == "__main__":
    main()
