"""The command on exported models, and its outputs in ONNX Runtime, beside the float model: run.py EXPORTS OUT [FOLDER…]."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

from decode import distance, logits, outputs
from outcome import end, tell

BINARY = pathlib.Path(os.environ.get("ONNXQUANT", "bin/onnxquant")).resolve()

# Flags, and how far outputs may be from those of the float model. The weights are random, so 4 bits cost much: the steps of their
# codes are 17 times those of 8 bits, and so are the distances if nothing but rounding makes them.
EIGHT = 0.03
WAYS = {
    "4 bits": (["-bits", "4", "--block", "32"], 17 * EIGHT),
    "ort": (["-bits", "4", "--block", "32", "--target", "ort"], 17 * EIGHT),
    "8 bits": (["-bits", "8", "--target", "ort"], EIGHT),
    "dynamic": (["--activations", "dynamic"], 0.15),
    "static": (["--activations", "static", "--calib", "self", "--samples", "8"], 0.5),
    "levels": (["-bits", "8", "--target", "ort", "--accuracy-level", "auto", "--calib", "self", "--samples", "8", "--allow-fallback"], EIGHT),
    "cache": (["--exclude", "*", "--target", "ort", "--kv-cache", "int8", "--calib", "self", "--samples", "8"], 0.05),
    "cache per head": (["--exclude", "*", "--target", "ort", "--kv-cache", "int8:per-head", "--calib", "self", "--samples", "8"], 0.05),
    "cache per channel": (["--exclude", "*", "--target", "ort", "--kv-cache", "int8:per-channel", "--calib", "self", "--samples", "8"], 0.05),
}


def command(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=600)


def said(r):
    """What a user reads of an error or warning."""
    return " | ".join(line.removeprefix("onnxquant: ") for line in r.stderr.splitlines() if line.startswith("onnxquant"))[:500]


def models(folder):
    return sorted(folder.rglob("*.onnx"))


def encoder_states(folder):
    for name in ("encoder_model.onnx", "encoder.onnx"):
        for path in folder.rglob(name):
            return outputs(path)
    return None


def result(path, folder):
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
    if "genai_config.json" in os.listdir(folder):
        d = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
        config = {"num_key_value_heads": d["num_key_value_heads"], "head_dim": d["head_size"], "window_size": d.get("sliding_window", {}).get("window_size")}
    else:
        config["head_dim"] = config.get("head_dim") or config.get("d_kv") or config.get("hidden_size", 64) // config.get("num_attention_heads", 4)
        config["num_key_value_heads"] = config.get("num_key_value_heads") or config.get("decoder_attention_heads") or config.get("num_heads") or 4
    import onnx

    names = {i.name for i in onnx.load(path, load_external_data=False).graph.input}
    if not any(n in names for n in ("input_ids", "decoder_input_ids")) or not any("past" in n for n in names) and "encoder_hidden_states" not in names:
        return outputs(path)
    encoder = encoder_states(folder)
    if path.name.startswith("decoder") and "merged" not in path.name:  # without a cache, or with one that is not empty
        return logits(path, forced=(), encoder=encoder, config=config) if "with_past" not in path.name else None
    return logits(path, encoder=encoder, config=config)


def share(r, name):
    m = re.search(rf"{re.escape(name)}\s+([\d.]+) % quantized", r.stdout + r.stderr)
    return m and m.group(1) + " %"


def convert(flags, folder, target, paths):
    """Converts the folder; with --accuracy-level auto, which is for one model, each of its models."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if "auto" not in flags:
        return command(*flags, folder, target)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.onnx*"))
    for path in paths:
        r = command(*flags, path, target / path.relative_to(folder))
    return r


def main():
    exports, out, *chosen = sys.argv[1:]
    exports, out = pathlib.Path(exports), pathlib.Path(out)
    only = os.environ.get("WAYS", "")
    for folder in sorted(p for p in exports.iterdir() if p.is_dir() and p.suffix != ".cache" and (not chosen or p.name in chosen)):
        floats = {}
        for p in models(folder):
            try:
                floats[p] = result(p, folder)
            except Exception as e:
                tell(f"{exports.name}/{folder.name}: {p.name} itself was not run: {str(e)[:200]}", wrong=True)
        decoder = [p for p in floats if p.name == "model.onnx" and any(f"{c}.json" in os.listdir(folder) for c in ("generation_config", "genai_config"))]
        for way, (flags, limit) in WAYS.items():
            if not re.search(only, way) or "--calib" in flags and not decoder and "--kv-cache" not in flags:
                continue
            target = out / exports.name / folder.name / way.replace(" ", "-")
            r = convert(flags, folder, target, floats)
            if r.returncode:
                tell(f"{exports.name}/{folder.name}: {way}: EXIT {r.returncode}: {said(r)}", wrong=True)
            for path, want in floats.items() if target.exists() else []:
                name = path.relative_to(folder)
                label = f"{exports.name}/{folder.name}: {way}: {name}"
                if not (target / name).exists():
                    tell(f"{label}: no output", wrong=True)
                    continue
                if want is None:
                    continue
                try:
                    d = distance(result(target / name, target if encoder_states(target) is None else folder), want)
                    tell(f"{label}: {'ok' if d <= limit else 'FAR'} {d:.4f} {share(r, str(name)) or ''}", wrong=not d <= limit)
                except Exception as e:
                    tell(f"{label}: DOES NOT RUN: {str(e)[:300]}", wrong=True)
            if "warning" in r.stderr and not r.returncode:
                tell(f"   {way}: {said(r)}")
    end()


if __name__ == "__main__":
    main()
