"""Measures what onnxquant writes, and keeps results in build/accuracy: what has not changed is not measured again."""
import functools
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

import onnxruntime as ort

import models
import ocr
import runtime
from command import BINARY

CACHE = models.BUILD / "cache"
measuring = True  # else results that are not kept are Missing


class Missing(Exception):
    pass


@dataclass(frozen=True)
class Result:
    size: int  # bytes of the file
    bits: float  # of the quantized weights, with all that decodes them
    score: models.Score


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else str(part).encode())
        h.update(b"\0")
    return h.hexdigest()[:32]


@functools.cache
def file_digest(path):
    return digest(pathlib.Path(path).read_bytes())


@functools.cache
def scoring():
    """What a score depends on, besides the model."""
    return digest(ort.__version__, *(file_digest(m.__file__) for m in (models, ocr, runtime)))


def kept(key, make):
    """The result of make, or what it was when it was last called for this key."""
    path = CACHE / f"{key}.json"
    if path.exists():
        return json.loads(path.read_text())
    if not measuring:
        raise Missing
    made = make()
    CACHE.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made))
    return made


def library():
    return sorted((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))[-1]


def run(*args):
    p = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"accuracy: onnxquant {' '.join(map(str, args))}: {p.stderr}")
    return p.stdout


@functools.cache
def weights(model):
    """(elements, bytes) of the weights that are quantized by default."""
    plan = json.loads(run("--dry-run", "--json", "--format", "int8", "--target", "ort", model.path, "out.onnx"))
    chosen = [t for t in plan["tensors"] if t["decision"] == "quantize"]
    total = sum(t["bytes"] for t in chosen)
    return total // 4, total


def bits(model, path):
    """Bits per weight of a quantized form of a model: what is stored beyond the tensors that are no such weights."""
    elements, total = weights(model)
    return 8 * (models.stored(path) - (models.stored(model.path) - total)) / elements


def score(model, path):
    key = digest("score", model.name, file_digest(model.path), digest(path.read_bytes()), scoring())
    return models.Score(**kept(key, lambda: asdict(model.score(path))))


def with_data(model, data):
    if not data:
        return []
    return ["--calib", "self" if data == "self" else model.calibration, "--ort-lib", library()]


def result(model, key, make):
    """The result for the file that make(path) writes."""
    def measured():
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.onnx"
            make(out)
            s = score(model, out)
            return {"size": out.stat().st_size, "bits": bits(model, out), "score": asdict(s)}
    made = kept(digest("result", model.name, key, scoring()), measured)
    return Result(made["size"], made["bits"], models.Score(**made["score"]))


def source(model, data):
    return digest(file_digest(BINARY), file_digest(model.path), file_digest(model.calibration) if data == "text" else data)


def converted(model, args, data=""):
    flags = ["--format", *args.split(), "--target", "ort"]
    key = digest(source(model, data), *flags)
    return result(model, key, lambda out: run("--quiet", *flags, *with_data(model, data), model.path, out))


def mixed(model, mix, size, *flags):
    """A mix of formats of at most so many bytes."""
    data = "text" if mix.data else ""
    flags = ["--quiet", "--target", "ort", *flags]

    def make(out):
        given = with_data(model, data)
        if mix.algorithm == "best" or not mix.data:
            run("--auto", size, "--algorithm", mix.algorithm, *flags, *given, model.path, out)
            return
        chosen = out.with_name("mix.json")
        run("analyze", "--max-size", size, *flags, *given, "--emit", chosen, model.path)
        run("--precision-info", chosen, *flags, model.path, out)
    return result(model, digest(source(model, data), mix, size, *flags), make)
