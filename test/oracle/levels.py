"""Runs a model and its float model in ONNX Runtime at one level of optimization, and prints the relative error of the
worst float output. A process of its own: some models end the process that loads them.

    python test/oracle/levels.py FLOAT MODEL LEVEL
"""
import subprocess
import sys

import numpy as np
import onnxruntime as ort

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")


def session(path, level):
    options = ort.SessionOptions()
    options.log_severity_level = 4
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


def main():
    source, path, level = sys.argv[1:]
    float_session = session(source, "ORT_ENABLE_ALL")
    values = feed(float_session.get_inputs())
    want, got = float_session.run(None, values), session(path, level).run(None, values)
    errors = [0.0]
    for w, g in zip(want, got, strict=True):
        w, g = w.astype(np.float64), g.astype(np.float64)
        errors.append(np.linalg.norm(w - g) / max(np.linalg.norm(w), 1e-12))
    print(max(errors))


def errors(source, path):
    """The error at each level; a text where the model does not load or run."""
    found = {}
    for level in LEVELS:
        p = subprocess.run([sys.executable, __file__, str(source), str(path), level], capture_output=True, text=True)
        if p.returncode:
            found[level] = f"signal {-p.returncode}" if p.returncode < 0 else p.stderr.strip().splitlines()[-1][:200]
        else:
            found[level] = float(p.stdout)
    return found


if __name__ == "__main__":
    main()
