"""--weights-from of checkpoints that are quantized already: codes arrive in the output as they are.

The packing below follows what each library writes, in numpy and on its own: AutoGPTQ and GPTQModel, AutoAWQ,
compressed-tensors, bitsandbytes, MLX and ModelOpt.
"""
import json
import struct

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from runtime import session

N, K = 64, 128
rng = np.random.default_rng(7)


def safetensors(path, tensors):
    types = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "int64": "I64",
             "int32": "I32", "uint32": "U32", "int8": "I8", "uint8": "U8"}
    header, data = {}, b""
    for name, a in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": types[a.dtype.name], "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def words(q, bits, axis):
    """Codes packed into words of 32 bits along an axis, from the lowest bit on."""
    q = np.moveaxis(q, axis, -1).astype(np.uint64)
    stream = (q[..., None] >> np.arange(bits, dtype=np.uint64) & 1).reshape(*q.shape[:-1], -1)
    stream = stream.reshape(*q.shape[:-1], -1, 32)
    packed = (stream << np.arange(32, dtype=np.uint64)).sum(-1).astype(np.uint32).view(np.int32)
    return np.moveaxis(packed, -1, axis)


def grouped(n, k, group, bits, symmetric=False):
    """Codes [N,K], scales [N,G] of float16 and zero points [N,G]."""
    q = rng.integers(0, 2**bits, (n, k))
    scale = rng.uniform(.001, .02, (n, k // group)).astype(np.float16)
    zero = np.full((n, k // group), 2 ** (bits - 1)) if symmetric else rng.integers(1, 2**bits, (n, k // group))
    return q, scale, zero


def values(q, scale, zero, group):
    return (q - np.repeat(zero, group, 1)).astype(np.float32) * np.repeat(scale.astype(np.float32), group, 1)


def gptq(bits, group, symmetric=False, v2=False, order=None):
    def make(name, n, k):
        q, scale, zero = grouped(n, k, group, bits, symmetric)
        index = np.arange(k) // group
        if order:  # modules that read the same activations have the same order
            index = np.random.default_rng(len(name.split(".")[-2] if "." in name else name)).permutation(index)
        want = (q - zero[:, index]).astype(np.float32) * scale.astype(np.float32)[:, index]
        less = zero if v2 else zero - 1
        return {name + ".qweight": words(q.T, bits, 0), name + ".qzeros": words(less.T, bits, 1), name + ".scales": scale.T,
                name + ".g_idx": index.astype(np.int32)}, want
    method = {"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": "gptq_v2" if v2 else "gptq"}
    return make, {"quantization_config": method}


def awq(group):
    def make(name, n, k):
        q, scale, zero = grouped(n, k, group, 4)
        columns = [0, 2, 4, 6, 1, 3, 5, 7]  # of eight, in the order of a word's nibbles

        def packed(a):
            return words(a.reshape(len(a), -1, 8)[:, :, columns].reshape(len(a), -1), 4, 1)
        return {name + ".qweight": packed(q.T), name + ".qzeros": packed(zero.T), name + ".scales": scale.T}, values(q, scale, zero, group)
    return make, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}}


def compressed(bits, group, symmetric=True, dtype=np.float16):
    def make(name, n, k):
        q, scale, zero = grouped(n, k, group, bits, symmetric)
        scale = scale.astype(dtype)
        t = {name + ".weight_packed": words(q, bits, 1), name + ".weight_scale": scale, name + ".weight_shape": np.array([n, k])}
        if not symmetric:
            t[name + ".weight_zero_point"] = words(zero, bits, 0)
        return t, values(q, scale, zero, group)
    return make, {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}}


def int8_rows(zeros=False):
    def make(name, n, k):
        q, scale = rng.integers(-128, 128, (n, k)).astype(np.int8), rng.uniform(.001, .02, (n, 1)).astype(ml_dtypes.bfloat16)
        zero = rng.integers(-9, 9, (n, 1)).astype(np.int8) if zeros else np.zeros((n, 1), np.int8)
        t = {name + ".weight": q, name + ".weight_scale": scale}
        if zeros:
            t[name + ".weight_zero_point"] = zero
        return t, (q.astype(np.int32) - zero).astype(np.float32) * scale.astype(np.float32)
    return make, {}


NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)


