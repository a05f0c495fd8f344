"""Random models around what ONNX Runtime computes wrongly (placed.py), in settings of each kind, at three levels of optimization.

A setting meets one model of the sample; test-long has more seeds for each.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

import levels
import placed
from command import onnxquant
from runtime import REDUCED

# A setting and how far outputs may be from the float model's: codes of 4 bits in a chain of up to nine layers, 8 bits, float16.
FOUR, EIGHT, HALF = 0.75, 0.12, 0.02
ALL = ["--ops", "all"]
DYNAMIC = ["--activations", "dynamic", *REDUCED, *ALL]
SETTINGS = {
    "4": (["-bits", "4", "-block", "32"], FOUR),
    "8": (["-bits", "8", *ALL], EIGHT),
    "qdq": (["-bits", "8", "--style", "qdq", *ALL], EIGHT),
    "nbits": (["-bits", "4", "-block", "32", "--style", "nbits", *ALL], FOUR),
    "zero points": (["-bits", "8", "-block", "32", "--style", "nbits", "--zero-point", *ALL], EIGHT),
    "ort": (["-bits", "8", "--target", "ort", *ALL], EIGHT),
    "ort-web": (["-bits", "4", "-block", "32", "--target", "ort-web", *ALL], FOUR),
    "float16": (["--float16"], HALF),
    "float16 io": (["--float16", "--keep-io-types=false"], HALF),
    "float16 8": (["--float16", "-bits", "8", *ALL], EIGHT),
    "float16 qdq": (["--float16", "-bits", "8", "--style", "qdq", *ALL], EIGHT),
    "float16 nbits": (["--float16", "-bits", "8", "-block", "32", "--style", "nbits", *ALL], EIGHT),
    "float16 ort": (["--float16", "-bits", "8", "--target", "ort", *ALL], EIGHT),
    "float16 ort 4": (["--float16", "-bits", "4", "-block", "32", "--target", "ort", *ALL], FOUR),
    "float16 scales": (["-bits", "8", "-block", "32", "--scale-type", "float16", "--target", "ort", *ALL], EIGHT),
    "uint8 scales": (["-bits", "4", "-block", "16", "--scale-type", "uint8", "--style", "nbits", *ALL], FOUR),
    "dynamic": (DYNAMIC, 0.25),
    "dynamic, per channel": ([*DYNAMIC, "--block", "-1"], 0.25),
    "dynamic ort": ([*DYNAMIC, "--target", "ort"], 0.25),
    "static": (["--activations", "static", *REDUCED, *ALL], 0.35),
    "static ort": (["--activations", "static", *REDUCED, "--target", "ort", *ALL], 0.35),
    "static qnn": (["--activations", "static", "--target", "qnn", *ALL], 0.35),
}
RESTYLED = {"nbits": [], "nbits of float16": ["--float16"], "dq of float16": ["--float16", "--style", "nbits"]}
SEEDS = 40


@pytest.fixture
def model(tmp_path):
    def make(seed):
        onnx.save(placed.Model(seed).make(), tmp_path / "in.onnx")
        return tmp_path / "in.onnx"
    return make


def ranges(source, folder):
    """Ranges of the values in the main graph, of the inputs that levels.py takes. In a process of its own, as all runs."""
    p = subprocess.run([sys.executable, __file__, source, folder / "ranges.json"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    return folder / "ranges.json"


def measure(source, out):
    m = onnx.load(source)
    names = [i.name for i in m.graph.input if i.name != "c"] + [o for n in m.graph.node for o in n.output]
    del m.graph.output[:]
    m.graph.output.extend(onnx.helper.make_value_info(n, onnx.TypeProto()) for n in names if n not in {i.name for i in m.graph.input})
    s = levels.session(m.SerializeToString(), "ORT_DISABLE_ALL")
    values = levels.feed(s.get_inputs())
    found = dict(zip((o.name for o in s.get_outputs()), s.run(None, values), strict=True)) | values
    found = {n: v for n, v in found.items() if v.dtype == np.float32}
    out.write_text(json.dumps({"version": 1, "tensors": {n: {"min": float(v.min()), "max": float(v.max())} for n, v in found.items()}}))


def check(source, out, bound, done):
    assert done.status == 0, done.stderr
    onnx.checker.check_model(out)
    found = levels.errors(source, out)
    assert all(isinstance(e, float) and e <= bound for e in found.values()), found


@pytest.mark.sampled(SEEDS)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("setting", SETTINGS)
def test_converted(setting, seed, model, tmp_path):
    source, out = model(seed), tmp_path / "out.onnx"
    flags, bound = SETTINGS[setting]
    given = ["--ranges", ranges(source, tmp_path)] if "static" in flags else []
    check(source, out, bound, onnxquant("-q", *flags, *given, source, out))


@pytest.mark.sampled(SEEDS)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("form", RESTYLED)
def test_restyled(form, seed, model, tmp_path):
    source, between, out = model(seed), tmp_path / "between.onnx", tmp_path / "out.onnx"
    done = onnxquant("-q", "-bits", "8", "-block", "32", *RESTYLED[form], *ALL, source, between)
    assert done.status == 0, done.stderr
    check(source, out, EIGHT, onnxquant("restyle", "-q", "--style", form.split()[0], between, out))


if __name__ == "__main__":
    import pathlib
    measure(sys.argv[1], pathlib.Path(sys.argv[2]))
