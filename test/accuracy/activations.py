"""Writes the tables of docs/activations.md: models with 8 bits of activations, by onnxquant and by other tools, on tasks.

    make activations
    PYTHONPATH=test/oracle .venv/bin/python test/accuracy/activations.py [--kept] [WORK ...]

Each tool gets the same 32 samples. Models and results are kept in build/accuracy/activations; what has not changed is not
made again. With WORKs, names of activation_tasks.works(), it prints the tables only. With --kept it measures nothing. NNCF and Quark run in environments of their own, which are made
beside the results (TOOLS).
"""
import fnmatch
import hashlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

import activation_tasks
import static_peers
from activation_tasks import session
from command import BINARY, ROOT

KEPT = ROOT / "build" / "accuracy" / "activations"
PEERS = pathlib.Path(static_peers.__file__)
LIBRARY = os.environ.setdefault("ONNXQUANT_ORT_LIB", str(next((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))))
TOOLS = {"nncf": ["nncf==3.4.0"], "quark": ["amd-quark==0.13", "torch==2.15.0"]}
DOCUMENT = ROOT / "docs" / "activations.md"
BEGIN, END = "<!-- tasks: written by make activations -->\n", "<!-- end of tasks -->\n"
SECONDS = 1500  # that a conversion may take

OURS = {
    "static": "--activations static --samples 32 --calib",
    "static, one scale": "--activations static --block -2 --samples 32 --calib",
    "dynamic": "--activations dynamic",
    "dynamic, all": "--activations dynamic --ops all",
    "dynamic, data": "--activations dynamic --samples 32 --calib",
    "weights": "--format int8 --block 32 --ops all",
}

# Columns of the table: of several settings, the one with the least error on held-out inputs counts.
COLUMNS = {
    "static": ["static"],
    "static, one scale": ["static, one scale"],
    "dynamic": ["dynamic"],
    "dynamic, all": ["dynamic, all"],
    "dynamic, data": ["dynamic, data"],
    "weights": ["weights"],
    "quantize_static, minmax": ["static minmax tensor", "static minmax channel"],
    "percentile": ["static percentile tensor", "static percentile channel"],
    "entropy": ["static entropy tensor", "static entropy channel"],
    "quantize_dynamic": ["dynamic tensor", "dynamic channel"],
    "NNCF": ["nncf", "nncf transformer"],
    "Quark": ["quark U8S8_AAWS", "quark INT8_CNN_DEFAULT"],
}


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else str(part).encode())
    return h.hexdigest()[:24]


def file_digest(path):
    return digest(pathlib.Path(path).read_bytes())


def saved(feeds, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for i, feed in enumerate(feeds):
        np.savez(folder / f"{i:03}.npz", **feed)
    return folder


def tool_python(tool):
    if tool == "onnxruntime":
        return sys.executable
    home = KEPT.parent / "tools" / tool
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "-q", *TOOLS[tool], "onnxruntime"], check=True)
        (home / "ready").touch()
    return home / "bin" / "python"


def ours(setting, model, samples, out):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    flags = OURS[setting].split()
    flags += [samples] if flags[-1] == "--calib" else []
    done = subprocess.run([BINARY, *flags, model, out], capture_output=True, text=True, timeout=SECONDS)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = {"seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall": time.monotonic() - start,
            "summary": [l for l in done.stderr.splitlines() if l.startswith(("activations ", "loss "))][:6]}
    if done.returncode:
        said["why"] = (done.stderr.strip().splitlines() or ["?"])[-1][:300]
    return said


