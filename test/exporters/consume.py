"""Presets of exported folders in the programs that they are for: consume.py genai|transformers.js EXPORTS OUT [NAME…].
transformers.js runs under node, in the folder NODE_FOLDER where npm has installed it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from decode import PROMPT, distance, logits, session
from outcome import end, tell
from run import command, said

HERE = pathlib.Path(__file__).parent


SPEECH = np.random.default_rng(1).standard_normal((1, 80, 3000)).astype(np.float32)


def settings_of(folder):
    return json.loads((folder / "genai_config.json").read_text())["model"]


def generate(folder, count=12):
    """Tokens that onnxruntime-genai generates, and the logits of the prompt's last token."""
    import onnxruntime_genai as og

    model, settings = og.Model(str(folder)), settings_of(folder)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=min(128, settings["context_length"]), min_length=len(PROMPT) + count)
    g = og.Generator(model, params)
    if "encoder" in settings:
        g.set_model_input("audio_features", SPEECH)
    g.append_tokens(np.array([PROMPT], np.int32))
    first = np.array(g.get_output("logits"))[0, -1]
    for _ in range(count):
        g.generate_next_token()
    return [int(t) for t in g.get_sequence(0)], first


def by_hand(folder, tokens, settings):
    """Logits that ONNX Runtime computes with the caches of a decoder, or of an encoder and a decoder."""
    d = settings["decoder"]
    if "encoder" not in settings:
        config = {"num_key_value_heads": d["num_key_value_heads"], "head_dim": d["head_size"], "window_size": d.get("sliding_window", {}).get("window_size")}
        return logits(folder / "model.onnx", forced=tokens[len(PROMPT):-1], config=config)[len(PROMPT) - 1:]
    encoder, decoder = (session(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    made = dict(zip([o.name for o in encoder.get_outputs()], encoder.run(None, {"audio_features": SPEECH}), strict=True))
    past = {i.name: made[i.name.replace("past", "present")] if "cross" in i.name else np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
            for i in decoder.get_inputs() if "past" in i.name}
    rows, new = [], tokens[:len(PROMPT)]
    for token in [*tokens[len(PROMPT):-1], None]:
        got = dict(zip([o.name for o in decoder.get_outputs()], decoder.run(None, {"input_ids": np.array([new], np.int32), **past}), strict=True))
        rows.append(got["logits"][0, -1])
        past |= {name: got[name.replace("past", "present")] for name in past if "self" in name}
        new = [token]
    return np.array(rows)


def genai(source, out, name):
    settings = settings_of(source)
    want, first = generate(source)
    ways = {"int4": [], "cache": ["--algorithm", "k_quant", "--kv-cache", "int8", "--calib", "self", "--samples", "4"]}
    for way, flags in ways.items():
        to = out / f"{name}-{way}"
        shutil.rmtree(to, ignore_errors=True)
        r = command("--preset", "genai", *flags, source, to)
        if r.returncode:
            tell(f"genai {name} {way}: EXIT {r.returncode}: {said(r)}", wrong=True)
            continue
        got, now = generate(to)
        mine = by_hand(to, got, settings).argmax(-1)
        same = sum(int(a) == b for a, b in zip(mine, got[len(PROMPT):]))
        tell(f"genai {name} {way}: {len(got)} tokens, logits {distance(now, first):.3f} from float; "
             f"{same} of {len(mine)} tokens are those by hand; {said(r)}", wrong=same < len(mine))


def transformers_js(source, out, name):
    to = out / name
    shutil.rmtree(to, ignore_errors=True)
    r = command("--preset", "transformers.js", source, to)
    if r.returncode:
        tell(f"transformers.js {name}: EXIT {r.returncode}: {said(r)}", wrong=True)
        return
    node = pathlib.Path(os.environ["NODE_FOLDER"])
    script = node / "generate.mjs"
    script.write_text((HERE / "generate.mjs").read_text())
    dtypes = ["fp32", "fp16", "q8", "int8", "uint8", "q4", "q4f16", "q2", "q2f16", "bnb4"]
    if (source / "model.onnx").exists() and "past_key_values" in str((source / "model.onnx").read_bytes()):
        r = command("--exclude", "*", "--target", "ort", "--kv-cache", "int8", "--calib", "self", "--samples", "4", source / "model.onnx", to / "onnx/model_q1.onnx")
        if r.returncode:
            tell(f"transformers.js {name} cache: EXIT {r.returncode}: {said(r)}", wrong=True)
        else:
            dtypes.append("q1")  # a name that is free, for a model with float weights and an int8 cache
    for dtype in dtypes:
        n = subprocess.run(["node", script, out, name, dtype], capture_output=True, text=True, timeout=300)
        made = n.stdout.strip()[:160] if n.returncode == 0 else "FAILED: " + n.stderr.strip()[-300:]
        tell(f"transformers.js {name} {dtype}: {made}", wrong=n.returncode != 0)


if __name__ == "__main__":
    kind, exports, out, *names = sys.argv[1:]
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    for folder in sorted(pathlib.Path(exports).iterdir()):
        if folder.suffix != ".cache" and (not names or folder.name in names):
            try:
                {"genai": genai, "transformers.js": transformers_js}[kind](folder, pathlib.Path(out), folder.name)
            except Exception as e:
                tell(f"{kind} {folder.name}: FAILED: {str(e)[:300]}", wrong=True)
    end()
