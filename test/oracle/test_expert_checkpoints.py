"""--weights-from with experts: tensors of each expert, or of all, get into the stacks of the model; codes arrive as they are."""
import json

import numpy as np
import onnx
import pytest
from command import onnxquant
from onnx import TensorProto, helper, numpy_helper
from test_checkpoints import E2M1, KINDS, K, N, compressed, gptq, safetensors, stored

EXPERTS = 3
WAYS = {name: KINDS[name][:2] for name in ("gptq", "awq", "compressed", "compressed-zp", "int8", "mlx")} | {
    "mlx-stacked": KINDS["mlx"][:2], "gptq-sym": gptq(4, 32, symmetric=True), "compressed-8": compressed(8, 64)}
FUSIONS = {"turns": 1, "halves": 2, "apart": 0}
PARTS = {"gate": (N, K), "up": (N, K), "down": (K, N)}
rng = np.random.default_rng(3)


def moe(fusion):
    """A MoE as the builder of onnxruntime-genai writes it, gates and values row by row, in halves, or in fc1 and fc3."""
    wide = N if fusion == "apart" else 2 * N
    module, path = "model.layers.0.moe.experts", "/model/layers.0/moe/MoE"
    shapes = {"fc1" if fusion == "apart" else f"{module}.gate_up_proj.weight": (EXPERTS, wide, K), f"{module}.down_proj.weight": (EXPERTS, K, N)}
    inputs = ["x", "r", next(iter(shapes)), "", f"{module}.down_proj.weight"]
    if fusion == "apart":
        shapes["fc3"] = (EXPERTS, N, K)
        inputs += ["", "fc3"]
    attributes = {"activation_type": "silu"} if fusion == "apart" else {"activation_type": "swiglu", "swiglu_fusion": FUSIONS[fusion]}
    nodes = [helper.make_node("MatMul", ["x", "model.layers.0.moe.router.MatMul.weight"], ["r"], name="/model/layers.0/moe/router/MatMul"),
             helper.make_node("MoE", inputs, ["y"], name=path, domain="com.microsoft", k=2, **attributes)]
    return graph(nodes, {"model.layers.0.moe.router.MatMul.weight": (K, EXPERTS)} | shapes, fusion)


def gathered(turned, between=""):
    """Experts as torch writes them: a GatherND takes the chosen ones. Without names, the module is in the metadata. A Cast or a Transpose
    may be between the two operators."""
    def node(*args, **kw):
        n = helper.make_node(*args, **kw)
        n.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'model', 'model.layers.0.mlp', 'model.layers.0.mlp.experts', 'bmm']")
        return n

    def product(x, w, out):
        chosen = f"{w}_chosen"
        nodes = [node("GatherND", [w, "i"], [chosen])]
        if between:
            nodes.append(node(between, [chosen], [f"{w}_read"], **({"to": TensorProto.FLOAT} if between == "Cast" else {"perm": [0, 2, 1]})))
            chosen = f"{w}_read"
        second = turned or between == "Transpose"
        return [*nodes, node("MatMul", [x, chosen] if second else [chosen, x], [out])]
    nodes = product("x", "val_1", "h") + product("z", "val_2", "y")
    shapes = {"val_1": (EXPERTS, 2 * N, K), "val_2": (EXPERTS, K, N)}
    if turned:
        shapes = {name: (e, k, n) for name, (e, n, k) in shapes.items()}
    return graph(nodes, shapes, "halves")


def graph(nodes, shapes, fusion):
    info = helper.make_tensor_value_info
    read = {i for n in nodes for i in n.input}
    inputs = [info(name, TensorProto.INT64 if name == "i" else TensorProto.FLOAT, None) for name in "xzi" if name in read]
    made = helper.make_graph(nodes, "g", inputs, [info(n.output[0], TensorProto.FLOAT, None) for n in nodes if n.output[0] in "yh"],
                             [numpy_helper.from_array(np.zeros(s, np.float32), name) for name, s in shapes.items()])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10), fusion


MODELS = {f: (lambda f=f: moe(f)) for f in FUSIONS} | {"gather": lambda: gathered(False), "gather-turned": lambda: gathered(True), "gather-cast-turned": lambda: gathered(True, "Cast"), "gather-transpose": lambda: gathered(False, "Transpose")}


def joined(gate, up, fusion):
    if fusion == "turns":
        return np.stack([gate, up], 2).reshape(EXPERTS, 2 * N, K)
    return np.concatenate([gate, up], 1)


def wanted(parts, fusion, model, turned):
    """The weights as the model has them: name → values. fc1 and fc3 of 2·64 × 128 are square: the reader tells."""
    gate, up, down = (parts[p] for p in PARTS)
    want = {"fc1": gate, "fc3": up} if fusion == "apart" else {"gate_up": joined(gate, up, fusion)}
    want = {**want, "down": down}
    names = [t.name for t in model.graph.initializer if "router" not in t.name]
    order = ["fc1", "down", "fc3"] if fusion == "apart" else ["gate_up", "down"]
    values = dict(zip(names, (want[o] for o in order), strict=True))
    return {name: v.transpose(0, 2, 1) if turned else v for name, v in values.items()}


