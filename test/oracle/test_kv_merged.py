"""--kv-cache on a merged encoder-decoder, as Optimum exports them: an If with a branch that makes the caches, and one that extends them."""
import numpy as np
import onnx
import onnxruntime
import pytest
from command import onnxquant
from onnx import TensorProto, helper, numpy_helper
from test_verify import library, with_runtime

HEADS, SIZE, VOCAB, STEPS = 2, 8, 40, 12
HIDDEN = HEADS * SIZE
CACHES = [f"0.{of}.{kind}" for of in ("decoder", "encoder") for kind in ("key", "value")]


def branch(name, cached):
    """Attention to the tokens so far, then to the encoder. With cached, the caches of the encoder are only read."""
    nodes = []

    def add(op, out, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [out], name=f"{name}/{out}", **attributes))
        return out

    def heads(x, w, out):
        product = add("MatMul", f"{out}_m", x, w)
        return add("Transpose", out, add("Reshape", f"{out}_r", product, "shape_heads"), perm=[0, 2, 1, 3])

    def attend(x, key, value, prefix):
        q = heads(x, f"{prefix}_q", f"{name}_{prefix}_qh")
        scores = add("MatMul", f"{name}_{prefix}_s", q, add("Transpose", f"{name}_{prefix}_kt", key, perm=[0, 1, 3, 2]))
        mixed = add("MatMul", f"{name}_{prefix}_c", add("Softmax", f"{name}_{prefix}_p", scores, axis=-1), value)
        back = add("Reshape", f"{name}_{prefix}_b", add("Transpose", f"{name}_{prefix}_t", mixed, perm=[0, 2, 1, 3]), "shape_back")
        return add("Add", f"{name}_{prefix}_o", x, back)
    x = add("Gather", f"{name}_x", "table", "input_ids")
    made = {}
    for kind in ("key", "value"):
        new = heads(x, f"self_{kind}", f"{name}_new_{kind}")
        made[f"0.decoder.{kind}"] = add("Concat", f"{name}_0.decoder.{kind}", f"past_key_values.0.decoder.{kind}", new, axis=2) if cached else new
    x = attend(x, made["0.decoder.key"], made["0.decoder.value"], "self")
    if cached:
        x = attend(x, "past_key_values.0.encoder.key", "past_key_values.0.encoder.value", "cross")
        for kind in ("key", "value"):
            empty = numpy_helper.from_array(np.zeros((0, HEADS, 1, SIZE), np.float32))
            made[f"0.encoder.{kind}"] = add("Constant", f"{name}_0.encoder.{kind}", value=empty)
    else:
        for kind in ("key", "value"):
            made[f"0.encoder.{kind}"] = heads("encoder_hidden_states", f"cross_{kind}", f"{name}_cross_{kind}h")
        x = attend(x, made["0.encoder.key"], made["0.encoder.value"], "cross")
    outputs = [add("MatMul", f"{name}_logits", x, "head"), *(made[c] for c in CACHES)]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs])


def write(path):
    rng, info = np.random.default_rng(1), helper.make_tensor_value_info
    weights = {"table": (VOCAB, HIDDEN), "head": (HIDDEN, VOCAB)} | {w: (HIDDEN, HIDDEN) for w in ("self_q", "self_key", "self_value", "cross_q", "cross_key", "cross_value")}
    stored = [numpy_helper.from_array((rng.normal(size=s) * 2 / s[0] ** .5).astype(np.float32), name) for name, s in weights.items()]
    stored += [numpy_helper.from_array(np.array([0, -1, HEADS, SIZE]), "shape_heads"), numpy_helper.from_array(np.array([0, -1, HIDDEN]), "shape_back")]
    inputs = [info("input_ids", TensorProto.INT64, ["batch", "new"]), info("encoder_hidden_states", TensorProto.FLOAT, ["batch", "words", HIDDEN]),
              *(info(f"past_key_values.{c}", TensorProto.FLOAT, ["batch", HEADS, "words" if "encoder" in c else "past", SIZE]) for c in CACHES),
              info("use_cache_branch", TensorProto.BOOL, [1])]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "new", VOCAB]), *(info(f"present.{c}", TensorProto.FLOAT, ["batch", HEADS, None, SIZE]) for c in CACHES)]
    merge = helper.make_node("If", ["use_cache_branch"], [o.name for o in outputs], name="optimum::if", then_branch=branch("then", True), else_branch=branch("else", False))
    graph = helper.make_graph([merge], "merged", inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def samples(n):
    rng = np.random.default_rng(2)
    empty = {f"past_key_values.{c}": np.zeros((n, HEADS, 0, SIZE), np.float32) for c in CACHES}
    return {"input_ids": rng.integers(0, VOCAB, (n, 10)), "encoder_hidden_states": rng.normal(size=(n, 6, HIDDEN)).astype(np.float32),
            "use_cache_branch": np.zeros(n, bool)} | empty


def generate(session, hidden, codes=False, rounded=None):
    """Greedy generation. rounded has scales with which the caches are rounded by hand."""
    past = {f"past_key_values.{c}": np.zeros((1, HEADS, 0, SIZE), np.int8 if codes else np.float32) for c in CACHES}
    ids, all_logits = [1], []
    for step in range(STEPS):
        feed = {"input_ids": np.array([ids[-1:]]), "encoder_hidden_states": hidden, "use_cache_branch": np.array([step > 0]), **past}
        made = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))
        for name in past:
            if step and "encoder" in name:
                continue  # the branch leaves it alone
            value = made[name.replace("past_key_values", "present")]
            if rounded:
                value = (np.clip(np.rint(value / rounded[name]), -128, 127) * rounded[name]).astype(np.float32)
            past[name] = value
        all_logits.append(made["logits"][0, -1])
        ids.append(int(all_logits[-1].argmax()))
    return ids, np.array(all_logits)


def open_session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("by", ["int8", *(pytest.param(b, marks=pytest.mark.long) for b in ("int8:per-head", "int8:per-channel"))])
def test_merged(by, tmp_path):
    source, out, data = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "data.npz"
    write(source)
    np.savez(data, **samples(16))
    binary = with_runtime()
    r = onnxquant("--exclude", "*", "--target", "ort", "--kv-cache", by, "--calib", data, "--ort-lib", library(), source, out, binary=binary)
    assert r.status == 0, r.stderr
    model = onnx.load(out)
    assert {i.name for i in model.graph.input if i.type.tensor_type.elem_type == TensorProto.INT8} == {f"past_key_values.{c}" for c in CACHES}
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    scales = {}
    for c in CACHES:
        scale = stored[f"past_key_values.{c}_scale"]
        scales[f"past_key_values.{c}"] = scale[:, None, None] if scale.ndim == 1 else scale
    before, after = open_session(source), open_session(out)
    for hidden in samples(4)["encoder_hidden_states"][:, None]:
        codes, logits = generate(after, hidden, codes=True)
        by_hand, same = generate(before, hidden, rounded=scales)
        assert codes == by_hand
        np.testing.assert_allclose(logits, same, rtol=1e-4, atol=1e-4)
        assert np.abs(logits[0] - generate(before, hidden)[1][0]).max() < .05
    r = onnxquant("verify", "--ort-lib", library(), source, out, binary=binary)
    assert r.status == 0, r.stdout + r.stderr
    r = onnxquant("dequantize", out, tmp_path / "back.onnx")
    assert r.status == 0, r.stderr
    assert generate(open_session(tmp_path / "back.onnx"), hidden)[0] == generate(before, hidden)[0]
