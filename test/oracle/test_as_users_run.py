"""Outputs at the levels of optimization that users choose, each in a process of its own. The graphs are made around what
ONNX Runtime has computed wrongly, refused or crashed on."""
import itertools
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import levels
from command import onnxquant
from runtime import REDUCED

value = helper.make_tensor_value_info
RNG = np.random.RandomState(7)


def stored(name, *shape, scale=0.1):
    return numpy_helper.from_array((RNG.randn(*shape) * scale).astype(np.float32), name)


def save(path, nodes, inputs, outputs, tensors, opset=17, functions=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, functions=list(functions))
    onnx.save(model, path)
    return path


def around(body, nodes, seen, tensors=()):
    """Nodes that compute "y" in a body; the body reads values of the main graph. seen is the value the body makes."""
    out = value(seen, T.FLOAT, None)
    if body == "if":
        other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [], [value("e", T.FLOAT, None)])
        return [helper.make_node("If", ["c"], ["y"], then_branch=helper.make_graph(nodes, "then", [], [out], list(tensors)), else_branch=other)]
    if body == "loop":
        inside = helper.make_graph(
            [*nodes, helper.make_node("Identity", ["go"], ["more"])], "body",
            [value("i", T.INT64, []), value("go", T.BOOL, []), value("carried", T.FLOAT, None)],
            [value("more", T.BOOL, []), out], list(tensors))
        return [helper.make_node("Loop", ["n", "c", "x"], ["y"], body=inside)]
    inside = helper.make_graph(nodes, "body", [value("row", T.FLOAT, None)], [out], list(tensors))
    return [helper.make_node("Scan", ["steps"], ["y"], body=inside, num_scan_inputs=1)]


def driven(body):
    """What the node with the body needs: inputs, tensors."""
    return {
        "if": ([value("c", T.BOOL, [])], []),
        "loop": ([value("c", T.BOOL, [])], [numpy_helper.from_array(np.array(2, np.int64), "n")]),
        "scan": ([], [stored("steps", 2, 4)]),
    }[body]


def right(source, out, bound):
    found = levels.errors(source, out)
    assert all(isinstance(e, float) and e <= bound for e in found.values()), found


def convert(tmp_path, *flags):
    out = tmp_path / "out.onnx"
    done = onnxquant("-q", *flags, tmp_path / "in.onnx", out)
    assert done.status == 0, done.stderr
    return out


BODIES = ("if", "loop", "scan")


@pytest.mark.parametrize("body, op, target", list(itertools.product(BODIES, ("Relu", "Clip"), ("portable", "ort", "qnn"))))
def test_captured(body, op, target, tmp_path):
    """A body reads what a Relu or Clip makes, and the codes end where it does."""
    bounds = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("lo", 0), ("hi", 1))]
    clip = helper.make_node(op, ["h", "lo", "hi"] if op == "Clip" else ["h"], ["r"])
    inputs, tensors = driven(body)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), clip, helper.make_node("MatMul", ["r", "v"], ["z"]),
             *around(body, [helper.make_node("Neg", ["r"], ["s"])], "s")]
    save(tmp_path / "in.onnx", nodes, [value("x", T.FLOAT, [4, 32]), *inputs], [value("z", T.FLOAT, [4, 16]), value("y", T.FLOAT, None)],
         [stored("w", 32, 32), stored("v", 32, 16), *tensors, *(bounds if op == "Clip" else [])])
    ranges = {"x": [-4, 4], "h": [-3, 3], "r": [0, 1 if op == "Clip" else 3], "z": [-3, 3], "y": [-3, 0]}
    (tmp_path / "ranges.json").write_text(json.dumps({"version": 1, "tensors": {n: {"min": lo, "max": hi} for n, (lo, hi) in ranges.items()}}))
    right(tmp_path / "in.onnx", convert(tmp_path, "--activations", "static", "--ranges", tmp_path / "ranges.json", "--target", target, *REDUCED), 0.1)


SMALL = {
    "float16 8": ["--float16", "-bits", "8"],
    "float16 4": ["--float16", "-bits", "4", "-block", "32"],
    "float16 4, zero points": ["--float16", "-bits", "4", "-block", "32", "--zero-point"],
    "scales of 16 bits": ["-bits", "4", "-block", "16", "--scale-type", "float16"],
    "scales of 8 bits": ["-bits", "4", "-block", "16", "--scale-type", "uint8", "--zero-point"],
}


@pytest.mark.parametrize("place, small, form", list(itertools.product(
    ("main", "if", "loop", "outside"), SMALL, (["--style", "nbits"], ["--target", "ort"]))))
