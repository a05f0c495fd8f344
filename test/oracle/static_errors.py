"""Errors of the outputs of a model on held-out inputs, quantized by `--activations static --calib` and by quantize_static."""
import contextlib
import io
import pathlib
import tempfile
import warnings

import numpy as np
import onnxruntime

import static_peers
from command import onnxquant

SETTINGS = ["static minmax tensor", "static minmax channel", "static percentile channel", "static entropy channel"]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def outputs(path, feeds):
    """By output: the values of all feeds in a row."""
    s = session(path)
    runs = [s.run([o.name for o in s.get_outputs() if o.type.startswith("tensor")], f) for f in feeds]
    return [np.concatenate([np.ravel(v) for v in values]) for values in zip(*runs)]


def error(want, got):
    """‖y − ŷ‖ / ‖y‖; the root of the mean square over the float outputs."""
    squares = [np.sum((g.astype(np.float64) - w) ** 2) / max(np.sum(w.astype(np.float64) ** 2), 1e-300) for w, g in zip(want, got, strict=True) if w.dtype.kind == "f" and w.size]
    return float(np.sqrt(np.mean(squares)))


def compare(model, samples, held_out, flags=()):
    """(error of ours, errors of quantize_static by setting). What does not run has an infinite one, and ours raises."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        out, data = folder / "out.onnx", folder / "samples"
        data.mkdir()
        for i, sample in enumerate(samples):
            np.savez(data / f"{i:03}.npz", **sample)
        want = outputs(model, held_out)
        done = onnxquant("--quiet", "--activations", "static", "--calib", data, *flags, model, out, timeout=600)
        if done.status:
            raise RuntimeError(done.stderr.strip()[:300])
        theirs = {}
        for setting in SETTINGS:
            other = folder / f"{setting.replace(' ', '_')}.onnx"
            try:
                with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    static_peers.SETTINGS[setting][1](model, data, other)
                theirs[setting] = error(want, outputs(other, held_out))
            except Exception:  # entropy takes no mask of -1e9, per channel not each shape
                theirs[setting] = float("inf")
        return error(want, outputs(out, held_out)), theirs
