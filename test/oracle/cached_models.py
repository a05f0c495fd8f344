"""Decoders with key-value caches: the weights of testmodels/tinygpt, with its attention as exporters write it for generation."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

TINYGPT = pathlib.Path(__file__).parents[2] / "testmodels" / "tinygpt"
LAYERS, HEADS, HEAD, HIDDEN, CONTEXT, VOCAB = 4, 6, 32, 192, 128, 128
KINDS = ["GroupQueryAttention", "Concat", "MultiHeadAttention", "Attention"]


def build(path, kind, past="past", heads=HEADS):
    """Writes a decoder whose caches the operator kind extends."""
    source = onnx.load(TINYGPT / "model.onnx")
    stored = {t.name: t for t in source.graph.initializer if t.name != "mask"}
    multiplied = [n.input[1] for n in source.graph.node if n.op_type == "MatMul" and n.input[1] in stored]
    nodes, weights, counter = [], list(stored.values()), iter(range(10**6))

    def node(op, *inputs, out=None, domain="", **attributes):
        outputs = out if isinstance(out, list) else [out or f"v{next(counter)}"]
        nodes.append(h.make_node(op, list(inputs), outputs, name=f"{op}_{next(counter)}", domain=domain, **attributes))
        return outputs[0]

    def constant(value, dtype=np.int64):
        name = f"c{next(counter)}"
        weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def split(x):
        """[b, t, heads * size] -> [b, heads, t, size]"""
        return node("Transpose", node("Reshape", x, constant([0, 0, HEADS, HEAD])), perm=[0, 2, 1, 3])

    def joined(x):
        return node("Reshape", node("Transpose", x, perm=[0, 2, 1, 3]), constant([0, 0, HIDDEN]))

    # Positions and masks, from the length of the mask.
    one, axis = constant([1]), constant(1)
    total = node("Gather", node("Shape", "attention_mask"), axis)
    new = node("Gather", node("Shape", "input_ids"), axis)
    before = node("Sub", total, new)
    positions = node("Range", before, total, constant(1))
    seen = node("Range", constant(0), total, constant(1))
    later = node("Greater", node("Unsqueeze", seen, constant([0])), node("Unsqueeze", positions, one))
    mask = node("Where", later, constant(-1e9, np.float32), constant(0, np.float32))
    lengths = node("Cast", node("Sub", node("ReduceSum", "attention_mask", one, keepdims=0), constant(1)), to=T.INT32)
    total32 = node("Cast", total, to=T.INT32)

    inputs = [h.make_tensor_value_info("input_ids", T.INT64, ["b", "t"]), h.make_tensor_value_info("attention_mask", T.INT64, ["b", "all"])]
    outputs = [h.make_tensor_value_info("logits", T.FLOAT, ["b", "t", VOCAB])]
    x = node("Add", node("Gather", "tok.weight", "input_ids"), node("Gather", "pos.weight", positions))
    for i in range(LAYERS):
        qkv, proj, up, down = multiplied[4 * i:4 * i + 4]
        y = node("LayerNormalization", x, f"blocks.{i}.n1.weight", f"blocks.{i}.n1.bias", epsilon=1e-5)
        y = node("Add", node("MatMul", y, qkv), f"blocks.{i}.qkv.bias")
        q, k, v = (f"qkv{i}.{c}" for c in "qkv")
        node("Split", y, out=[q, k, v], axis=-1, num_outputs=3)
        pasts, presents = ([f"{end}.{i}.{c}" for c in ("key", "value")] for end in ("past_key_values", "present"))
        inputs += [h.make_tensor_value_info(p, T.FLOAT, ["b", heads, past, HEAD]) for p in pasts]
        outputs += [h.make_tensor_value_info(p, T.FLOAT, ["b", heads, "all", HEAD]) for p in presents]
        if kind == "GroupQueryAttention":
            a = node(kind, q, k, v, *pasts, lengths, total32, out=[f"a{i}", *presents], domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS)
        elif kind == "MultiHeadAttention":
            shown = node("Expand", node("Unsqueeze", mask, constant([0, 1])), constant([1, HEADS, 1, 1]))
            a = node(kind, q, k, v, "", "", shown, *pasts, out=[f"a{i}", *presents], domain="com.microsoft", num_heads=HEADS)
        elif kind == "Attention":
            a = joined(node(kind, split(q), split(k), split(v), mask, *pasts, out=[f"a{i}", *presents]))
        else:
            k, v = (node("Concat", p, split(c), out=o, axis=-2) for p, c, o in zip(pasts, (k, v), presents))
            scores = node("Div", node("MatMul", split(q), node("Transpose", k, perm=[0, 1, 3, 2])), constant(np.sqrt(HEAD), np.float32))
            a = joined(node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), v))
        x = node("Add", x, node("Add", node("MatMul", a, proj), f"blocks.{i}.proj.bias"))
        y = node("LayerNormalization", x, f"blocks.{i}.n2.weight", f"blocks.{i}.n2.bias", epsilon=1e-5)
        y = node("Add", node("MatMul", y, up), f"blocks.{i}.up.bias")
        half = node("Mul", y, constant(0.5, np.float32))
        y = node("Mul", half, node("Add", node("Erf", node("Div", y, constant(np.sqrt(2), np.float32))), constant(1, np.float32)))
        x = node("Add", x, node("Add", node("MatMul", y, down), f"blocks.{i}.down.bias"))
    x = node("LayerNormalization", x, "norm.weight", "norm.bias", epsilon=1e-5)
    node("MatMul", x, multiplied[-1], out="logits")
    opset = 23 if kind == "Attention" else 18
    model = h.make_model(h.make_graph(nodes, "decoder", inputs, outputs, weights), ir_version=10,
                         opset_imports=[h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)])
    onnx.save(model, path)
    return path


def tokens():
    """Text that the model has not seen: ids [64, 129]."""
    t = onnx.TensorProto()
    t.ParseFromString((TINYGPT / "eval_tokens.pb").read_bytes())
    return numpy_helper.to_array(t)


def generate(session, ids, prompt):
    """The logits of ids, of which the first prompt are read at once and the others one by one, with the model's own cache."""
    names = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    types = {i.name: np.int8 if i.type == "tensor(int8)" else np.float16 if i.type == "tensor(float16)" else np.float32 for i in session.get_inputs()}
    shapes = {i.name: [d if isinstance(d, int) else None for d in i.shape] for i in session.get_inputs()}
    cache = {n: np.zeros((len(ids), shapes[n][1], 0, shapes[n][3]), types[n]) for n in names}
    logits, at = [], 0
    for end in range(prompt, ids.shape[1] + 1):
        feed = {"input_ids": ids[:, at:end], "attention_mask": np.ones((len(ids), end), np.int64), **cache}
        out = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
        logits.append(out["logits"])
        cache = {n: out[n.replace("past_key_values", "present")] for n in names}
        at = end
    return np.concatenate(logits, axis=1), cache


def divergence(want, got):
    """The mean KL divergence of distributions."""
    def logs(x):
        x = x.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))
    p, q = logs(want), logs(got)
    return (np.exp(p) * (p - q)).sum(-1).mean()
