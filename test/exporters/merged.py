"""--kv-cache on merged decoders of Optimum: greedy generation with int8 caches, beside the float model whose caches are rounded by hand.
merged.py EXPORTS OUT [NAME…], where EXPORTS has folders of encoder_model.onnx and decoder_model_merged.onnx."""
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper

from decode import distance, session
from outcome import end, tell
from run import command, said

ROWS, STEPS = 16, 24


def samples(folder):
    """Inputs of the branch that makes the caches."""
    rng, encoder = np.random.default_rng(0), session(folder / "encoder_model.onnx")
    feed = {"input_features": rng.standard_normal((ROWS, 80, 3000)).astype(np.float32), "input_ids": rng.integers(3, 300, (ROWS, 12)), "attention_mask": np.ones((ROWS, 12), np.int64)}
    states = encoder.run(None, {i.name: feed[i.name] for i in encoder.get_inputs()})[0]
    data = {"input_ids": rng.integers(3, 300, (ROWS, 8)), "encoder_hidden_states": states, "use_cache_branch": np.zeros(ROWS, bool),
            "encoder_attention_mask": np.ones(states.shape[:2], np.int64)}
    decoder = session(folder / "decoder_model_merged.onnx")
    data |= {i.name: np.zeros((ROWS, i.shape[1], 0, i.shape[3]), np.float32) for i in decoder.get_inputs() if "past" in i.name}
    return {i.name: data[i.name] for i in decoder.get_inputs()}


def scales_of(path):
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    found = {name.removesuffix("_scale"): s for name, s in stored.items() if name.startswith("past") and name.endswith("_scale")}
    return {name: s[:, None, None] if s.ndim == 1 else s for name, s in found.items()}


def generate(model, data, row, kind, rounded=None):
    past = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), kind) for i in model.get_inputs() if "past" in i.name}
    feed = {name: a[row:row + 1] for name, a in data.items()}
    new, tokens, rows = feed["input_ids"][:, :1], [], []
    for step in range(STEPS):
        made = dict(zip([o.name for o in model.get_outputs()], model.run(None, feed | past | {"input_ids": new, "use_cache_branch": np.array([step > 0])}), strict=True))
        for name in past:
            if step and "encoder" in name:
                continue  # this branch leaves it alone
            value = made[name.replace("past_key_values", "present")]
            past[name] = value if rounded is None else (np.clip(np.rint(value / rounded[name]), -128, 127) * rounded[name]).astype(np.float32)
        rows.append(made["logits"][0, -1])
        tokens.append(int(rows[-1].argmax()))
        new = np.array([tokens[-1:]])
    return tokens, np.array(rows)


def main():
    exports, out, *names = sys.argv[1:]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(pathlib.Path(exports).glob("*/decoder_model_merged.onnx")):
        name = path.parent.name
        if names and name not in names:
            continue
        data = samples(path.parent)
        np.savez(out / "data.npz", **data)
        for by in "int8", "int8:per-head", "int8:per-channel":
            r = command("--force", "--exclude", "*", "--target", "ort", "--kv-cache", by, "--calib", out / "data.npz", path, out / "merged.onnx")
            if r.returncode:
                tell(f"merged {name} {by}: EXIT {r.returncode}: {said(r)}", wrong=True)
                continue
            before, after, scales = session(path), session(out / "merged.onnx"), scales_of(out / "merged.onnx")
            same, alike, far = True, 0, 0.0
            for row in range(4):
                tokens, logits = generate(after, data, row, np.int8)
                rounded, other = generate(before, data, row, np.float32, scales)
                plain, float_logits = generate(before, data, row, np.float32)
                same = same and tokens == rounded and distance(logits, other) < 1e-5
                until = next((i for i in range(STEPS) if tokens[i] != plain[i]), STEPS)
                alike, far = alike + sum(a == b for a, b in zip(tokens, plain)), max(far, distance(logits[:until], float_logits[:until]))
            tell(f"merged {name} {by}: {'the tokens by hand' if same else 'OTHER TOKENS than by hand'}; {alike} of {4 * STEPS} of float; logits {far:.4f} from float",
                 wrong=not same or far > 0.05)
    end()


if __name__ == "__main__":
    main()
