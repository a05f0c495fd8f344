"""Train a small byte-level language model in the shape of Llama, and write it as ONNX (opset 18).

usage: train.py --out DIR [--seed 0] [--steps 1600]

RMS normalization, rotary positions, a gated MLP, no biases, and the table of the embedding is the
head, too. The text is the documentation of the Python that runs this: the language reference in
pydoc_data, and the docstrings of the standard library. Writes model.onnx, eval_tokens.pb
(TensorProto, int64 [n, context+1]), calib_ids.npz (ids, int64 [n, context]) and card.json.
Needs torch and onnx.
"""
import argparse, ast, json, math, pathlib, platform, sysconfig
from pydoc_data.topics import topics

import numpy as np, onnx, torch, torch.nn as nn, torch.nn.functional as F
from onnx import TensorProto as T, helper, numpy_helper

p = argparse.ArgumentParser()
p.add_argument("--out", required=True, type=pathlib.Path); p.add_argument("--seed", type=int, default=0)
p.add_argument("--steps", type=int, default=1600); p.add_argument("--batch", type=int, default=16)
a = p.parse_args()
torch.manual_seed(a.seed); torch.set_num_threads(1); rng = np.random.default_rng(a.seed)
V, D, H, L, INNER, C = 128, 128, 4, 3, 224, 128
HEAD, EPS = D // H, 1e-5