def peers(setting, model, samples, out):
    try:
        python = tool_python(static_peers.SETTINGS[setting][0])
    except subprocess.CalledProcessError as error:
        return {"why": f"does not install: {error}"[:300]}
    with tempfile.TemporaryDirectory() as folder:  # Quark leaves a table there
        done = subprocess.run([python, PEERS, setting, model, samples, out], capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    return json.loads(lines[-1])


def made(name, setting, number, model, samples):
    """The file of a setting and what is known of it. What failed is kept, too."""
    make = ours if setting in OURS else peers
    tool = file_digest(BINARY) if setting in OURS else file_digest(PEERS)
    folder = KEPT / name
    out = folder / f"{setting.replace(',', '').replace(' ', '-')}-{number}.onnx"
    key = digest(setting, OURS.get(setting, ""), tool, file_digest(model), *(p.read_bytes() for p in sorted(samples.glob("*.npz"))))
    note = out.with_suffix(".json")
    if note.exists() and (known := json.loads(note.read_text()))["key"] == key:
        return out, known
    out.unlink(missing_ok=True)
    try:
        known = make(setting, model, samples, out)
    except subprocess.TimeoutExpired:
        known = {"why": f"no result after {SECONDS} s"}
    known |= {"key": key, "bytes": sum(p.stat().st_size for p in out.parent.glob(f"{out.name}*")) if out.exists() else 0}
    note.write_text(json.dumps(known))
    return out, known


def error(want, got):
    """‖y − ŷ‖ / ‖y‖ over all held-out inputs, the root of the mean square over the float outputs."""
    squares = []
    for k in range(len(want[0])):
        if want[0][k].dtype.kind != "f":
            continue
        a, b = (np.concatenate([x[k].ravel().astype(np.float64) for x in side]) for side in (want, got))
        squares.append(np.sum((a - b) ** 2) / max(np.sum(a**2), 1e-300) if a.shape == b.shape else np.inf)
    return float(np.sqrt(np.mean(squares))) if squares else None


def cpu(sessions, feeds):
    """CPU time of each of the sessions in parts of the first's, in turn: the median over rounds."""
    def once(s):
        start = time.process_time()
        for feed in feeds:
            s.run(None, feed)
        return time.process_time() - start
    once(sessions[0])
    if (first := once(sessions[0])) < 0.05:
        feeds = feeds * min(int(0.05 / max(first, 1e-4)) + 1, 200)
    rounds = []
    for s in sessions:
        once(s)
    for _ in range(7):
        times = [once(s) for s in sessions]
        rounds.append([t / times[0] for t in times])
    return [statistics.median(r) for r in zip(*rounds)], statistics.median([once(sessions[0]) for _ in range(3)]) / len(feeds)


def wanted(setting):
    """Whether the environment variable SETTINGS has a pattern of a setting, as in "static;static minmax *"; without it, all are wanted."""
    return any(fnmatch.fnmatch(setting, p) for p in os.environ.get("SETTINGS", "*").split(";"))


def measure(name, work):
    """Results by setting: score, bytes, error, cpu."""
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / "results.json"
    known = json.loads(notes.read_text()) if notes.exists() else {}
    scoring = digest(*(file_digest(m.__file__) for m in (activation_tasks, activation_tasks.tasks)), ort.__version__)
    samples = [saved(feeds, folder / f"samples-{i}") for i, feeds in enumerate(work.calibration())]
    held_out = work.held_out()
    floats = [session(m) for m in work.models]
    want = [[s.run(None, f) for f in feeds] for s, feeds in zip(floats, held_out)]
    if known.get("float", {}).get("scoring") != scoring:
        known["float"] = {"score": float(work.score(floats)), "bytes": sum(m.stat().st_size for m in work.models), "scoring": scoring}
    ready = {}
    for setting in filter(wanted, [*OURS, *static_peers.SETTINGS]):
        files, said = zip(*(made(name, setting, i, m, s) for i, (m, s) in enumerate(zip(work.models, samples))))
        row = {"key": digest(*(s["key"] for s in said), scoring), "bytes": sum(s["bytes"] for s in said), "seconds": sum(s.get("seconds", 0) for s in said),
               "summary": [line for s in said for line in s.get("summary", [])], "memory": max(s.get("memory", 0) for s in said)}
        try:
            if any("why" in s for s in said):
                raise ValueError(next(s["why"] for s in said if "why" in s))
            sessions = [session(f) for f in files]
            if known.get(setting, {}).get("key") == row["key"] and "score" in known[setting]:
                row = known[setting]
            else:
                row["error"] = float(np.sqrt(np.mean([error(w, [s.run(None, f) for f in feeds]) ** 2 for s, w, feeds in zip(sessions, want, held_out)])))
                row["score"] = float(work.score(sessions))
            ready[setting] = sessions
        except Exception as e:  # what a tool writes may not load
            row["why"] = str(e)[:300]
        known[setting] = row
        print(name, "|", setting, "|", row.get("why") or f"{row['score']:.4f} error {row['error']:.4f} size {row['bytes'] / known['float']['bytes']:.3f} made in {row['seconds']:.0f} s",
              "|", *row["summary"], flush=True)
        notes.write_text(json.dumps(known, indent=1))
    if os.environ.get("SPEED", "1") == "1":
        each = [cpu([s[i] for s in [floats, *ready.values()]], feeds[:4]) for i, feeds in enumerate(held_out)]
        base = sum(t for _, t in each)
        for k, setting in enumerate(["float", *ready]):
            known[setting]["cpu"] = sum(ratios[k] * t for ratios, t in each) / base
        notes.write_text(json.dumps(known, indent=1))
    return known


def best(known, column):
    """The setting of a column that has the least error."""
    ran = [known[s] for s in COLUMNS[column] if "score" in known.get(s, {})]
    return min(ran, key=lambda r: r["error"], default=None)


def table(head, rows):
    return "\n" + "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


def page(results):
    """Scores, sizes, CPU times and errors of outputs, as Markdown."""
    used = [c for c in COLUMNS if any(best(known, c) or any("why" in known.get(s, {}) for s in COLUMNS[c]) for _, known in results)]
    names = [f"ours: {c}" if c in OURS else c for c in used]

    def rows(cell):
        for work, known in results:
            found = [(best(known, c), any(s in known for s in COLUMNS[c])) for c in used]
            yield [work, *(cell(r, known["float"]) if r else "fails" if tried else "–" for r, tried in found)]

    def score(value, float_):
        return f"{value:.2f}" if float_ > 2 else f"{100 * value:.1f}"

    yield "Scores: what the task keeps. SI-SDR in dB, all others in percent."
    yield table(["", "float", *names], [[row[0], score(known["float"]["score"], known["float"]["score"]), *row[1:]]
                                        for row, (_, known) in zip(rows(lambda r, f: score(r["score"], f["score"])), results)])
    yield "Size of the file, in parts of the float model's:"
    yield table(["", *names], rows(lambda r, f: f"{r['bytes'] / f['bytes']:.2f}"))
    if any("cpu" in row for _, known in results for row in known.values()):
        yield "CPU time of a run in ONNX Runtime, in parts of the float model's:"
        yield table(["", *names], rows(lambda r, f: f"{r['cpu']:.2f}" if "cpu" in r else "–"))
    yield "Error of the outputs on held-out inputs, ‖y − ŷ‖ / ‖y‖:"
    yield table(["", *names], rows(lambda r, f: f"{r['error']:.3f}"))


def write(text):
    before, begin, rest = DOCUMENT.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{DOCUMENT} has no place for the tables")
    DOCUMENT.write_text(before + begin + text + end + after)


def main(args):
    names = [a for a in args if not a.startswith("--")]
    activation_tasks.fetch()
    results = []
    for name, make in activation_tasks.works().items():
        if names and name not in names:
            continue
        notes = KEPT / name / "results.json"
        if "--kept" not in args or notes.exists():
            work = make()
            known = json.loads(notes.read_text()) if "--kept" in args else measure(name, work)
            results.append((f"{work.name}: {work.metric}", known))
    text = "\n".join(page(results))
    print(text)
    if not names:
        write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
