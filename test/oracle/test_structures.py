"""Every case of the structures corpus under several settings.

testmodels/corpus/README.md explains the cases and the fields of INDEX.json.
"""
import json
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graphs
import grid
import runtime
from command import CORPUS, onnxquant
from conversion import Conversion

FOLDER = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((FOLDER / "INDEX.json").read_text())}

class Setting(NamedTuple):
    args: list
    bound: float  # of the outputs' error relative to the float model's
    fused: bool = True  # whether ONNX Runtime may fuse what it decodes into what reads it


SETTINGS = {
    "int4-32": Setting(["-bits", "4", "-block", "32"], 0.50),
    "int8-channel": Setting(["-bits", "8", "-block", "-1"], 0.05),
    "zero-point": Setting(["-bits", "4", "-block", "32", "--zero-point"], 0.50),
    "all": Setting(["-bits", "4", "-block", "32", "--ops", "all", "--external-data", "always"], 0.50),
    "all-channel": Setting(["-bits", "8", "-block", "-1", "--ops", "all"], 0.05),
    "all-zero-point": Setting(["-bits", "4", "-block", "32", "--zero-point", "--ops", "all"], 0.50),
    # Two bits leave little of a model. Fused, ONNX Runtime 1.31 computes garbage where N is no multiple of 4.
    # The range of least error, their default, cuts values off.
    "int2-16": Setting(["-bits", "2", "-block", "16", "--range", "minmax"], np.inf, fused=False),
}

# What the runtime cannot run although it is right.
UNRUNNABLE = {("int2-16", "opset24"): "it has Swish of opset 24, but not in a model of opset 25"}


class Case(Conversion):
    def __init__(self, name, setting, folder):
        self.index = CASES[name]
        self.name, self.setting = name, setting
        super().__init__(FOLDER / name / "model.onnx", folder, SETTINGS[setting].args)

    def stored(self, kind):
        """The stored inputs or outputs."""
        files = (self.source.parent / "test_data_set_0").glob(f"{kind}_*.pb")
        files = sorted(files, key=lambda p: int(p.stem.split("_")[1]))
        return [numpy_helper.to_array(onnx.load_tensor(p)) for p in files]

    def stored_names(self):
        """The stored tensors by the names that INDEX.json has for them: the attributes that lead there in front."""
        return {"/".join([*(step[1] for step in path), name]): tensor
                for path, scope in self.pair.before.items() for name, tensor in scope.stored.items()}

    def quantized(self):
        """The names of the quantized weights, likewise."""
        ids = {id(w.original) for w in self.pair.weights}
        return {name for name, tensor in self.stored_names().items() if id(tensor) in ids}


PRODUCTS = [name for name, s in SETTINGS.items() if "--ops" not in s.args]


@pytest.fixture(scope="module", params=grid.pairs(CASES, PRODUCTS, [s for s in SETTINGS if s not in PRODUCTS]), ids=lambda p: f"{p[1]}-{p[0]}")
def case(request, tmp_path_factory):
    return Case(*request.param, tmp_path_factory.mktemp("case"))


def test_converts(case):
    case.check_converted()


# The checker refuses the original, but not what becomes of it.
REPAIRED = {"domain_ai_onnx"}


def test_is_valid(case):
    if case.index["checked"] == "none" and case.name not in REPAIRED:
        case.pair  # the checker refuses the original as well
    else:
        case.check_valid(full=case.index["checked"] == "full" or case.name in REPAIRED)


def test_loses_nothing(case):
    case.check_nothing_lost()


def test_weights(case):
    case.check_weights()


def test_runs(case):
    runner = case.index["runner"]
    if runner == "none":
        case.pair  # nothing runs the original
        return
    if (case.setting, case.name) in UNRUNNABLE:
        pytest.skip(UNRUNNABLE[case.setting, case.name])
    got = case.check_runs(case.stored("input"), runner, SETTINGS[case.setting].fused)
    error = runtime.relative_error(got, case.stored("output"))
    assert error <= bound(case), f"outputs are {error:.3f} from the float model's"


# What stands between weights and outputs may make more of an error than it was.
MAGNIFIES = {
    "deep_graph": "a hundred products in a row",
    "many_tiny": "three hundred products in a row",
    "up_scan_op8": "a recurrence",
    "up_hardmax_op11": "a small change of the input flips the output",
}


def bound(case):
    return np.inf if case.name in MAGNIFIES else SETTINGS[case.setting].bound


