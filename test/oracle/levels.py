"""Runs a model and its float model in ONNX Runtime at the levels of optimization that users choose. Each run has a process
of its own, for some models end the process that loads them. A server, started once, forks these processes.

    python test/oracle/levels.py FLOAT MODEL
"""
import atexit
import json
import os
import select
import signal
import subprocess
import sys

import numpy as np
import onnxruntime as ort

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
SECONDS = 60  # that a run may take


def session(path, level):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feed(inputs):
    """Inputs of a session: normal floats, true, ones."""
    rng = np.random.RandomState(3)
    types = {"float": np.float32, "float16": np.float16, "bool": np.bool_, "int64": np.int64, "int32": np.int32}
    made = {}
    for i in inputs:
        dims, kind = [d if isinstance(d, int) else 2 for d in i.shape], types[i.type[7:-1]]
        made[i.name] = rng.randn(*dims).astype(kind) if kind in (np.float32, np.float16) else np.ones(dims, kind)
    return made


def outputs(path, level, values):
    s = session(path, level)
    halves = {i.name for i in s.get_inputs() if i.type == "tensor(float16)"}
    return s.run(None, {name: v.astype(np.float16) if name in halves else v for name, v in values.items()})


def compare(source, path, level):
    """The relative error of the worst float output."""
    values = feed(session(source, "ORT_ENABLE_ALL").get_inputs())
    want, got = outputs(source, "ORT_ENABLE_ALL", values), outputs(path, level, values)
    errors = [0.0]
    for w, g in zip(want, got, strict=True):
        w, g = w.astype(np.float64), g.astype(np.float64)
        if w.shape != g.shape:
            raise ValueError(f"shape {g.shape}, want {w.shape}")
        errors.append(float(np.linalg.norm(w - g) / max(np.linalg.norm(w), 1e-12)))
    return max(errors) if all(map(np.isfinite, errors)) else "an output that is not finite"


def isolated(source, path, level):
    """The error, or a text where the model does not load or run."""
    result, out = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = compare(source, path, level)
        except BaseException as e:
            found = " ".join(str(e).split())[:200]
        os.write(out, json.dumps(found).encode())
        os._exit(0)
    os.close(out)
    ready, _, _ = select.select([result], [], [], SECONDS)
    if not ready:
        os.kill(child, signal.SIGKILL)
    text = os.read(result, 1 << 16) if ready else b""
    os.close(result)
    _, status = os.waitpid(child, 0)
    if not ready:
        return f"no result after {SECONDS} s"
    return json.loads(text) if text else f"signal {os.WTERMSIG(status)}"


def serve():
    ort.set_default_logger_severity(4)
    for line in sys.stdin:
        source, path, levels = json.loads(line)
        print(json.dumps({level: isolated(source, path, level) for level in levels}), flush=True)


SERVER = []


def errors(source, path, levels=LEVELS):
    """The error at each level; a text where the model does not load or run."""
    if not SERVER:
        SERVER.append(subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        atexit.register(SERVER[0].stdin.close)
    server = SERVER[0]
    print(json.dumps([str(source), str(path), list(levels)]), file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else print(errors(*sys.argv[1:]))
