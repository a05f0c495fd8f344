"""Raises models with internal/opset, through test/oracle/opsetraise."""
import atexit
import functools
import json
import pathlib
import shutil
import subprocess
import tempfile

import onnx

from command import ROOT

OLDEST = 1
NEWEST = 28
RUNNABLE = 26  # the newest opset that ONNX Runtime loads


class Refused(Exception):
    pass


@functools.cache
def tool():
    folder = tempfile.mkdtemp(prefix="opsetraise")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    binary = pathlib.Path(folder, "opsetraise")
    subprocess.run(["go", "build", "-o", binary, "./test/oracle/opsetraise"], cwd=ROOT, check=True)
    return binary


@functools.cache
def table():
    """The steps of every operator: {operator: {version: whether it has an adapter}}."""
    steps = json.loads(subprocess.run([tool(), "table"], check=True, capture_output=True).stdout)
    operators = {}
    for s in steps:
        operators.setdefault(s["op"], {})[s["version"]] = s["adapted"]
    return operators


@functools.cache
def defaults():
    """The defaults of attributes: {operator: [NAME=VALUE]}."""
    found = json.loads(subprocess.run([tool(), "defaults"], check=True, capture_output=True).stdout)
    return {op: words.split() for op, words in found.items()}


def raised(model, to):
    """The model raised to an opset, or Refused."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "in.onnx"), pathlib.Path(folder, "out.onnx")
        onnx.save(model, source)
        p = subprocess.run([tool(), str(to), source, target], capture_output=True, text=True)
        if p.returncode:
            raise Refused(p.stderr.strip())
        return onnx.load(target)


def opset_of(imports):
    return max((i.version for i in imports if i.domain in ("", "ai.onnx")), default=None)
