"""Compares onnxquant tune with a full grid of 30 settings: size of what each finds for the same goal, and CPU time.

    make tune-grid
    PYTHONPATH=test/oracle .venv/bin/python test/accuracy/tune.py [WORK ...]
    PYTHONPATH=test/oracle .venv/bin/python test/accuracy/tune.py MODEL DATA LIMIT VALUE
    PYTHONPATH=test/oracle .venv/bin/python test/accuracy/tune.py --fastest NAME MODEL DATA LIMIT VALUE

The last form takes the models of a grid that was run before, in build/accuracy/tune/NAME, and compares the fastest of them that keeps the
limit with what tune --fastest finds: both are measured by onnxquant bench in turn, with one thread, as CPU time over that of the float model.

WORKs are names of activation_tasks.works(). Both see the same samples: the first half calibrates, every other one of the rest
chooses, the others judge at the end. The grid takes its smallest model that keeps the limit on the samples that choose.
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime as ort

from command import BINARY, ROOT

KEPT = ROOT / "build" / "accuracy" / "tune"
os.environ.setdefault("ONNXQUANT_ORT_LIB", str(next((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))))
LIMITS = {"magika": ("max-kl", 0.01), "tinygpt": ("max-kl", 0.01), "captcha": ("max-kl", 0.01), "cls": ("max-kl", 0.001), "dtln": ("min-sqnr", 25),
          "rec4": ("max-kl", 0.01), "orientation": ("max-kl", 0.01), "embedder": ("min-sqnr", 20)}


def grid(calib):
    """30 settings that people try."""
    formats = ["--bits 8 --block -1", "--bits 8 --block 32", "--bits 4 --block 128", "--bits 4 --block 32", "--bits 4 --block 32 --zero-point", "--bits 4 --block 16 --zero-point",
               "--bits 2 --block 16 --zero-point"]
    settings = [f + h for f in formats for h in ("", " --float16")]  # 14
    settings += [f"{f} --algorithm mse" for f in formats[2:]]  # 5
    settings += [f"{f} --algorithm best {calib}" for f in formats[2:]]  # 5
    settings += [f"--bits 4 --block 32 --zero-point --float16 --algorithm best {calib}", f"--bits 4 --block 16 --zero-point --float16 --algorithm best {calib}"]
    settings += ["--activations dynamic", "--activations dynamic --block -1", "--float16", f"--activations static {calib}"]
    assert len(settings) == 30
    return [s if s == "--float16" or "static" in s else f"--ops all {s}" for s in settings]


def cpu(command, seconds=3600):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def probabilities(x, softmax):
    if not softmax:
        return np.maximum(x, 1e-30)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def loss(want, got, limit):
    """Of the worst output: the mean KL divergence, or the SQNR below zero, so that less is better."""
    worst = -np.inf
    for k in range(len(want[0])):
        if want[0][k].dtype.kind != "f":
            continue
        a, b = (np.concatenate([x[k].reshape(-1, x[k].shape[-1]).astype(np.float64) for x in side]) for side in (want, got))
        if limit == "min-sqnr":
            worst = max(worst, -10 * np.log10((a**2).sum() / max(((a - b) ** 2).sum(), 1e-300)))
            continue
        softmax = not (a.min() >= 0 and np.allclose(a.sum(-1), 1, atol=1e-2))
        p, q = probabilities(a, softmax), probabilities(b, softmax)
        worst = max(worst, float((p * (np.log(p) - np.log(q))).sum(-1).mean()))
    return worst


def outputs(path, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    types = {i.name: {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}[i.type] for i in session.get_inputs()}
    return [session.run(None, {k: v.astype(types[k]) for k, v in f.items()}) for f in feeds]


def size(path):
    return sum(p.stat().st_size for p in path.parent.glob(path.name + "*") if p.suffix in (".onnx", ".data"))


def compare(name, model, data, limit, value):
    folder = KEPT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    feeds = [dict(np.load(p)) for p in sorted(pathlib.Path(data).glob("*.npz"))]
    half = len(feeds) // 2
    choice, final = feeds[half:][::2], feeds[half:][1::2]
    bound = -value if limit == "min-sqnr" else value
    want, unseen = outputs(model, choice), outputs(model, final)
    rows, total = [], 0.0
    for number, setting in enumerate(grid(f"--calib {data} --samples {half}")):
        out = folder / f"{number}.onnx"
        done, seconds = cpu([BINARY, "--quiet", "--target", "ort", *setting.split(), model, out])
        start = os.times()
        row = {"setting": setting, "seconds": seconds}
        if out.exists():
            row |= {"bytes": size(out), "choice": loss(want, outputs(out, choice), limit), "final": loss(unseen, outputs(out, final), limit)}
        else:
            row["why"] = done.stderr.strip().splitlines()[-1][:120]
        now = os.times()
        row["seconds"] += now.user + now.system - start.user - start.system
        total += row["seconds"]
        rows.append(row)
        print(name, number, json.dumps(row), flush=True)
    keeps = [r for r in rows if r.get("choice", np.inf) <= bound]
    best = min(keeps, key=lambda r: r["bytes"], default=None)
    out = folder / "tuned.onnx"
    done, seconds = cpu([BINARY, "tune", "--json", "--data", data, f"--{limit}", value, "--target", "ort", "--report", folder / "page.html", model, out])
    (folder / "tuned.log").write_text(done.stderr)
    found = json.loads(done.stdout)
    (folder / "tuned.json").write_text(done.stdout)
    result = {"name": name, "limit": f"{limit} {value}", "float": size(pathlib.Path(model)), "grid_seconds": total, "tune_seconds": seconds, "grid": best, "tune": found["verdict"], "trials": len(found["trials"])}
    if out.exists():
        result |= {"bytes": size(out), "choice": loss(want, outputs(out, choice), limit), "final": loss(unseen, outputs(out, final), limit), "command": found["command"]}
        repeat = folder / "again" / "tuned.onnx"
        repeat.parent.mkdir()
        subprocess.run([BINARY, "--quiet", *found["command"][:-1], repeat], check=True)
        result["same bytes"] = repeat.read_bytes() == out.read_bytes()
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1), flush=True)
    return result


def bench(model, paths, data, seconds):
    """CPU time of a run of each, over that of the float model, measured in turn."""
    done = subprocess.run([str(c) for c in (BINARY, "bench", "--json", "--threads", 1, "--inputs", data, "--seconds", seconds, model, *paths)], capture_output=True, text=True, check=True)
    return [m["cpu_ratio"] for m in json.loads(done.stdout)["models"][1:]]


def fastest(name, model, data, limit, value, few=4):
    """The fastest of a grid that was kept, beside what tune --fastest finds. The few fastest of a first measurement are measured again."""
    folder = KEPT / name
    feeds = [dict(np.load(p)) for p in sorted(pathlib.Path(data).glob("*.npz"))]
    choice = feeds[len(feeds) // 2 :][::2]
    bound, want, keeps = -value if limit == "min-sqnr" else value, outputs(model, choice), []
    for path in sorted(folder.glob("[0-9]*.onnx"), key=lambda p: int(p.stem)):
        if loss(want, outputs(path, choice), limit) <= bound:
            keeps.append(path)
    ratios = bench(model, keeps, data, 6 * len(keeps))
    best = [path for _, path in sorted(zip(ratios, keeps))][:few]
    out = folder / "fast.onnx"
    out.unlink(missing_ok=True)
    done, seconds = cpu([BINARY, "tune", "--json", "--fastest", "--data", data, f"--{limit}", value, "--target", "ort", model, out])
    found = json.loads(done.stdout)
    settings = grid(f"--calib {data} --samples {len(feeds) // 2}")
    result = {"name": name, "limit": f"{limit} {value}", "keep": len(keeps), "tune": found["verdict"], "reason": found["reason"], "tune_seconds": seconds,
              "trials": [{k: t.get(k) for k in ("label", "bytes", "time", "why")} for t in found["trials"]]}
    paths = best + [out] * out.exists()
    for path, ratio in zip(paths, bench(model, paths, data, 60)):
        label = " ".join(found["command"]) if path == out else settings[int(path.stem)]
        result[path.stem] = {"setting": label, "cpu_ratio": ratio, "bytes": size(path)}
    print(json.dumps(result, indent=1), flush=True)


def works(names):
    import activation_tasks
    activation_tasks.fetch()
    for name, make in activation_tasks.works().items():
        if name in LIMITS and (not names or name in names):
            work = make()
            for i, (model, feeds) in enumerate(zip(work.models, work.calibration())):
                data = KEPT / f"{name}-{i}-data"
                shutil.rmtree(data, ignore_errors=True)
                data.mkdir(parents=True)
                for number, feed in enumerate(feeds):
                    np.savez(data / f"{number:03}.npz", **feed)
                yield f"{name}-{i}", model, data, *LIMITS[name]


def main(args):
    if args[:1] == ["--fastest"]:
        fastest(*args[1:5], float(args[5]))
        return
    if len(args) == 4 and pathlib.Path(args[0]).exists():
        compare(pathlib.Path(args[0]).parent.name, args[0], args[1], args[2], float(args[3]))
        return
    for work in works(args):
        compare(*work)


if __name__ == "__main__":
    main(sys.argv[1:])