def test_small_scales(place, small, form, tmp_path):
    """MatMulNBits whose scales are no float32 constants, in the main graph, in a body, and stored outside of it."""
    weights = [stored("w", 64, 64), stored("v", 64, 64)]
    product = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("MatMul", ["p", "v"], ["s"])]
    inputs, tensors = driven("loop" if place == "loop" else "if")
    nodes = [*product, helper.make_node("Identity", ["s"], ["y"])]
    if place != "main":
        nodes = around("loop" if place == "loop" else "if", product, "s", () if place == "outside" else weights)
    kept = weights if place in ("main", "outside") else []
    save(tmp_path / "in.onnx", nodes, [value("x", T.FLOAT, [4, 64]), *(inputs if place != "main" else [])],
         [value("y", T.FLOAT, [4, 64])], [*kept, *(tensors if place != "main" else [])])
    right(tmp_path / "in.onnx", convert(tmp_path, *SMALL[small], *form, "--ops", "all"), 0.05 if "8" in SMALL[small][-1] else 0.35)


@pytest.mark.parametrize("stack, kind", list(itertools.product(([1], [3], [1, 1], [2, 3]), ("int8", "uint8"))))
def test_stacks(stack, kind, tmp_path):
    """Dynamic activations, one scale per channel, weights of more than two axes."""
    save(tmp_path / "in.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", T.FLOAT, [*stack, 4, 32])],
         [value("y", T.FLOAT, [*stack, 4, 16])], [stored("w", *stack, 32, 16)])
    out = convert(tmp_path, "--activations", "dynamic", "--block", "-1", "--format", kind, *REDUCED)
    right(tmp_path / "in.onnx", out, 0.05)
    done = onnxquant("verify", tmp_path / "in.onnx", out)
    assert done.status == 0, done.stdout + done.stderr


@pytest.mark.parametrize("opset, beta", list(itertools.product((8, 9, 10, 11, 13), (1.0, 0.5))))
def test_gemm_of_old_opsets(opset, beta, tmp_path):
    """Static activations of a Gemm whose bias is multiplied."""
    save(tmp_path / "in.onnx", [helper.make_node("Gemm", ["x", "w", "b"], ["y"], beta=beta)], [value("x", T.FLOAT, [4, 32])],
         [value("y", T.FLOAT, [4, 16])], [stored("w", 32, 16), stored("b", 16)], opset)
    (tmp_path / "ranges.json").write_text(json.dumps({"version": 1, "tensors": {"x": {"min": -4, "max": 4}, "y": {"min": -3, "max": 3}}}))
    right(tmp_path / "in.onnx", convert(tmp_path, "--activations", "static", "--ranges", tmp_path / "ranges.json"), 0.1)


@pytest.mark.parametrize("known, perm, between", list(itertools.product((True, False), ([1, 2, 0], [1, 0, 2]), ((), ("Identity",), ("Identity", "Identity")))))
def test_transposes_of_half(known, perm, between, tmp_path):
    """A Transpose that moves the first axis behind others, in front of a MatMul."""
    last, nodes = "t", [helper.make_node("Transpose", ["x"], ["t"], perm=perm)]
    for op in between:
        nodes.append(helper.make_node(op, [last], [last + "i"]))
        last += "i"
    shape = [8, 4, 16] if known else ["a", "b", "c"]
    rows = {(1, 2, 0): 8, (1, 0, 2): 16}[tuple(perm)]
    nodes.append(helper.make_node("MatMul", [last, "w"], ["y"]))
    save(tmp_path / "in.onnx", nodes, [value("x", T.FLOAT, [8, 4, 16])] if known else [value("x", T.FLOAT, shape)],
         [value("y", T.FLOAT, None)], [stored("w", rows if known else 2, 16)])
    right(tmp_path / "in.onnx", convert(tmp_path, "--float16"), 0.01)


