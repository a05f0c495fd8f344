"""What --fold does to time and error: each model with static activations, folded and not, per channel and per tensor.

Arguments are float models with one input of images; `make fold FOLD='model.onnx …'` runs it. Inputs are smooth random
images, 16 of them, the same for ranges and for the comparison. Time is CPU time of a run in ONNX Runtime on one thread, the
median of runs in turn.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = ROOT / "bin" / "onnxquant"
COLUMNS = {
    "static, folded": ["--activations", "static", "--fold"],
    "static": ["--activations", "static", "--no-fold"],
    "one scale, folded": ["--activations", "static", "--block", "-2", "--fold"],
    "one scale": ["--activations", "static", "--block", "-2", "--no-fold"],
}


def command(*args):
    return subprocess.run([BINARY, *map(str, args)], check=True, capture_output=True, text=True).stdout


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def times(paths, feeds, rounds=40, runs=5):
    sessions, took = [session(p) for p in paths], [[] for _ in paths]
    for _ in range(rounds):
        for s, list_ in zip(sessions, took):
            start = time.process_time()
            for _ in range(runs):
                s.run(None, feeds)
            list_.append((time.process_time() - start) / runs * 1e3)
    return [float(np.median(t[2:])) for t in took]


def measure(model, folder):
    info = session(model).get_inputs()[0]
    sides = iter([48, 192])
    shape = [d if isinstance(d, int) else 1 if i == 0 else next(sides) for i, d in enumerate(info.shape)]
    rng = np.random.default_rng(3)
    for i in range(16):
        x = rng.normal(size=shape).cumsum(-1).cumsum(-2)
        np.savez(folder / f"{i}.npz", **{info.name: (x / np.abs(x).max()).astype(np.float32)})
    ranges = folder.parent / "ranges.json"
    command("calibrate", "--data", folder, "-o", ranges, "-q", model)
    outs, sqnr = [], []
    for i, flags in enumerate(COLUMNS.values()):
        out = folder.parent / f"{i}.onnx"
        command(*flags, "--ranges", ranges, "--allow-fallback", "-q", model, out)
        report = json.loads(command("verify", "--json", "--engine", "ort", "--inputs", folder, model, out))
        itself = report["execution"].get("itself") or report["execution"]
        outs.append(out)
        sqnr.append(min(o["sqnr_db"] for o in itself["outputs"]))
    took = times([model, *outs], dict(np.load(folder / "0.npz")))
    return [f"{took[0]:.2f}", *(f"{t:.2f}, {s:.1f} dB" for t, s in zip(took[1:], sqnr))]


def main():
    print("| model | float |", " | ".join(COLUMNS), "|\n|---|---|" + "---|" * len(COLUMNS))
    for model in map(pathlib.Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data"
            data.mkdir()
            print("|", model.stem, "|", " | ".join(measure(model, data)), "|", flush=True)


if __name__ == "__main__":
    main()
