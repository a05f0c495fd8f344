"""The same bytes on every run, at every number of threads, and without assembly."""
import itertools
import subprocess

import pytest

import grid
from command import BINARY, CORPUS, ROOT, TINYGPT, onnxquant

STRUCTURES = CORPUS / "structures"
MODELS = {
    "tinygpt": TINYGPT / "model.onnx",
    **{c: STRUCTURES / c / "model.onnx" for c in ("transformer", "many_tiny", "ext_many_files", "opset07", "val_nan")},
}
SETTINGS = {
    "default": [],
    "zero-point": ["--bits", "8", "--block", "16", "--zero-point"],
    "mse": ["--block", "32", "--algorithm", "mse"],
    "best": ["--block", "32", "--algorithm", "best", "--target", "ort"],
    "external": ["--bits", "4", "--block", "32", "--ops", "all", "--external-data", "always"],
}


@pytest.mark.parametrize("model, setting", grid.pairs(MODELS, SETTINGS))
def test_same_bytes(model, setting, tmp_path):
    def files(run, *args):
        folder = tmp_path / run
        folder.mkdir()
        r = onnxquant(*SETTINGS[setting], *args, MODELS[model], folder / "out.onnx")
        assert r.status == 0, r.stderr
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    first = files("first")
    assert "out.onnx" in first
    for threads in ("1", "2", "3", "8"):
        assert files("threads" + threads, "--threads", threads) == first, f"{threads} threads"
    assert files("second") == first, "another run"


# Each case of the corpus has one of these, tinygpt all.
FORMATS = [
    "--ops all", "--bits 4 --block 32 --zero-point", "--format nvfp4", "--bits 8 --block -1", "--format mxfp8", "--format nf4",
    "--bits 2 --block 16 --range mse", "--format fp8-e4m3", "--format mxfp4", "--style nbits --block 32", "--format fp8-e5m2", "--format fp4",
    "--block 32 --algorithm mse", "--block 32 --algorithm best", "--block 32 --zero-point --algorithm k_quant", "--bits 8 --style nbits --algorithm rtn-ort",
    "--block 32 --zero-point --style nbits --algorithm hqq",
]
CASES = sorted(p.parent.name for p in STRUCTURES.glob("*/model.onnx"))


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """The command without assembly."""
    path = tmp_path_factory.mktemp("plain") / BINARY.name
    subprocess.run(["go", "build", "-trimpath", "-tags", "purego", "-o", path, "./cmd/onnxquant"], cwd=ROOT, check=True)
    return path


def both(plain, tmp_path, *args):
    """What the command with assembly and the one without write, or say."""
    for binary in (BINARY, plain):
        folder = tmp_path / binary.parent.name
        folder.mkdir()
        p = subprocess.run([binary, *args, folder / "out"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        yield p.returncode, p.stderr.replace(bytes(folder), b""), {q.name: q.read_bytes() for q in folder.iterdir()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case, args", list(zip(CASES, itertools.cycle(FORMATS))))
def test_corpus_without_assembly(case, args, plain, tmp_path):
    with_assembly, without = both(plain, tmp_path, "--quiet", *args.split(), STRUCTURES / case / "model.onnx")
    assert with_assembly == without


@pytest.mark.sampled(3)
@pytest.mark.parametrize("args", [*FORMATS, *(f"gguf --mix {mix}" for mix in ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K_M", "Q4_K_M", "Q6_K"))])
def test_tinygpt_without_assembly(args, plain, tmp_path):
    with_assembly, without = both(plain, tmp_path, *args.split(), "--quiet", TINYGPT / "model.onnx")
    status, _, files = with_assembly
    assert status == 0 and files
    assert with_assembly == without
