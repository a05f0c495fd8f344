"""A tiny decoder as onnxruntime-genai's builder would export it: names, GroupQueryAttention and
genai_config.json, with random weights. Its table is embedding and head."""
import json

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

LAYERS, HIDDEN, HEADS, KV, HEAD, INNER, VOCAB, CONTEXT = 4, 64, 4, 2, 16, 128, 96, 64


def build(folder):
    rng = np.random.default_rng(7)
    nodes, weights = [], []

    def weight(name, array):
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def random(name, *shape):
        return weight(name, (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(op, inputs, output, name="", **attributes):
        outputs = [output] if isinstance(output, str) else output
        nodes.append(h.make_node(op, inputs, outputs, name=name or outputs[0], **attributes))
        return outputs[0]

    def product(x, name, k, n):
        return node("MatMul", [x, random(f"{name[1:].replace('/', '.')}.MatMul.weight", k, n)], f"{name}/MatMul/output_0", f"{name}/MatMul")

    def norm(x, name):
        return node("SimplifiedLayerNormalization", [x, weight(f"{name}.weight", np.ones(HIDDEN, np.float32))], f"{name}/output_0", axis=-1, epsilon=1e-5)

    # What GroupQueryAttention wants to know of the mask.
    weight("one", np.array([1], np.int64))
    node("ReduceSum", ["attention_mask", "one"], "sums", keepdims=0)
    node("Sub", ["sums", "one"], "last")
    node("Cast", ["last"], "seqlens_k", to=T.INT32)
    node("Shape", ["attention_mask"], "mask_shape")
    node("Gather", ["mask_shape", weight("axis", np.array(1, np.int64))], "total")
    node("Cast", ["total"], "total_length", to=T.INT32)
    angles = np.outer(np.arange(CONTEXT), 1 / 10000 ** (np.arange(HEAD // 2) * 2 / HEAD)).astype(np.float32)
    weight("cos_cache", np.cos(angles))
    weight("sin_cache", np.sin(angles))

    x = node("Gather", [random("model.embed_tokens.weight", VOCAB, HIDDEN), "input_ids"], "/model/embed_tokens/Gather/output_0", "/model/embed_tokens/Gather")
    inputs = [h.make_tensor_value_info(n, T.INT64, ["b", "t" if n == "input_ids" else "all"]) for n in ("input_ids", "attention_mask")]
    outputs = [h.make_tensor_value_info("logits", T.FLOAT, ["b", "t", VOCAB])]
    for i in range(LAYERS):
        at = f"/model/layers.{i}"
        y = norm(x, f"{at}/input_layernorm")
        q, k, v = (product(y, f"{at}/attn/{c}_proj", HIDDEN, n * HEAD) for c, n in (("q", HEADS), ("k", KV), ("v", KV)))
        past = [f"past_key_values.{i}.{c}" for c in ("key", "value")]
        present = [f"present.{i}.{c}" for c in ("key", "value")]
        inputs += [h.make_tensor_value_info(p, T.FLOAT, ["b", KV, "past", HEAD]) for p in past]
        outputs += [h.make_tensor_value_info(p, T.FLOAT, ["b", KV, "all", HEAD]) for p in present]
        a = node("GroupQueryAttention", [q, k, v, *past, "seqlens_k", "total_length", "cos_cache", "sin_cache"],
                 [f"{at}/attn/GroupQueryAttention/output_0", *present], domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV, do_rotary=1)
        x = node("Add", [x, product(a, f"{at}/attn/o_proj", HEADS * HEAD, HIDDEN)], f"{at}/Add_1/output_0")
        y = norm(x, f"{at}/post_attention_layernorm")
        gate, up = product(y, f"{at}/mlp/gate_proj", HIDDEN, INNER), product(y, f"{at}/mlp/up_proj", HIDDEN, INNER)
        g = node("Mul", [gate, node("Sigmoid", [gate], f"{at}/mlp/act/output_0")], f"{at}/mlp/silu/output_0")
        y = node("Mul", [g, up], f"{at}/mlp/Mul/output_0")
        x = node("Add", [x, product(y, f"{at}/mlp/down_proj", INNER, HIDDEN)], f"{at}/Add_2/output_0")
    x = norm(x, "/model/norm")
    node("Transpose", ["model.embed_tokens.weight"], "head", perm=[1, 0])
    node("MatMul", [x, "head"], "logits", "/lm_head/MatMul")
    graph = h.make_graph(nodes, "decoder", inputs, outputs, weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)], ir_version=10)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    names = {f"past_{c}_names": f"past_key_values.%d.{c}" for c in ("key", "value")}
    decoder = {
        "session_options": {"log_id": "test", "provider_options": []}, "filename": "model.onnx",
        "head_size": HEAD, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **names},
        "outputs": {"logits": "logits", **{f"present_{c}_names": f"present.%d.{c}" for c in ("key", "value")}},
    }
    config = {
        "model": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": VOCAB, "context_length": CONTEXT, "type": "llama", "decoder": decoder},
        "search": {"max_length": CONTEXT, "do_sample": False, "past_present_share_buffer": False},
    }
    (folder / "genai_config.json").write_text(json.dumps(config, indent=2))