def operands(args):
    """The operator inputs whose weights these settings select; those that pass a weight on count too."""
    taken = {"MatMul:0", "MatMul:1", "Gemm:0", "Gemm:1", "local.lin:1", "local.outer:1"}
    taken |= {op + ":0" for op in ("Transpose", "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")}
    if "--ops" in args:
        taken |= {"Gather:0", "GatherND:0", "Conv:1", "ConvTranspose:1", "Einsum:0", "Einsum:1"}
        taken |= {f"{op}:{i}" for op in ("LSTM", "GRU", "RNN") for i in (1, 2)}
        taken |= {"com.microsoft." + o for o in (
            "Attention:1", "EmbedLayerNormalization:2", "EmbedLayerNormalization:3", "EmbedLayerNormalization:4", "FusedConv:1",
            "FusedGemm:1", "FusedMatMul:0", "FusedMatMul:1", "TransposeMatMul:1", "MoE:2", "MoE:4")}
    return taken


def replaceable(index):
    """The initializers that are inputs with a default: from IR 5 on, unless all are."""
    graph = onnx.load(FOLDER / index["case"] / "model.onnx", load_external_data=False).graph
    inputs = {v.name for v in graph.input}
    return inputs if index["ir"] > 4 and any(t.name not in inputs for t in graph.initializer) else set()


# Why a weight that INDEX.json wants quantized is float all the same.
EXCEPT = {
    "read by another operator or input": lambda w, index, args: {c.removeprefix("ai.onnx.") for c in w["consumers"]} - operands(args),
    "so small that its node takes more room than it gains": lambda w, index, args: index["case"] == "many_tiny",
    "a graph input, whose value callers may replace": lambda w, index, args: w["name"] in replaceable(index),
}


def check_taken(index, args, quantized):
    """want of each weight: quantize (but EXCEPT), keep, or either."""
    for w in index["weights"]:
        if w["want"] == "keep":
            assert w["name"] not in quantized, f"{w['name']!r} was to stay as it is"
        elif w["want"] == "quantize" and w["name"] not in quantized:
            assert any(holds(w, index, args) for holds in EXCEPT.values()), f"{w['name']!r} was not quantized"
    if index["expect"] == "skip":
        assert not quantized, "there is nothing to quantize here"


def test_takes_what_it_should(case):
    check_taken(case.index, case.args, case.quantized())


# Settings whose models test_styles runs. What they take, the report tells.
STYLES = [[f"--style nbits {setting}{ops}" for setting in ("-bits 4 -block 32", "--bits 8 --block -1", "-bits 4 -block 32 --zero-point")]
          for ops in ("", " --ops all")]


@pytest.mark.parametrize("name, args", grid.pairs(CASES, *STYLES))
def test_style_takes_what_it_should(name, args, tmp_path):
    r = onnxquant(*args.split(), "--json", FOLDER / name / "model.onnx", tmp_path / "out.onnx")
    assert r.status == 0, r.stderr
    ledger = json.loads(r.stdout)["plan"]["tensors"]
    check_taken(CASES[name], args.split(), {t["name"] for t in ledger if t["decision"] == "quantize"})


# Weights that turn out to have no codes when their values are read: not finite, or too small for a scale.
FOUND_OUT = {"val_nan", "val_inf", "val_denormal", "val_min_denormal"}
FLOATS = {"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"}


def test_plan_is_exact(case):
    """--dry-run accounts for every float tensor and says beforehand what the conversion did."""
    quantized, stored = case.quantized(), case.stored_names()
    r = onnxquant(*case.args, "--no-provenance", "--dry-run", "--json", case.source, case.path)
    assert r.status == 0, r.stderr
    plan = json.loads(r.stdout)
    tensors = {t["name"]: t for t in plan["tensors"]}
    for w in case.index["weights"]:
        if w["dtype"] in FLOATS and w["shape"] and w["name"] in stored:
            assert w["name"] in tensors, f"{w['name']!r} is not accounted for"
    assert all(t["decision"] == "quantize" or t["reason"] for t in tensors.values())

    planned = {name for name, t in tensors.items() if t["decision"] == "quantize"}
    if case.name in FOUND_OUT:
        assert planned and not quantized
        return
    assert planned == quantized
    assert plan["out_bytes"] == sum(p.stat().st_size for p in case.path.parent.iterdir())
    assert (plan["opset_after"], plan["ir_after"]) == (graphs.opset(case.pair.converted), case.pair.converted.ir_version)