def nf4(double):
    def make(name, n, k):
        q = rng.integers(0, 16, n * k)
        state = {"quant_type": "nf4", "blocksize": 64, "shape": [n, k], "dtype": "float16"}
        t = {name + ".weight": (q[0::2] << 4 | q[1::2]).astype(np.uint8)[:, None], name + ".weight.quant_map": NF4}
        blocks = n * k // 64
        if double:
            table, outer = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32), rng.uniform(.1, .5, -(-blocks // 256)).astype(np.float32)
            codes = rng.integers(200, 256, blocks).astype(np.uint8)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": .75}
            t |= {name + ".weight.absmax": codes, name + ".weight.nested_quant_map": table, name + ".weight.nested_absmax": outer}
            absmax = table[codes] * np.repeat(outer, 256)[:blocks] + np.float32(.75)
        else:
            absmax = t[name + ".weight.absmax"] = rng.uniform(.01, .1, blocks).astype(np.float32)
        t[name + ".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
        return t, (NF4[q] * np.repeat(absmax, 64)).reshape(n, k)
    return make, {}


def bnb8(name, n, k):
    q, most = rng.integers(-127, 128, (n, k)).astype(np.int8), rng.uniform(.1, 3, n).astype(np.float32)
    return {name + ".weight": q, name + ".SCB": most}, q * (most * np.float32(1 / 127))[:, None]


def mlx(bits, group):
    def make(name, n, k):
        q, scale, _ = grouped(n, k, group, bits)
        bias = rng.uniform(-.1, .1, scale.shape).astype(np.float16)
        want = q.astype(np.float32) * np.repeat(scale.astype(np.float32), group, 1) + np.repeat(bias.astype(np.float32), group, 1)
        return {name + ".weight": words(q, bits, 1).view(np.uint32), name + ".scales": scale, name + ".biases": bias}, want
    return make, {"quantization": {"bits": bits, "group_size": group}}


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def nvfp4(modelopt):
    def make(name, n, k):
        q, scale = rng.integers(0, 16, (n, k)), rng.uniform(1, 448, (n, k // 16)).astype(ml_dtypes.float8_e4m3fn)
        packed, common = (q[:, 0::2] | q[:, 1::2] << 4).astype(np.uint8), np.float32(2.0**-12)
        if modelopt:
            t = {name + ".weight": packed, name + ".weight_scale": scale, name + ".weight_scale_2": np.array(common)}
        else:
            t = {name + ".weight_packed": packed, name + ".weight_scale": scale, name + ".weight_global_scale": np.array([1 / common], np.float32)}
        return t, E2M1[q] * np.repeat(scale.astype(np.float32) * common, 16, 1)
    return make, {}


# The format that the codes get.
KINDS = {
    "gptq": (*gptq(4, 32), TensorProto.UINT4), "gptq-v2": (*gptq(4, 64, v2=True), TensorProto.UINT4), "gptq-sym": (*gptq(4, 128, symmetric=True), TensorProto.INT4),
    "gptq-3": (*gptq(3, 32), TensorProto.UINT4), "gptq-8": (*gptq(8, 32), TensorProto.UINT8), "gptq-2": (*gptq(2, 32), TensorProto.UINT2),
    "awq": (*awq(32), TensorProto.UINT4), "compressed": (*compressed(4, 32), TensorProto.INT4),
    "compressed-zp": (*compressed(4, 32, symmetric=False), TensorProto.UINT4), "compressed-8": (*compressed(8, 128), TensorProto.INT8),
    "compressed-bf16": (*compressed(4, 128, dtype=ml_dtypes.bfloat16), TensorProto.INT4), "int8": (*int8_rows(), TensorProto.INT8),
    "int8-zp": (*int8_rows(True), TensorProto.UINT8), "nf4": (*nf4(False), TensorProto.UINT4), "nf4-double": (*nf4(True), TensorProto.UINT4),
    "bnb-int8": (bnb8, {}, TensorProto.INT8), "mlx": (*mlx(4, 32), TensorProto.INT4), "mlx-6": (*mlx(6, 64), TensorProto.INT8), "nvfp4": (*nvfp4(False), TensorProto.FLOAT4E2M1), "nvfp4-modelopt": (*nvfp4(True), TensorProto.FLOAT4E2M1),
}


def model(dtype=TensorProto.FLOAT):
    """A MatMul named by its module, a Gemm that reads [N,K], and a product of three modules."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["a"], name="/model/layers.0/mlp/up_proj/MatMul"),
             helper.make_node("Gemm", ["x", "head.weight"], ["b"], transB=1, name="/head/Gemm"),
             helper.make_node("MatMul", ["x", "model.layers.0.attn.qkv_proj.MatMul.weight"], ["c"], name="qkv")]
    weights = [("onnx::MatMul_7", (K, N)), ("head.weight", (N, K)), ("model.layers.0.attn.qkv_proj.MatMul.weight", (K, 3 * N))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, ["n", K])],
                              [helper.make_tensor_value_info(o, dtype, ["n", None]) for o in "abc"],
                              [numpy_helper.from_array(np.zeros(shape, kind), name) for name, shape in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def checkpoint(folder, made, *tables):
    """Writes a checkpoint of a maker of tensors and its config, and returns the weights of the model."""
    make, config = made
    tensors, want = {}, {}
    for name in ["model.layers.0.mlp.up_proj", "head"] + [f"model.layers.0.self_attn.{p}_proj" for p in "qkv"] + list(tables):
        t, want[name] = make(name, N, K)
        tensors |= t
    safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    qkv = np.concatenate([want[f"model.layers.0.self_attn.{p}_proj"] for p in "qkv"])
    return {"onnx::MatMul_7": want["model.layers.0.mlp.up_proj"].T, "head.weight": want["head"],
            "model.layers.0.attn.qkv_proj.MatMul.weight": qkv.T} | {t + ".weight": want[t] for t in tables}


def stored(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("kind", KINDS)
def test_codes(kind, tmp_path):
    onnx.save(model(), tmp_path / "in.onnx")
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()
    want = checkpoint(ckpt, KINDS[kind][:2])
    code = KINDS[kind][2]

    # In float, the elements are those of the checkpoint.
    r = onnxquant("--exclude", "*", "--weights-from", ckpt, tmp_path / "in.onnx", tmp_path / "float.onnx")
    assert r.status == 0, r.stderr
    assert "are not in the model" not in r.stderr
    got = stored(tmp_path / "float.onnx")
    for name, w in want.items():
        np.testing.assert_array_equal(got[name], w.astype(np.float32), err_msg=name)

    # Codes and scales are stored as they are: decoded again, the elements are the same.
    for target in "portable", "ort":
        out = tmp_path / f"{target}.onnx"
        r = onnxquant("--target", target, "--weights-from", ckpt, tmp_path / "in.onnx", out)
        assert r.status == 0, r.stderr
        assert "quantized anew" not in r.stderr
        if target == "portable":
            types = {t.data_type for t in onnx.load(out).graph.initializer}
            assert code in types, types
        r = onnxquant("dequantize", out, tmp_path / "back.onnx")
        assert r.status == 0, r.stderr
        back = stored(tmp_path / "back.onnx")
        for name, w in want.items():
            decoded = back[name] if name in back else next(a for a in back.values() if a.size == w.size and a.shape in (w.shape, w.T.shape))
            np.testing.assert_array_equal(decoded if decoded.shape == w.shape else decoded.T, w.astype(np.float32), err_msg=f"{target} {name}")


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("style", ["nbits", "dq"])
def test_mlx(bits, style, tmp_path):
    """Products with codes of MLX are those of its definition, code · scale + bias: with MatMulNBits and sums of blocks, and decoded."""
    nodes = [helper.make_node("Gather", ["table.weight", "ids"], ["rows"])]
    m = model()
    nodes = nodes + list(m.graph.node)
    m.graph.node.clear()
    m.graph.node.extend(nodes)
    m.graph.initializer.append(numpy_helper.from_array(np.zeros((N, K), np.float32), "table.weight"))
    m.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["i", "j"]))
    m.graph.output.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["i", "j", K]))
    onnx.save(m, tmp_path / "in.onnx")
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()
    want = checkpoint(ckpt, mlx(bits, 64), "table")
    out, back = tmp_path / "out.onnx", tmp_path / "back.onnx"
    r = onnxquant("--style", style, "--ops", "MatMul,Gemm,Gather", "--accuracy-level", "1", "--weights-from", ckpt, tmp_path / "in.onnx", out)
    assert r.status == 0 and "anew" not in r.stderr, r.stderr
    ops = [n.op_type for n in onnx.load(out).graph.node]
    assert ops.count("Sub") == 4, ops
    if style == "nbits":  # the two products of x share its sums
        assert (ops.count("MatMulNBits"), ops.count("GatherBlockQuantized"), ops.count("ReduceSum")) == (3, 1, 1), ops
    r = onnxquant("inspect", "--json", out)
    assert r.status == 0 and r.stdout.count('+Sub"') >= 4, r.stdout
    x, ids = rng.normal(size=(5, K)).astype(np.float32), rng.integers(0, N, (2, 3))
    *products, rows = session(out).run(None, {"x": x, "ids": ids})
    for y, name in zip(products, want):
        w = want[name] if want[name].shape[0] == K else want[name].T
        assert np.abs(y - x.astype(float) @ w).max() < 2e-6 * np.abs(x @ w).max(), name
    np.testing.assert_array_equal(rows, want["table.weight"][ids])
    *products, rows = session(out).run(None, {"x": x[:0], "ids": ids[:0]})
    assert [y.shape for y in products] == [(0, N), (0, N), (0, 3 * N)] and rows.shape == (0, 3, K)

    # Decoded, they are the checkpoint's weights; a second conversion changes none.
    r = onnxquant("dequantize", out, back)
    assert r.status == 0, r.stderr
    decoded = {(a.shape, a.tobytes()) for a in stored(back).values()}
    assert {(a.shape, a.tobytes()) for a in map(np.ascontiguousarray, [want["table.weight"], want["onnx::MatMul_7"]])} <= decoded
    r = onnxquant("--include", "*", out, tmp_path / "again.onnx")
    assert r.status == 0 and "nothing is quantized" in r.stderr, r.stderr


ORDERED = gptq(4, 32, order=True)


@pytest.mark.parametrize("target", ["portable", "ort"])
def test_order(target, tmp_path):
    """Act-order: a Gather puts activations into the order of the groups, and the products are those of the checkpoint."""
    onnx.save(model(), tmp_path / "in.onnx")
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()
    want = checkpoint(ckpt, ORDERED)
    out = tmp_path / "out.onnx"
    r = onnxquant("--target", target, "--weights-from", ckpt, tmp_path / "in.onnx", out)
    assert r.status == 0, r.stderr
    gathers = [n for n in onnx.load(out).graph.node if n.op_type == "Gather"]
    assert len(gathers) == 3 and "anew" not in r.stderr
    assert {t.data_type for t in onnx.load(out).graph.initializer} >= {TensorProto.UINT4 if target == "portable" else TensorProto.INT32}
    x = rng.normal(size=(5, K)).astype(np.float32)
    got = session(out).run(None, {"x": x})
    for y, name in zip(got, want):
        w = want[name] if want[name].shape[0] == K else want[name].T
        error = np.abs(y - x @ w).max() / np.abs(x @ w).max()
        assert error < (.02 if target == "ort" else 1e-5), (name, error)
