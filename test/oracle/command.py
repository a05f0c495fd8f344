"""Runs the command under test."""
import os
import pathlib
import subprocess
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("ONNXQUANT", ROOT / "bin" / "onnxquant")).resolve()
CORPUS = pathlib.Path(os.environ.get("ONNXQUANT_CORPUS", ROOT / "build" / "corpus"))
TINYGPT = ROOT / "testmodels" / "tinygpt"
TINYDOC = ROOT / "testmodels" / "tinydoc"
SHARED = ROOT.parent / "shared"  # references that may lie beside the project


@dataclass
class Result:
    status: int
    stdout: str
    stderr: str


COMMANDS = {"analyze", "batch", "bench", "calibrate", "completion", "dequantize", "diff", "gguf", "help", "inspect", "report", "restyle", "tune", "verify", "version"}


def onnxquant(*args, timeout=60, folder=None, binary=BINARY):
    """Runs the command with args, in a folder, to its end. Models of the corpora have few weights, which a setting
    need not fit: conversions may fall back."""
    if not COMMANDS & set(map(str, args[:1])):
        args = ["--allow-fallback", *args]
    p = subprocess.run([binary, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, errors="replace", timeout=timeout, cwd=folder)
    return Result(p.returncode, p.stdout, p.stderr)
