"""--weights-from with exported models: they get another checkpoint's weights, and compute what it computes.
weights.py TOOL EXPORTS [NAME…], where EXPORTS is OUT of export.py; in the environment of the tool."""
import pathlib
import subprocess
import sys

import numpy as np
import torch
import transformers

import models
from decode import PROMPT, distance, logits, session
from outcome import end, tell
from run import BINARY

LIMIT = 1e-5  # sums in another order


def checkpoint_computes(name, folder, images):
    m = models.CLASSES.get(name, transformers.AutoModelForCausalLM).from_pretrained(folder).float().eval()
    with torch.no_grad():
        if name in ("vit", "convnext"):
            return m(pixel_values=torch.tensor(images)).logits.numpy()
        ids = torch.tensor([PROMPT])
        out = m(input_ids=ids, attention_mask=torch.ones_like(ids))
        return (out.last_hidden_state if name == "bert" else out.logits[0]).numpy()


def export_computes(name, path, images):
    if name not in models.CLASSES:
        c = models.CONFIGS[name]()
        head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        return logits(path, forced=(), config={"num_key_value_heads": c.num_key_value_heads, "head_dim": head, "window_size": getattr(c, "sliding_window", None)})
    s = session(path)
    feed = {"input_ids": np.array([PROMPT]), "attention_mask": np.ones((1, 8), np.int64), "token_type_ids": np.zeros((1, 8), np.int64), "pixel_values": images}
    return s.run(None, {i.name: feed[i.name] for i in s.get_inputs()})[0]


def main():
    tool, out, *names = sys.argv[1:]
    out = pathlib.Path(out)
    images = np.random.default_rng(3).standard_normal((2, 3, 64, 64)).astype(np.float32)
    for folder in sorted((out / tool).iterdir()):
        name = folder.name
        if names and name not in names or not (out / "other" / name).exists():
            continue
        for path in sorted(folder.rglob("*.onnx")):
            to = out / "other.onnx"
            r = subprocess.run([BINARY, "--force", "--exclude", "*", "--weights-from", out / "other" / name, path, to], capture_output=True, text=True)
            said = " | ".join(line for line in r.stderr.splitlines() if line.startswith("onnxquant") and "nothing is quantized" not in line)
            label = f"{tool}/{name}/{path.name}"
            tell(f"{label}: {f'EXIT {r.returncode}' if r.returncode else 'ok'}: {said}"[:500], wrong=r.returncode != 0)
            if r.returncode or path.name != "model.onnx":
                continue
            want = checkpoint_computes(name, out / "other" / name, images)
            d, itself = (distance(export_computes(name, p, images), want) for p in (to, path))
            tell(f"{label}: {'ok' if d <= LIMIT else 'FAR'} {d:.2g}, the export itself {itself:.2g}", wrong=not d <= LIMIT)
    end()


if __name__ == "__main__":
    main()
