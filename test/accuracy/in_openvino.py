"""Writes the table of docs/for-openvino.md: models with static activations, by onnxquant and by NNCF, in OpenVINO.

    make openvino
    PYTHONPATH=test/oracle .venv/bin/python test/accuracy/in_openvino.py [WORK ...]

Both get the same 32 samples. OpenVINO and NNCF run in an environment of their own, which is made in build/accuracy/tools and
also sees the packages of this one. With WORKs, names of activation_tasks.works(), it prints the table only.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import activation_tasks
import activations
from activations import ROOT, digest, error, file_digest, saved, table

KEPT = ROOT / "build" / "accuracy" / "openvino"
PACKAGES = ["openvino==2026.4.1", "nncf==3.4.0", "onnx==1.23.2"]
WORKS = ["rec4", "cls", "orientation", "captcha", "magika", "tinygpt"]
DOCUMENT = ROOT / "docs" / "for-openvino.md"
BEGIN, END = "<!-- static: written by make openvino -->\n", "<!-- end of static -->\n"
ROUNDS = 7
OURS = ["--activations", "static", "--target", "openvino", "--samples", "32", "--calib"]


class Session:
    """A model compiled for one thread, with the face of ONNX Runtime's sessions."""

    def __init__(self, model):
        import openvino
        self.model = openvino.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"})
        self.names = [i.any_name for i in self.model.inputs]

    def get_inputs(self):
        return [type("Input", (), {"name": n})() for n in self.names]

    def get_outputs(self):
        return [type("Output", (), {"name": o.any_name})() for o in self.model.outputs]

    def run(self, names, feed):
        got = self.model({k: v for k, v in feed.items() if k in self.names}, share_inputs=True)
        return [np.array(got[o]) for o in self.model.outputs if not names or o.any_name in names]


def read(path):
    import openvino
    return openvino.Core().read_model(path)


def by_nncf(model, samples, out):
    """nncf.quantize of the model as OpenVINO reads it: MIXED activations, which its documentation advises for accuracy, or its defaults."""
    import nncf
    import openvino
    options = {"fast": {}, "mixed": {"preset": nncf.QuantizationPreset.MIXED}, "transformer": {"model_type": nncf.ModelType.TRANSFORMER}}
    made = nncf.quantize(read(model), nncf.Dataset(samples), subset_size=len(samples), **options[out.stem.split("-")[-1]])
    openvino.save_model(made, out, compress_to_fp16=False)


def by_us(model, samples, out):
    done = subprocess.run([activations.BINARY, "--quiet", *OURS, samples, model, out], capture_output=True, text=True, timeout=1500)
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[-1])


def cpu(sessions, feed):
    """CPU time of a run of each session in parts of the first's, in turn; the first's in ms."""
    def once(s, n):
        start = time.process_time()
        for _ in range(n):
            s.run(None, feed)
        return (time.process_time() - start) / n
    for s in sessions:
        once(s, 2)
    n = max(1, int(0.05 / max(once(sessions[0], 2), 1e-5)))
    rounds = [[once(s, n) for s in sessions] for _ in range(ROUNDS)]
    return [statistics.median(r[i] / r[0] for r in rounds) for i in range(len(sessions))], 1000 * statistics.median(r[0] for r in rounds)


def measure(name, work):
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    feeds = work.calibration()[0]
    samples = saved(feeds, folder / "samples")
    [held_out] = work.held_out()
    [model] = work.models
    files = {"onnxquant": folder / f"ours-{file_digest(activations.BINARY)}.onnx", "NNCF": folder / "nncf-fast.xml", "NNCF, mixed": folder / "nncf-mixed.xml", "NNCF, transformer": folder / "nncf-transformer.xml"}
    sessions, row = {"float": Session(read(model))}, {"float": {}}
    want = [sessions["float"].run(None, f) for f in held_out]
    for tool, path in files.items():
        row[tool] = {}
        try:
            if not path.exists():
                by_us(model, samples, path) if tool == "onnxquant" else by_nncf(model, feeds, path)
            sessions[tool] = Session(read(path))
            row[tool]["error"] = error(want, [sessions[tool].run(None, f) for f in held_out])
        except Exception as e:  # what a tool writes may not load
            row[tool]["why"] = str(e).strip().splitlines()[-1][:200]
            sessions.pop(tool, None)
    for tool, s in sessions.items():
        row[tool]["score"] = float(work.score([s]))
    ratios, ms = cpu(list(sessions.values()), held_out[0])
    for tool, ratio in zip(sessions, ratios):
        row[tool] |= {"cpu": ratio, "ms": ms * ratio}
    print(name, json.dumps(row), flush=True)
    return row


def page(results):
    tools = ["onnxquant", "NNCF", "NNCF, mixed", "NNCF, transformer"]

    def cell(r):
        return f"{100 * r['score']:.1f}, {r['error']:.4f}, {r['cpu']:.2f}" if "cpu" in r else "fails"
    return table(["", "float", *tools], [[what, f"{100 * r['float']['score']:.1f}, {r['float']['ms']:.2f} ms", *(cell(r[t]) for t in tools)] for what, r in results])


def main(names):
    if os.environ.get("IN_OPENVINO") is None:
        home = KEPT.parent / "tools" / "openvino"
        if not (home / digest(*PACKAGES)).exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            subprocess.run([home / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES], check=True)
            (home / digest(*PACKAGES)).touch()
        activation_tasks.fetch()
        paths = os.pathsep.join([os.environ["PYTHONPATH"], str(pathlib.Path(__file__).parent)])
        behind = str(pathlib.Path(np.__file__).parents[1])
        script = f"import sys; sys.path.append({behind!r}); import in_openvino; in_openvino.main(sys.argv[1:])"
        sys.exit(subprocess.run([home / "bin" / "python", "-c", script, *names], env={**os.environ, "IN_OPENVINO": "1", "PYTHONPATH": paths}).returncode)
    works = activation_tasks.works()
    results = []
    for name in names or WORKS:
        work = works[name]()
        results.append((f"{work.name}: {work.metric}", measure(name, work)))
    text = page(results)
    print(text)
    if not names:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
