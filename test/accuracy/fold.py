"""What --fold does to tasks: --activations static --calib with it and with --no-fold, on labels.

`make fold-tasks TASKS='PP-OCR'` runs it; arguments are parts of names of tasks.py. Prints the accuracy, the activations that
stay in float, and the CPU time of a run in ONNX Runtime.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

import tasks
from command import BINARY


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def cpu(s, feed):
    took = []
    for _ in range(15):
        start = time.process_time()
        s.run(None, feed)
        took.append(time.process_time() - start)
    return 1e3 * float(np.median(took))


def compare(task, folder):
    feeds = task.other()
    (folder / "data").mkdir()
    for i, feed in enumerate(feeds):
        np.savez(folder / "data" / f"{i}.npz", **feed)
    columns = [f"{task.score(session(task.path)):.4f}"]
    for flag in ("--fold", "--no-fold"):
        out = folder / "out.onnx"
        done = subprocess.run([BINARY, "--activations", "static", "--calib", folder / "data", flag, task.path, out], check=True, capture_output=True, text=True)
        kept = re.search(r"(\d+) of (\d+) activations stay", done.stderr)
        s = session(out)
        columns.append(f"{task.score(s):.4f}, {kept[0].removesuffix(' activations stay') if kept else 'none'}, {cpu(s, feeds[0]):.1f} ms")
    return columns


def main():
    print("| task | float | folded: accuracy, activations in float, time | not folded |\n|---|---|---|---|")
    for make in tasks.tasks():
        try:
            task = make()
        except (ValueError, FileNotFoundError):  # its wheel is not there
            continue
        if any(part in task.name for part in sys.argv[1:]):
            with tempfile.TemporaryDirectory() as folder:
                print("|", task.name, "|", " | ".join(compare(task, pathlib.Path(folder))), "|", flush=True)


if __name__ == "__main__":
    main()