def documentation():
    """The topics of the language reference, and the docstrings of each module of the standard library."""
    texts = [topics[name] for name in sorted(topics)]
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & set(path.relative_to(library).parts):
            continue
        try:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        except (SyntaxError, UnicodeDecodeError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts.append("\n\n".join(filter(None, (ast.get_docstring(n) for n in nodes if isinstance(n, kinds)))))
    return [t for t in texts if len(t) > 200]


texts = documentation(); rng.shuffle(texts)
data = np.frombuffer("\n\n".join(texts).encode("ascii", "replace"), np.uint8).astype(np.int64)
cut = int(len(data) * 0.9); train, held, other = data[:cut], data[cut:cut + len(data) // 20], data[cut + len(data) // 20:]
angles = np.arange(C)[:, None] / 10000 ** (np.arange(HEAD // 2) * 2 / HEAD)
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Model(nn.Module):
    def __init__(s):
        super().__init__()
        def matrix(k, n, gain=1.0): return nn.Parameter(torch.randn(k, n) * gain / math.sqrt(k))
        s.embed = nn.Parameter(torch.randn(V, D) / math.sqrt(D))
        s.norm = nn.Parameter(torch.ones(D))
        deep = 1 / math.sqrt(2 * L)
        s.layers = nn.ModuleList(nn.ParameterDict({
            "norm1": nn.Parameter(torch.ones(D)), "q": matrix(D, D), "k": matrix(D, D), "v": matrix(D, D), "o": matrix(D, D, deep),
            "norm2": nn.Parameter(torch.ones(D)), "gate": matrix(D, INNER), "up": matrix(D, INNER), "down": matrix(INNER, D, deep)}) for _ in range(L))

    def forward(s, ids):
        n, t = ids.shape
        c, d = torch.from_numpy(cos[:t]), torch.from_numpy(sin[:t])
        norm = lambda x, g: x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * g
        heads = lambda x: x.reshape(n, t, H, HEAD).transpose(1, 2)
        def turn(x):
            one, two = x.chunk(2, -1)
            return torch.cat([one * c - two * d, two * c + one * d], -1)
        x = F.embedding(ids, s.embed)
        for w in s.layers:
            h = norm(x, w["norm1"])
            y = F.scaled_dot_product_attention(turn(heads(h @ w["q"])), turn(heads(h @ w["k"])), heads(h @ w["v"]), is_causal=True)
            x = x + y.transpose(1, 2).reshape(n, t, D) @ w["o"]
            h = norm(x, w["norm2"])
            x = x + (F.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        return norm(x, s.norm) @ s.embed.T


class Graph:
    """Nodes in the order of their calls, and the tensors that they read."""

    def __init__(s):
        s.nodes, s.tensors = [], {}

    def const(s, name, value):
        s.tensors.setdefault(name, np.asarray(value))
        return name

    def __call__(s, op, *inputs, out=None, **attributes):
        out = out or f"{op.lower()}_{len(s.nodes)}"
        s.nodes.append(helper.make_node(op, inputs, [out], out, **attributes))
        return out


def exported(weights):
    g = Graph()
    number = lambda name, *v: g.const(name, np.array(v, np.int64))
    def norm(x, gamma):
        mean = g("ReduceMean", g("Mul", x, x), number("last", -1))
        return g("Mul", g("Div", x, g("Sqrt", g("Add", mean, g.const("eps", np.float32(EPS))))), gamma)
    def matrix(x, name, out=None): return g("MatMul", x, name, out=out)
    def heads(x): return g("Transpose", g("Reshape", x, number("in_heads", 0, 0, H, HEAD)), perm=[0, 2, 1, 3])
    def turn(x):
        one = g("Slice", x, number("zero", 0), number("half", HEAD // 2), number("last", -1))
        two = g("Slice", x, "half", number("head", HEAD), "last")
        return g("Concat", g("Sub", g("Mul", one, c), g("Mul", two, d)), g("Add", g("Mul", two, c), g("Mul", one, d)), axis=-1)
    for name, value in weights.items():
        g.const(name, value)
    t = g("Shape", "ids", start=1, end=2)
    c, d = (g("Slice", g.const(n, v), number("zero", 0), t, "zero") for n, v in [("cos", cos), ("sin", sin)])
    full = g("ConstantOfShape", g("Concat", t, t, axis=0), value=numpy_helper.from_array(np.array([-1e9], np.float32)))
    mask = g("Trilu", full, g.const("above", np.int64(1)), upper=1)
    x = g("Gather", "embed", "ids")
    for i in range(L):
        w = lambda name: f"layers.{i}.{name}"
        h = norm(x, w("norm1"))
        q, k, v = turn(heads(matrix(h, w("q")))), turn(heads(matrix(h, w("k")))), heads(matrix(h, w("v")))
        scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.const("scale", np.float32(1 / math.sqrt(HEAD))))
        y = g("MatMul", g("Softmax", g("Add", scores, mask), axis=-1), v)
        y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), number("joined", 0, 0, D))
        x = g("Add", x, matrix(y, w("o")))
        h = norm(x, w("norm2"))
        gate = matrix(h, w("gate"))
        x = g("Add", x, matrix(g("Mul", g("Mul", gate, g("Sigmoid", gate)), matrix(h, w("up"))), w("down")))
    g("MatMul", norm(x, "norm"), g("Transpose", "embed", perm=[1, 0]), out="logits")
    shape = lambda *last: ["batch", "length", *last]
    graph = helper.make_graph(g.nodes, "tinydoc", [helper.make_tensor_value_info("ids", T.INT64, shape())],
                              [helper.make_tensor_value_info("logits", T.FLOAT, shape(V))],
                              [numpy_helper.from_array(v, n) for n, v in g.tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


m = Model(); n = sum(t.numel() for t in m.parameters())
opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(a.steps):
    lr = 4e-3 * min(1, (step + 1) / 80) * (0.5 * (1 + math.cos(math.pi * step / a.steps)) * 0.97 + 0.03)
    for g in opt.param_groups: g["lr"] = lr
    x = torch.from_numpy(np.stack([train[j:j + C + 1] for j in rng.integers(0, len(train) - C - 1, a.batch)]))
    loss = F.cross_entropy(m(x[:, :-1]).reshape(-1, V), x[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step()
    if step % 100 == 0: print(step, round(loss.item(), 4), flush=True)


def pieces(text, count, length):
    return np.stack([text[k:k + length] for k in np.linspace(0, len(text) - length, count).astype(int)])


a.out.mkdir(parents=True, exist_ok=True)
tokens = pieces(held, 64, C + 1)
with torch.no_grad():
    x = torch.from_numpy(tokens); logits = m(x[:, :-1])
    lost = F.cross_entropy(logits.reshape(-1, V), x[:, 1:].reshape(-1)).item()
model = exported({name: w.detach().numpy() for name, w in m.named_parameters()})
onnx.checker.check_model(model, full_check=True)
onnx.save(model, a.out / "model.onnx")
(a.out / "eval_tokens.pb").write_bytes(numpy_helper.from_array(tokens, "tokens").SerializeToString())
np.savez_compressed(a.out / "calib_ids.npz", ids=pieces(other, 128, C))
json.dump({"parameters": n, "eval_loss_nats": lost, "eval_perplexity": math.exp(lost), "text_bytes": len(data), "python": platform.python_version(),
           "torch": torch.__version__, "seed": a.seed, "steps": a.steps}, open(a.out / "card.json", "w"), indent=1)
try:
    import onnxruntime as ort
    got = ort.InferenceSession(str(a.out / "model.onnx")).run(None, {"ids": tokens[:, :-1]})[0]
    print("largest difference from torch", np.abs(got - logits.numpy()).max())
except ImportError:
    print("no onnxruntime: the written model was not run")
print("eval", lost, n)
