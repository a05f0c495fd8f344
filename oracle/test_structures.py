"""Every case of the structures corpus under several settings.

testmodels/corpus/README.md explains the cases and the fields of INDEX.json.
"""
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import runtime
from command import CORPUS
from conversion import Conversion

FOLDER = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((FOLDER / "INDEX.json").read_text())}

# Settings, and the error that outputs may have relative to the float model's.
SETTINGS = {
    "int4-32": (["-bits", "4", "-block", "32"], 0.30),
    "int8-channel": (["-bits", "8", "-block", "-1"], 0.03),
    "zero-point": (["-bits", "4", "-block", "32", "--zero-point"], 0.30),
    "gather": (["-bits", "4", "-block", "32", "--ops", "MatMul,Gemm,Gather", "--external-data", "always"], 0.30),
}


class Case(Conversion):
    def __init__(self, name, setting, folder):
        self.index = CASES[name]
        self.setting, self.bound = setting, SETTINGS[setting][1]
        super().__init__(FOLDER / name / "model.onnx", folder, SETTINGS[setting][0])

    def stored(self, kind):
        """The stored inputs or outputs."""
        files = (self.source.parent / "test_data_set_0").glob(f"{kind}_*.pb")
        files = sorted(files, key=lambda p: int(p.stem.split("_")[1]))
        return [numpy_helper.to_array(onnx.load_tensor(p)) for p in files]


@pytest.fixture(scope="module", params=[(c, s) for s in SETTINGS for c in CASES], ids=lambda p: f"{p[1]}-{p[0]}")
def case(request, tmp_path_factory):
    return Case(*request.param, tmp_path_factory.mktemp("case"))


def test_converts(case):
    case.check_converted()


def test_is_valid(case):
    if case.index["checked"] == "none":
        case.pair  # the checker refuses the original as well
    else:
        case.check_valid(full=case.index["checked"] == "full")


def test_loses_nothing(case):
    case.check_nothing_lost()


def test_weights(case):
    case.check_weights()


def test_runs(case):
    runner = case.index["runner"]
    if runner == "none":
        case.pair  # nothing runs the original
        return
    got = case.check_runs(case.stored("input"), runner)
    error = runtime.relative_error(got, case.stored("output"))
    assert error <= bound(case), f"outputs are {error:.3f} from the float model's"


# What stands between weights and outputs may make more of an error than it was.
MAGNIFIES = {
    "deep_graph": "a hundred products in a row",
    "many_tiny": "three hundred products in a row",
    "up_hardmax_op11": "a small change of the input flips the output",
    "val_min_denormal": "runtimes flush denormals to zero",
}


def bound(case):
    return np.inf if case.index["case"] in MAGNIFIES else case.bound


# Why a weight that INDEX.json wants quantized may still be float: what the
# converter does not find yet. An entry goes when its kind of weight is found.
LATER = {
    "in a Constant node": lambda w, ops: w["kind"] == "constant",
    "in the graph of a branch or loop": lambda w, ops: w["inner"],
    "read in the graph of a branch or loop only": lambda w, ops: not w["inner"] and not w["main"],
    "read by another operator or input only": lambda w, ops: w["main"] and not w["main"] & ops,
}


def operands(args):
    """The operator inputs that hold weights under these settings."""
    ops = args[args.index("--ops") + 1].split(",") if "--ops" in args else ["MatMul", "Gemm"]
    return {f"{op}:{0 if op == 'Gather' else 1}" for op in ops}


def rows(case):
    """The weights of INDEX.json, with what tells where they stand."""
    graph = case.pair.original.graph
    initializers = {t.name for t in graph.initializer}
    readers = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            domain = "" if node.domain == "ai.onnx" else node.domain
            readers.setdefault(name, set()).add(f"{domain and domain + '.'}{node.op_type}:{i}")
    for w in case.index["weights"]:
        yield {**w, "inner": w["name"] not in initializers, "main": readers.get(w["name"], set())}


def test_takes_what_it_should(case):
    """want of each weight: quantize (unless LATER), keep, or either."""
    ops = operands(case.args)
    stored = case.pair.before[()].stored
    main = {w.name for w in case.pair.weights if w.name in stored and w.original is stored[w.name]}
    for w in rows(case):
        if w["want"] == "keep":
            assert w["name"] not in main, f"{w['name']!r} was to stay as it is"
        elif w["want"] == "quantize" and w["name"] not in main:
            assert any(holds(w, ops) for holds in LATER.values()), f"{w['name']!r} was not quantized"
    if case.index["expect"] == "skip":
        assert not case.pair.weights, "there is nothing to quantize here"
