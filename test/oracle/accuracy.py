"""Writes the tables of accuracies into docs/formats.md, encodings.md and algorithms.md: make accuracy.

Arguments, if any, are the names of the documents to write, such as encodings.
"""
import json
import math
import pathlib
import sys
import tempfile

from command import ROOT, TINYGPT, onnxquant
from divergence import divergence

BEGIN, END = "<!-- accuracy: written by make accuracy -->\n", "<!-- end of accuracy -->\n"

SETTINGS = [
    "int8", "int8 --block -1", "int8 --zero-point", "uint8", "fp8-e4m3", "fp8-e4m3 --block -1", "fp8-e5m2",
    "mxfp8", "mxfp8 --scale-rule ocp", "mxfp8-e5m2",
    "int4", "int4 --range mse", "int4 --block 32", "int4 --block 32 --range mse", "int4 --block -1", "int4 --block -1 --range mse",
    "int4 --zero-point", "int4 --block 32 --zero-point", "int4 --block 32 --zero-point --range mse", "uint4",
    "int4 --block 32 --scale-type float16", "int4 --block 32 --scale-type uint8", "int4 --block 16 --scale-type uint8",
    "int4 --block 32 --zero-point --scale-type uint8",
    "nvfp4", "mxfp4", "mxfp4 --scale-rule ceil", "nf4", "fp4",
    "int2", "int2 --block 16", "int2 --block 16 --zero-point", "int2 --block 16 --zero-point --range mse", "uint2",
]
ENCODINGS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]
ALGORITHMS = [
    "int4 --block 32", "int4 --block 32 --algorithm rtn-ort", "int4 --block 32 --algorithm mse",
    "int4 --block 32 --zero-point", "int4 --block 32 --zero-point --algorithm rtn-ort",
    "int4 --block 32 --zero-point --algorithm k_quant", "int4 --block 32 --zero-point --algorithm mse",
    "int4 --block 32 --zero-point --algorithm hqq", "int4 --block 32 --zero-point --algorithm hqq --style nbits",
    "int4 --block 32 --algorithm best", "int4 --block 32 --zero-point --algorithm best",
    "int4 --block 32 --algorithm best --scale-type float16", "int4 --block 32 --algorithm best --scale-type int8",
    "int4 --block 16 --algorithm best --scale-type int8", "int4 --block 32 --zero-point --algorithm best --scale-type uint8",
    "int4 --algorithm mse", "int4 --block -1 --algorithm mse",
    "int4 --block 16 --algorithm best",
    "int2 --block 16 --algorithm mse", "int2 --block 16 --zero-point --algorithm mse",
    "int2 --block 16 --algorithm best", "int2 --block 16 --zero-point --algorithm best",
]
TABLES = {"formats": SETTINGS, "encodings": ENCODINGS, "algorithms": ALGORITHMS}


def document(name):
    return ROOT / "docs" / f"{name}.md"


def setting(args):
    return f"`{args}`"


def convert(args, out, *more):
    r = onnxquant("--format", *args.split(), "--target", "ort", "--json", *more, TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    return json.loads(r.stdout)


def bits_per_weight(args):
    """Of codes, scales and zero points, over the weights that are quantized."""
    plan = convert(args, "out.onnx", "--dry-run")
    tensors = [t for t in plan["tensors"] if t["decision"] == "quantize"]
    return 8 * sum(t["out_bytes"] for t in tensors) / sum(math.prod(t["shape"]) for t in tensors)


def measure(args):
    """The KL divergence, and the signal-to-noise ratio of all weights together in dB."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.onnx"
        tensors = convert(args, out)["quantized"]
        noise = signal = 0.0
        for t in tensors:
            squares = t["mse"] * math.prod(t["shape"])
            noise += squares
            signal += squares * 10 ** (t["sqnr_db"] / 10)
        return divergence(out), 10 * math.log10(signal / noise)


def written(name):
    """The rows of the table as it stands in a document."""
    _, _, rest = document(name).read_text().partition(BEGIN)
    lines = rest.partition(END)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def write(name, settings):
    before, begin, rest = document(name).read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{document(name)} has no place for the table"
    table = ["| `--format` | bits per weight | KL divergence | SQNR of the weights, dB |", "|---|---|---|---|"]
    for args in settings:
        kl, sqnr = measure(args)
        table.append(f"| {setting(args)} | {bits_per_weight(args):.3f} | {kl:.5f} | {sqnr:.1f} |")
        print(table[-1], flush=True)
    document(name).write_text(before + begin + "\n".join(table) + "\n" + end + after)


def main():
    for name in sys.argv[1:] or TABLES:
        write(name, TABLES[name])


if __name__ == "__main__":
    main()
