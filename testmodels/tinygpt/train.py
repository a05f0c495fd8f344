"""Train a byte-level GPT on a folder of text and export it to ONNX (opset 18, weights as MatMul/Gemm/Gather initializers).

usage: train.py --text DIR --out DIR [--seed 0] [--layers 4] [--dim 192] [--steps 1200]
Writes model.onnx, eval_tokens.pb (TensorProto, int64 [n, ctx+1]) and card.json (loss, parameters).
Needs torch and onnx.
"""
import argparse, glob, json, math, os
import numpy as np, onnx.numpy_helper, torch, torch.nn as nn, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--text", required=True); p.add_argument("--out", required=True)
p.add_argument("--glob", default="**/*.go"); p.add_argument("--seed", type=int, default=0)
p.add_argument("--layers", type=int, default=4); p.add_argument("--dim", type=int, default=192)
p.add_argument("--heads", type=int, default=6); p.add_argument("--ctx", type=int, default=128)
p.add_argument("--steps", type=int, default=1200); p.add_argument("--batch", type=int, default=24)
a = p.parse_args()
torch.manual_seed(a.seed); torch.set_num_threads(1); rng = np.random.default_rng(a.seed)
files = sorted(glob.glob(os.path.join(a.text, a.glob), recursive=True))
rng.shuffle(files)
data = np.frombuffer(b"\n".join(open(f, "rb").read() for f in files[:900]), np.uint8).clip(0, 127).astype(np.int64)
cut = int(len(data) * 0.95); train, held = data[:cut], data[cut:]
V, D, H, C = 128, a.dim, a.heads, a.ctx

class Block(nn.Module):
    def __init__(s):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        s.qkv, s.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        s.up, s.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
    def forward(s, x, mask):
        B, T, _ = x.shape
        q, k, v = s.qkv(s.n1(x)).split(D, -1)
        q, k, v = (t.reshape(B, T, H, D // H).transpose(1, 2) for t in (q, k, v))
        w = (q @ k.transpose(-1, -2)) / math.sqrt(D // H) + mask[:T, :T]
        x = x + s.proj((w.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
        return x + s.down(F.gelu(s.up(s.n2(x))))

class GPT(nn.Module):
    def __init__(s):
        super().__init__()
        s.tok, s.pos = nn.Embedding(V, D), nn.Embedding(C, D)
        s.blocks = nn.ModuleList(Block() for _ in range(a.layers))
        s.norm, s.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        s.register_buffer("mask", torch.full((C, C), -1e9).triu(1))
    def forward(s, ids):
        x = s.tok(ids) + s.pos(torch.arange(ids.shape[1], device=ids.device))
        for b in s.blocks: x = b(x, s.mask)
        return s.head(s.norm(x))

m = GPT(); n = sum(t.numel() for t in m.parameters())
opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(a.steps):
    lr = 1.5e-3 * min(1, (step + 1) / 60) * (0.5 * (1 + math.cos(math.pi * step / a.steps)) * 0.95 + 0.05)
    for g in opt.param_groups: g["lr"] = lr
    i = rng.integers(0, len(train) - C - 1, a.batch)
    x = torch.from_numpy(np.stack([train[j:j + C + 1] for j in i]))
    loss = F.cross_entropy(m(x[:, :-1]).reshape(-1, V), x[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step()
    if step % 100 == 0: print(step, round(loss.item(), 4), flush=True)
m.eval(); os.makedirs(a.out, exist_ok=True)
j = np.linspace(0, len(held) - C - 2, 64).astype(int)
ev = np.stack([held[k:k + C + 1] for k in j])
with torch.no_grad():
    x = torch.from_numpy(ev)
    el = F.cross_entropy(m(x[:, :-1]).reshape(-1, V), x[:, 1:].reshape(-1)).item()
with open(os.path.join(a.out, "eval_tokens.pb"), "wb") as f: f.write(onnx.numpy_helper.from_array(ev, "tokens").SerializeToString())
json.dump({"parameters": n, "eval_loss_nats": el, "eval_perplexity": math.exp(el), "dim": D, "layers": a.layers, "ctx": C, "seed": a.seed}, open(os.path.join(a.out, "card.json"), "w"), indent=1)
print("eval", el, n)
torch.onnx.export(m, (torch.from_numpy(ev[:2, :-1]),), os.path.join(a.out, "model.onnx"), input_names=["ids"], output_names=["logits"], opset_version=18, dynamic_axes={"ids": {0: "b", 1: "t"}, "logits": {0: "b", 1: "t"}}, dynamo=False)