def each_expert(kind, spelled):
    """A checkpoint with the matrices of each expert."""
    make, config = WAYS[kind]
    tensors, parts = {}, {}
    for part, (n, k) in PARTS.items():
        made = [make(f"model.layers.0.{'mlp' if spelled == 'qwen' else 'block_sparse_moe'}.experts.{e}."
                     + (f"{part}_proj" if spelled == "qwen" else {"gate": "w1", "up": "w3", "down": "w2"}[part]), n, k) for e in range(EXPERTS)]
        for t, _ in made:
            if kind != "mlx-stacked":
                tensors |= t
        if kind == "mlx-stacked":
            ends = [[a for _, a in sorted(t.items())] for t, _ in made]
            named = zip(("biases", "scales", "weight"), zip(*ends, strict=True), strict=True)
            tensors |= {f"model.layers.0.mlp.switch_mlp.{part}_proj.{end}": np.stack(a) for end, a in named}
        parts[part] = np.stack([w for _, w in made]).astype(np.float32)
    return tensors, parts, config


def write(folder, tensors, config):
    folder.mkdir(exist_ok=True)
    gate = {} if "router" in tensors else {"model.layers.0.mlp.gate.weight": rng.normal(size=(EXPERTS, K)).astype(np.float32)}
    safetensors(folder / "model.safetensors", tensors | gate)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def succeeded(r):
    assert r.status == 0, r.stderr
    return r


@pytest.mark.parametrize(("kind", "model"), [
    pytest.param(kind, model, marks=[] if (kind, model) in {("gptq", "turns"), ("awq", "gather-cast-turned")} else pytest.mark.long)
    for kind in WAYS for model in MODELS])
def test_codes(kind, model, tmp_path):
    m, fusion = MODELS[model]()
    onnx.save(m, tmp_path / "in.onnx")
    tensors, parts, config = each_expert(kind, "mixtral" if kind == "gptq" else "qwen")
    ckpt = write(tmp_path / "ckpt", tensors, config)
    want = wanted(parts, fusion, m, model.endswith("-turned"))
    succeeded(onnxquant("--exclude", "*", "--weights-from", ckpt, tmp_path / "in.onnx", tmp_path / "float.onnx"))
    for name, w in want.items():
        np.testing.assert_allclose(stored(tmp_path / "float.onnx")[name], w, rtol=1e-6, atol=1e-7, err_msg=name)
    if kind.startswith("mlx"):
        return
    for target in "portable", "ort":
        out = tmp_path / f"{target}.onnx"
        r = succeeded(onnxquant("--ops", "all", "--target", target, "--weights-from", ckpt, tmp_path / "in.onnx", out))
        whole = kind == "int8" and target == "ort" and "gather" not in model  # QMoE of 8 bits in one block
        assert "quantized anew" not in r.stderr or whole, r.stderr
        if target == "ort" and "gather" not in model and fusion != "apart":
            assert "QMoE" in [n.op_type for n in onnx.load(out).graph.node]
        succeeded(onnxquant("dequantize", out, tmp_path / "back.onnx"))
        back = stored(tmp_path / "back.onnx")
        for name, w in want.items():
            assert any(np.array_equal(a, w) for a in back.values()), (target, name)


@pytest.mark.parametrize("model", ["turns", *(pytest.param(m, marks=pytest.mark.long) for m in MODELS if m != "turns")])
def test_mxfp4(model, tmp_path):
    """gpt-oss: gates and values row by row, blocks of 32 codes with powers of two."""
    m, fusion = MODELS[model]()
    if "gather" in model:
        fusion = "turns"  # the model keeps the order of the checkpoint
    onnx.save(m, tmp_path / "in.onnx")
    tensors, values = {}, {}
    for part, n, k in ("gate_up", 2 * N, K), ("down", K, N):
        codes, scales = rng.integers(0, 256, (EXPERTS, n, k // 32, 16)).astype(np.uint8), rng.integers(110, 130, (EXPERTS, n, k // 32)).astype(np.uint8)
        tensors |= {f"model.layers.0.mlp.experts.{part}_proj_blocks": codes, f"model.layers.0.mlp.experts.{part}_proj_scales": scales}
        q = np.stack([codes & 15, codes >> 4], -1).reshape(EXPERTS, n, k // 32, 32)
        values[part] = (E2M1[q] * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(EXPERTS, n, k)
    parts = {"gate": values["gate_up"][:, 0::2], "up": values["gate_up"][:, 1::2], "down": values["down"]}
    ckpt = write(tmp_path / "ckpt", tensors, {"model_type": "gpt_oss"})
    want = wanted(parts, fusion, m, model.endswith("-turned"))
    succeeded(onnxquant("--exclude", "*", "--weights-from", ckpt, tmp_path / "in.onnx", tmp_path / "float.onnx"))
    for name, w in want.items():
        np.testing.assert_array_equal(stored(tmp_path / "float.onnx")[name], w, err_msg=name)
    out = tmp_path / "out.onnx"
    r = succeeded(onnxquant("--ops", "all", "--weights-from", ckpt, tmp_path / "in.onnx", out))
    assert "anew" not in r.stderr, r.stderr
    assert TensorProto.FLOAT4E2M1 in {t.data_type for t in onnx.load(out).graph.initializer}
    succeeded(onnxquant("dequantize", out, tmp_path / "back.onnx"))
    for name, w in want.items():
        assert any(np.array_equal(a, w) for a in stored(tmp_path / "back.onnx").values()), name
    r = succeeded(onnxquant("--force", "--ops", "all", "--target", "ort", "--bits", "4", "--weights-from", ckpt, tmp_path / "in.onnx", out))
    assert ("anew" in r.stderr) == ("gather" not in model), r.stderr  # a QMoE takes integers
