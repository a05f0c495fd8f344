"""What --tune gains, and what it takes: KL divergence and processor time of tinygpt, its mix of 4.5 bits, and a text recognizer in 4 bits.

    make tune-scales                  all of them, in about half an hour of processor time
    make tune-scales CASES=mix        some, by parts of their names

docs/log/calibration.md has the figures.
"""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

import ocr
from command import TINYGPT
from divergence import divergence

IDS = TINYGPT / "calib_ids.npz"
BITS_5 = "--format", "int4", "--block", 32
OWN = "--calib", "self", "--samples", 512
RECOGNIZER = "--bits", 4, "--block", 32, "--ops", "all", "--conv-format", "int4"

# The model, and flags. The mix has 4.5 bits for each of the 1.79 million weights of matrices.
CASES = {
    "gptq": ("tinygpt", *BITS_5, "--algorithm", "gptq", "--calib", IDS),
    "best": ("tinygpt", *BITS_5, "--algorithm", "best", "--calib", IDS),
    "gptq, own samples": ("tinygpt", *BITS_5, "--algorithm", "gptq", *OWN),
    "best, own samples": ("tinygpt", *BITS_5, "--algorithm", "best", *OWN),
    "mix of 4.5 bits": ("tinygpt", "--auto", 1355616, "--calib", IDS),
    "recognizer, gptq": ("recognizer", *RECOGNIZER, "--algorithm", "gptq"),
    "recognizer, best": ("recognizer", *RECOGNIZER, "--algorithm", "best"),
}


def recognizer_divergence(path):
    """The mean of columns of lines that were not calibrated with."""
    columns = []
    for want, got in zip(ocr.outputs(ocr.MODEL), ocr.outputs(path), strict=True):
        p, q = (np.maximum(x.astype(np.float64), 1e-30) for x in (want, got))
        columns.append((p * np.log(p / q)).sum(-1))
    return np.concatenate(columns).mean()


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parts = sys.argv[1:]
    print("| | KL | processor time | with --tune | processor time |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder, "lines.npz")
        np.savez(lines, x=np.concatenate([ocr.drawn(text, 320) for text in ocr.other_lines()]))
        for name, (model, *flags) in CASES.items():
            if parts and not any(part in name for part in parts):
                continue
            source, loss = (TINYGPT / "model.onnx", divergence) if model == "tinygpt" else (ocr.MODEL, recognizer_divergence)
            row = [name]
            for more in ([], ["--tune"]):
                out, before = pathlib.Path(folder, "out.onnx"), processor_time()
                data = ["--calib", lines] if model == "recognizer" else []
                subprocess.run([os.environ["ONNXQUANT"], "--quiet", *map(str, [*flags, *data, *more, source, out])], check=True)
                row += [f"{loss(out):.3g}", f"{processor_time() - before:.0f} s"]
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