def half_nodes():
    x = [value("x", T.FLOAT, [1, 2, 3, 4])]
    scattered = [value("x", T.FLOAT, [4]), value("u", T.FLOAT, [2])]
    at = numpy_helper.from_array(np.array([[0], [1]]), "i")
    flat = numpy_helper.from_array(np.array([0, 1]), "i")
    e5m2 = helper.make_tensor("q", T.FLOAT8E5M2, [2], [49152.0, 1.0])
    for how in ("none", "add", "mul", "max", "min"):
        yield f"ScatterND {how}", [helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction=how)], scattered, [at], 18
        yield f"ScatterElements {how}", [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction=how)], scattered, [flat], 18
    yield "MeanVarianceNormalization", [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], x, [], 17
    yield "EyeLike of a mask", [helper.make_node("EyeLike", ["m"], ["h"], dtype=T.FLOAT), helper.make_node("Mul", ["x", "h"], ["y"])], [value("x", T.FLOAT, [4, 4]), value("m", T.INT64, [4, 4])], [], 17
    yield "EyeLike", [helper.make_node("EyeLike", ["x"], ["y"], dtype=T.FLOAT)], [value("x", T.INT64, [4, 4])], [], 17
    for codes in ("INT16", "UINT16"):
        scale = [numpy_helper.from_array(np.array(1e-4, np.float32), "s"), helper.make_tensor("z", getattr(T, codes), [], [100])]
        yield f"QuantizeLinear to {codes}", [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=T.FLOAT)], [value("x", T.FLOAT, [64])], scale, 21
        yield f"codes of {codes}", [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])], [value("x", T.FLOAT, [64])], scale, 21
    for op in ("RandomNormal", "RandomUniform"):
        yield op, [helper.make_node(op, [], ["h"], shape=[64], seed=1.0), helper.make_node("Mul", ["x", "h"], ["y"])], [value("x", T.FLOAT, [64])], [], 17
    length = numpy_helper.from_array(np.array(8), "n")
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield op, [helper.make_node(op, ["n"], ["h"]), helper.make_node("Mul", ["x", "h"], ["y"])], [value("x", T.FLOAT, [8])], [length], 17
    numbers = [numpy_helper.from_array(np.array(v, t), n) for n, v, t in (
        ("bins", 8, np.int64), ("size", 16, np.int64), ("rate", 8000, np.int64), ("low", 0, np.float32), ("high", 4000, np.float32))]
    mel = helper.make_node("MelWeightMatrix", ["bins", "size", "rate", "low", "high"], ["h"])
    yield "MelWeightMatrix", [mel, helper.make_node("MatMul", ["x", "h"], ["y"])], [value("x", T.FLOAT, [2, 9])], numbers, 17
    decode = [helper.make_node("DequantizeLinear", ["q", "two"], ["h"]), helper.make_node("Mul", ["x", "h"], ["p"]), helper.make_node("Mul", ["p", "tiny"], ["y"])]
    scales = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("two", 2), ("tiny", 1e-4))]
    yield "DequantizeLinear of FLOAT8E5M2", decode, [value("x", T.FLOAT, [2])], [e5m2, *scales], 19


HALF_NODES = {name: rest for name, *rest in half_nodes()}


@pytest.mark.parametrize("name", HALF_NODES)
def test_half_nodes(name, tmp_path):
    """Operators that have no float16 kernel, or overflow in float16."""
    nodes, inputs, tensors, opset = HALF_NODES[name]
    save(tmp_path / "in.onnx", nodes, inputs, [value("y", T.FLOAT, None)], tensors, opset)
    right(tmp_path / "in.onnx", convert(tmp_path, "--float16"), 0.001 if "INT16" in name else 0.01)


def test_half_of_experts(tmp_path):
    """ONNX Runtime 1.31 computes zeros with a MoE of float16 whose inputs are computed."""
    tensors = [stored("w", 4, 48, 32), stored("v", 4, 32, 48)]
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Neg", ["p"], ["r"]),
             helper.make_node("MoE", ["h", "r", "w", "", "v"], ["m"], domain="com.microsoft", k=2, activation_type="silu"), helper.make_node("Neg", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", T.FLOAT, [6, 32]), value("p", T.FLOAT, [6, 4])], [value("y", T.FLOAT, [6, 32])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), tmp_path / "in.onnx")
    for io in ("true", "false"):
        right(tmp_path / "in.onnx", convert(tmp_path, "--float16", f"--keep-io-types={io}"), 0.01)


def test_half_before_opset_6(tmp_path):
    """No runtime has the Cast of these opsets."""
    save(tmp_path / "in.onnx", [helper.make_node("Softsign", ["x"], ["y"])], [value("x", T.FLOAT, [2, 3])], [value("y", T.FLOAT, [2, 3])], [], 1)
    done = onnxquant("--float16", tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert done.status == 1 and "opset 1" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_half_without_opset(tmp_path):
    """A model that imports com.microsoft alone gets an opset, and Casts as this opset has them."""
    node = helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft")
    graph = helper.make_graph([node], "g", [value("x", T.FLOAT, [4, 32])], [value("y", T.FLOAT, [4, 16])], [stored("w", 32, 16)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=8), tmp_path / "in.onnx")
    out = convert(tmp_path, "--float16")
    onnx.checker.check_model(onnx.load(out))
    right(tmp_path / "in.onnx", out, 0.01)
