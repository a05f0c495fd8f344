"""Compares the bytes of every output with checksums.txt: models of the corpus, tinygpt and tinydoc
under many settings. make checksums writes the file anew.

Settings with --calib are not among them: ONNX Runtime computes what they depend on, and its sums
depend on the processor and on its version. Ranges are made up for the same reason.

As a script it prints what differs. It needs Python and the corpus (make corpus), no packages:

    ONNXQUANT=path/to/onnxquant python3 test/oracle/checksums.py [--write]
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import struct
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from command import BINARY, CORPUS, TINYDOC, TINYGPT, onnxquant

STRUCTURES = CORPUS / "structures"
FILE = pathlib.Path(__file__).with_suffix(".txt")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # holds temporary files if there is one

INPUT = "the model itself"

# A setting is one command, or several where each reads what the one before it wrote.
CODES = ["-bits 4 -block 32", "-bits 8 -block -1", "-bits 4 -block 32 --zero-point"]
FORMS = ["", " --ops all", " --style nbits --ops all", " --style qdq", " --target ort --ops all", " --target openvino --ops all"]
SETTINGS = [INPUT] + [codes + form for form in FORMS for codes in CODES] + [
    "--bits 2 --block 16 --ops all",
    "--format nf4 --ops all",
    "--format mxfp4 --target ort --ops all",
    "--precision-info q4_k.json --ops all",
    "-bits 4 -block 32 --style nbits --ops all | restyle --style dq | dequantize",
    "-bits 4 -block 32 --ops all --external-data always | restyle --style nbits | dequantize --external-data always",
    "gguf --mix Q4_K_M",
    "-bits 4 -block 32 --ops all --conv-format int4",
    "--float16 -bits 4 -block 32 --ops all",
    "--activations dynamic --ops all",
    "-bits 4 -block 32 --ops all --algorithm best",
]

# Training gives weights that depend on the processor.
UNSTABLE = {"mlp_classifier"}

INTEGERS = ["int2", "uint2", "int4", "uint4", "int8", "uint8"]
FLOATS = ["fp8-e4m3", "fp8-e5m2", "nvfp4", "mxfp4", "mxfp8", "mxfp8-e5m2", "nf4", "fp4"]
ENCODINGS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"]
MIXES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4",
         "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"]
WIDE = "onnx::MatMul_489"
TINYGPT_SETTINGS = [
    INPUT,
    *(f"--format {f} --ops all" for f in INTEGERS + FLOATS + ENCODINGS),
    *(f"--format {f} --ops all --target ort" for f in FLOATS + ENCODINGS),
    *(f"--format {f} --ops all --target openvino" for f in FLOATS),
    *(f"--format {f} --ops all --target tensorrt" for f in ("fp8-e4m3", "nvfp4", "mxfp8", "mxfp4")),
    *(f"--format {f} --zero-point --style nbits" for f in ("int2", "int4", "int8")),
    *(f"--format {f} --block -1" for f in ("int4", "uint8", "fp8-e4m3")),
    *(f"--format {f} --style qdq" for f in ("uint4", "int8", "fp8-e4m3")),
    *(f"--format {f} --scale-rule {r}" for f, r in (("mxfp4", "ceil"), ("mxfp8", "ocp"))),
    "--block 32 --scale-type float16 --ops all", "--block 16 --scale-type int8 --algorithm mse", "--block 32 --scale-type uint8 --zero-point --style nbits --ops all",
    "--block 32 --scale-type uint8 --ops all | restyle --style nbits | dequantize",
    *(f"--bits {b} --block {n} --range {r}{z}" for b, n in ((2, 16), (4, 32), (8, 128)) for r in ("mse", "percentile:90") for z in ("", " --zero-point")),
    *(f"--format {f} --ops all --external-data always" for f in ("int4", "nvfp4", "q4_k")),
    *(f"--format {f} --imatrix imatrix.dat --include {WIDE}" for f in ENCODINGS if f != "q8_0"),
    "--precision-info mix.json",
    "--ops all --target tensorrt",
    *(f"--style nbits --ops all --bits {b} --block {n}{z}" for b in (2, 4, 8) for n in (32, 128) for z in ("", " --zero-point")),
    *(f"--style nbits --ops all --format {f} | restyle --style dq" for f in INTEGERS),
    *(f"--ops all --format {f} | restyle --style nbits" for f in INTEGERS),
    *(f"--ops all --format {f} | dequantize" for f in INTEGERS + FLOATS + ENCODINGS),
    *(f"--ops all --format {f} --target ort | dequantize" for f in FLOATS + ENCODINGS),
    "--external-data always | restyle --style nbits --external-data always | dequantize --external-data always",
    *(f"gguf --mix {m} | --exclude * --weights-from 1.gguf" for m in MIXES),
    *(f"gguf --mix {m} --pure | --weights-from 1.gguf --style nbits" for m in ("Q4_0", "Q8_0", "Q6_K")),
    *(f"gguf --mix {m} --imatrix imatrix.dat" for m in ("Q2_K", "Q4_K_M", "Q5_1")),
]

HALVES = [
    *(f"--{h}{more}" for h in ("float16", "bfloat16") for more in
      ("", " --bits 4 --block 32 --ops all", " --bits 8 --zero-point --target ort --ops all", " --format nvfp4", " --format q4_k", " --bits 4 --algorithm mse")),
    "--float16 --keep-io-types=false", "--float16 --clamp", "--float16 --float-ops Softmax,Add", "--float16 --bits 8 --target openvino --ops all",
    "--float16 --bits 4 --scale-type uint8 --block 16", "--float16 --bits 8 --style qdq | dequantize",
]
DYNAMIC = [
    *(f"--activations dynamic --ops all --format {f}{more}" for f in ("int8", "uint8") for more in ("", " --block -1", " --reduce-range")),
    "--activations dynamic --ops all | dequantize",
]
PRESETS = [f"--preset {p}" for p in ("genai", "openvino", "sherpa-onnx", "transformers.js")]
TINYGPT_SETTINGS += HALVES + DYNAMIC + PRESETS + ["--block 32 --algorithm best", "--auto 2MB"]
TINYDOC_SETTINGS = [
    INPUT,
    *HALVES, *DYNAMIC, *PRESETS, "--auto 400KB", "--auto 600KB --algorithm mse",
    *(f"--bits {b} --block {n} --algorithm {a}{z}" for a in ("mse", "best") for b, n in ((2, 16), (4, 32), (8, -1)) for z in ("", " --zero-point")),
    *(f"--format {f} --algorithm {a}" for a in ("mse", "best") for f in FLOATS),
    *(f"--format {f} --algorithm mse" for f in ENCODINGS),
    *(f"--block 32 --algorithm {a} --target ort" for a in ("rtn-ort", "rtn-ort --zero-point", "k_quant --zero-point", "hqq --zero-point")),
    *(f"--block 16 --scale-type {t} --bits {b}" for t in ("float16", "int8", "uint8") for b in (2, 4, 8)),
    *(f"--block 32 --scale-type {t} --algorithm best{z}" for t in ("float16", "int8", "uint8") for z in ("", " --zero-point")),
]

# With --activations static, for the models of the corpus that RANGES are of.
STATIC = [
    *(f"--activation-type {a} --format {w}" for a, w in (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("uint16", "int8"), ("int16", "int8"))),
    *(f"--target {t}" for t in ("tensorrt", "openvino", "qnn")),
    "--block -1", "--block -2", "--symmetric-activations", "--reduce-range", "--target qnn --activation-type uint16 --block -1", "--ops MatMul,Conv",
]


def ranges(names):
    """A file with a range for each of these values."""
    tensors = {n: {"min": -(i * 37 % 11) / 4, "max": 1 + i * 23 % 13} for i, n in enumerate(names.split())}
    return json.dumps({"version": 1, "tensors": tensors}).encode()


LAYER = "n_{0} qkv_{0} qb_{0} q_{0} k_{0} v_{0} qr_{0} qt_{0} kr_{0} kt_{0} vr_{0} vt_{0} s_{0} ss_{0} sm_{0} pr_{0} c_{0} ct_{0} cr_{0} at_{0} r1_{0} m_{0} u_{0} ub_{0} ge_{0} dn_{0} "
RANGES = {
    "conv_bn_net": ranges("x c b h p f y"),
    "transformer": ranges("e h0 h1 h2 nf tt logits " + LAYER.format(0) + LAYER.format(1)),
}


def imatrix(name, columns):
    """An importance matrix for one weight, in the older form."""
    values = [(i * 37 % 101) ** 2 / 16 for i in range(columns)]
    return struct.pack("<ii", 1, len(name)) + name.encode() + struct.pack(f"<ii{columns}f", 4, columns, *values)


# Files that settings name.
INPUTS = {
    "q4_k.json": b'{"*": {"format": "q4_k"}}',
    "imatrix.dat": imatrix(WIDE, 768),
    "mix.json": b'{"onnx::MatMul_4*": {"format": "nvfp4"}, "onnx::MatMul_473": 8, "onnx::MatMul_489": {"bits": 8, "block": -1},'
                b' "onnx::MatMul_54?": {"format": "float"}, "onnx::MatMul_506": {"format": "q4_k"}}',
    **{f"{case}.json": file for case, file in RANGES.items()},
}


def digest(files):
    h = hashlib.sha256()
    for path in sorted(files):
        h.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return h.hexdigest()[:16]


def error_line(stderr):
    """The first line that is no warning; temporary files have random names."""
    lines = [line for line in stderr.splitlines() if ": warning: " not in line]
    return re.sub(r"\.~\w+", ".~", "".join(lines[:1]))


def run(model, setting):
    """The digest of what a setting makes of a model; where it fails, the status and the
    digest of the error, and the error."""
    if setting == INPUT:
        return digest(p for p in model.parent.rglob("*") if p.suffix in (".onnx", ".bin", ".data")), ""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder, source = pathlib.Path(name), model
        for file, content in INPUTS.items():
            (folder / file).write_bytes(content)
        for n, command in enumerate(setting.split(" | "), 1):
            out = f"{n}.gguf" if command.startswith("gguf") else "models" if command.startswith("--preset") else f"{n}.onnx"
            plain = [] if command.startswith("gguf") else ["--no-provenance"]  # the version would change the bytes
            r = onnxquant(*shlex.split(command), *plain, "--quiet", source, out, folder=folder)
            if r.status:
                error = error_line(r.stderr.replace(str(model), "IN"))
                return f"exit{r.status}:{hashlib.sha256(error.encode()).hexdigest()[:10]}", error
            source = model if out.endswith(".gguf") else out
        return digest(p for p in folder.rglob("*") if p.is_file() and p.name not in INPUTS), ""


def rows():
    """The rows of checksums.txt: a name, its model, and the settings of its digests."""
    for case in sorted({p.parent.name for p in STRUCTURES.glob("*/model.onnx")} - UNSTABLE):
        yield case, STRUCTURES / case / "model.onnx", SETTINGS
    for setting in TINYGPT_SETTINGS:
        yield f"tinygpt {setting}", TINYGPT / "model.onnx", [setting]
    for setting in TINYDOC_SETTINGS:
        yield f"tinydoc {setting}", TINYDOC / "model.onnx", [setting]
    for case in RANGES:
        for setting in STATIC:
            yield f"{case} {setting}", STRUCTURES / case / "model.onnx", [f"--activations static --ranges {case}.json {setting}"]


def stored():
    """{name: digests}"""
    lines = (line.partition("  ") for line in FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: digests.split() for digests, _, name in lines}


def differences(row, want):
    """What differs from the digests that a row should have, in lines."""
    name, model, settings = row
    if len(want) != len(settings):
        return [f"{name}: {len(want)} digests for {len(settings)} settings: make checksums"]
    found = []
    for setting, digest in zip(settings, want):
        got, error = run(model, setting)
        if got != digest:
            found.append(f"{model.parent.name} {setting}: {got} {error}, want {digest}")
            if setting == INPUT:
                return [f"{found[0]}: not the model of {FILE.name}, so its outputs are not compared"]
    return found


def write(every):
    def line(row):
        name, model, settings = row
        return " ".join(run(model, setting)[0] for setting in settings) + "  " + name + "\n"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(line, every))
    comments = [f"# {n:2} {setting}\n" for n, setting in enumerate(SETTINGS, 1)]
    FILE.write_text("# Written by make checksums. Digests of each model of the corpus:\n" + "".join(comments + lines))


def compare(every):
    want = stored()
    names = [name for name, *_ in every]
    found = [f"{name}: {FILE.name} has it, the settings and the corpus have not" for name in want.keys() - set(names)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines in pool.map(lambda row: differences(row, want.get(row[0], [])), every):
            found += lines
    return found


def main():
    every = list(rows())
    if sys.argv[1:] == ["--write"]:
        write(every)
        return
    found = compare(every)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{BINARY}: {len(found)} of {sum(len(settings) for *_, settings in every)} outputs differ")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
