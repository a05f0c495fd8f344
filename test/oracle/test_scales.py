"""Scales of other types than their weights: which forms runtimes take, and what the command makes of them."""
import json

import numpy as np
import onnx
import onnxruntime as ort
import openvino
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import decode
import fusion
from command import TINYGPT, onnxquant

K, N, BLOCK = 128, 96, 32


# Forms, made by hand: what runtimes do with them. The table is in docs/targets.md.

def scale_nodes(form, rng, turned):
    """The nodes and tensors that make the value s, and what it is."""
    scales = (rng.random((K // BLOCK, N)) / 50 + 1e-3).astype(np.float32)
    steps = np.rint(scales / scales.max() * 255).clip(1).astype(np.uint8)
    step = (scales.max() / 255).astype(np.float32)
    columns = (scales.max(0) / 255).astype(np.float32)
    half = scales.astype(np.float16)
    by_column = np.rint(scales / columns).clip(1, 255).astype(np.uint8)
    if turned:
        scales, steps, half, by_column = scales.T, steps.T, half.T, by_column.T
    spread = columns[:, None] if turned else columns
    cast = lambda i: helper.make_node("Cast", [i], ["s" if i == "half" else "plain"], to=T.FLOAT)
    mul = helper.make_node("Mul", ["plain", "step"], ["s"])
    match form:
        case "float32": return [], {"s": scales}, scales
        case "float16, output_dtype": return [], {"s": half}, half
        case "float16, Cast": return [cast("half")], {"half": half}, half
        case "uint8, Cast, Mul": return [cast("steps"), mul], {"steps": steps, "step": step}, steps * step
        case "uint8, Cast, Mul by column": return [cast("steps"), mul], {"steps": by_column, "step": spread}, by_column * spread
        case "uint8, DequantizeLinear":
            return [helper.make_node("DequantizeLinear", ["steps", "step"], ["s"])], {"steps": steps, "step": step}, steps * step
        case "uint8, DequantizeLinear by column":
            decoded = helper.make_node("DequantizeLinear", ["steps", "step"], ["s"], axis=0 if turned else 1)
            return [decoded], {"steps": by_column, "step": columns}, by_column * spread


def product(form, style):
    """A model of a product with a weight of 4 bits, and the weight."""
    rng = np.random.default_rng(3)
    nodes, tensors, scales = scale_nodes(form, rng, style == "nbits")
    q = rng.integers(-8, 8, (K, N))
    stored = [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in tensors.items()]
    scales = np.asarray(scales, np.float32)
    if style == "nbits":
        packed = np.ascontiguousarray((q + 8).astype(np.uint8).T).reshape(N, K // BLOCK, BLOCK)
        stored.append(numpy_helper.from_array(packed[..., ::2] | packed[..., 1::2] << 4, "q"))
        nodes.append(helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK))
        scales = scales.T
    else:
        stored.append(helper.make_tensor("q", T.INT4, q.shape, q.ravel().tolist()))
        attributes = {"output_dtype": T.FLOAT} if "output_dtype" in form else {}
        nodes += [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=BLOCK, **attributes),
                  helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, ["rows", K])],
                              [helper.make_tensor_value_info("y", T.FLOAT, ["rows", N])], stored)
    opsets = [helper.make_opsetid("", 23 if "output_dtype" in form else 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), q * np.repeat(scales, BLOCK, 0)


def openvino_keeps_codes(path, x, want):
    """Whether OpenVINO multiplies by the codes; its outputs must be right, too."""
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU")
    got = compiled([x])[0]
    assert np.abs(got - want).max() <= 2e-2 * np.abs(want).max()
    return any(str(o.get_output_element_type(0).get_type_name()) in ("i4", "u4") for o in compiled.get_runtime_model().get_ops())


# What ONNX Runtime has left of the operators, or the error it ends with.
FORMS = {
    "dq": {
        "float32": ["MatMulNBits"],
        "float16, Cast": ["MatMulNBits"],
        "uint8, Cast, Mul": ["MatMulNBits"],
        "uint8, Cast, Mul by column": ["MatMulNBits"],
        "float16, output_dtype": "MatMulNBits",
        "uint8, DequantizeLinear": ["DequantizeLinear", "DequantizeLinear", "MatMul"],
        "uint8, DequantizeLinear by column": ["DequantizeLinear", "DequantizeLinear", "MatMul"],
    },
    "nbits": {
        "float32": ["MatMulNBits"],
        "float16, Cast": ["MatMulNBits"],
        "uint8, Cast, Mul": ["MatMulNBits"],
        "uint8, Cast, Mul by column": ["MatMulNBits"],
        "uint8, DequantizeLinear": ["DequantizeLinear", "MatMulNBits"],
        "uint8, DequantizeLinear by column": ["DequantizeLinear", "MatMulNBits"],
    },
}


@pytest.mark.parametrize("style, form", [(s, f) for s, forms in FORMS.items() for f in forms])
def test_form(style, form, tmp_path):
    model, w = product(form, style)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(4).standard_normal((4, K)).astype(np.float32)
    want = x @ w
    if style == "dq":
        got = ReferenceEvaluator(model).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert openvino_keeps_codes(path, x, want)
    left = FORMS[style][form]
    hazards = [h["check"] for h in json.loads(onnxquant("inspect", "--json", path).stdout)["hazards"]]
    assert ("ort-mixed-types" in hazards) == isinstance(left, str)
    if isinstance(left, str):
        with pytest.raises(Exception, match=left):
            fusion.optimized(path, tmp_path)
        return
    assert [n.op_type for n in fusion.optimized(path, tmp_path).graph.node] == left
    got = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert np.abs(got - want).max() <= 2e-2 * np.abs(want).max()


# What the command writes.

def save(folder, *weights, op="MatMul", dtype=np.float32):
    """A model of products one behind another."""
    nodes, last = [], "x"
    for i in range(len(weights)):
        nodes.append(helper.make_node(op, [last, f"w{i}"], [f"y{i}"]))
        last = f"y{i}"
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", element, ["rows", weights[0].shape[0]])],
                              [helper.make_tensor_value_info(last, element, ["rows", weights[-1].shape[1]])],
                              [numpy_helper.from_array(w.astype(dtype), f"w{i}") for i, w in enumerate(weights)])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def convert(source, *args):
    out = source.with_name("out.onnx")
    r = onnxquant("--json", *args, source, out)
    assert r.status == 0, r.stderr
    return onnx.load(out), json.loads(r.stdout)


def tensors(model):
    return {t.name: t for t in model.graph.initializer}


def value(t):
    return decode.codes(t).astype(np.float64) if t.data_type in decode.INTEGERS else numpy_helper.to_array(t)


LIMITS = {"int4": (-8, 7), "uint4": (0, 15)}


def expected(w, kind, fmt):
    """Codes, stored scales, step and zero points of round to nearest, after the descriptions in docs/formats.md."""
    f = np.float32
    blocks = w.reshape(-1, BLOCK, w.shape[1])
    least, greatest = LIMITS[fmt]
    if fmt == "uint4":
        lo, hi = np.minimum(blocks.min(1), 0), np.maximum(blocks.max(1), 0)
        scales = (hi - lo) / f(15)
    else:
        scales = np.abs(blocks).max(1) / f(7)
    step = None
    if kind == "float16":
        stored = scales.astype(np.float16)
        scales = stored.astype(f)
    else:
        most = 127 if kind == "int8" else 255
        step = scales.max() / f(most)
        if f(most) * step > scales.max():
            step = np.nextafter(step, f(0))
        stored = np.rint(scales / step).clip(1, most)
        scales = stored.astype(f) * step
    zero = np.rint(-lo / scales).clip(0, 15) if fmt == "uint4" else np.zeros_like(scales)
    codes = (np.rint(blocks / scales[:, None]) + zero[:, None]).clip(least, greatest)
    return codes.reshape(w.shape), stored, step, zero


@pytest.mark.parametrize("fmt", LIMITS)
@pytest.mark.parametrize("kind", ["float16", "int8", "uint8"])
def test_golden(kind, fmt, tmp_path):
    w = np.random.default_rng(8).standard_normal((96, 40)).astype(np.float32) * np.linspace(0.5, 2, 40, dtype=np.float32)
    model, report = convert(save(tmp_path, np.vstack([w] * 4)), "--block", BLOCK, "--scale-type", kind, *(["--zero-point"] if fmt == "uint4" else []))
    onnx.checker.check_model(model, full_check=True)
    stored = tensors(model)
    codes, scales, step, zero = expected(np.vstack([w] * 4), kind, fmt)
    assert helper.tensor_dtype_to_np_dtype(stored["w0_scale"].data_type).name == kind
    np.testing.assert_array_equal(value(stored["w0_scale"]), scales)
    if step is not None:
        assert value(stored["w0_scale_2"]) == step
    np.testing.assert_array_equal(value(stored["w0" + ("_u4" if fmt == "uint4" else "_i4")]), codes)
    if fmt == "uint4":
        np.testing.assert_array_equal(value(stored["w0_zp"]), zero)
    bits = 4 + {"float16": 16, "int8": 8, "uint8": 8}[kind] / BLOCK + (4 / BLOCK if fmt == "uint4" else 0)
    assert report["plan"]["bits_per_weight"] == pytest.approx(bits, abs=0.01)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind, more", [
    ("float16", ""), ("float16", "--style nbits"), ("float16", "--algorithm best --zero-point"), ("float16", "--bits 8 --ops all"),
    ("int8", "--algorithm mse"), ("int8", "--algorithm best --style nbits"), ("int8", "--algorithm rtn-ort"),
    ("uint8", ""), ("uint8", "--style nbits --zero-point"), ("uint8", "--bits 2 --zero-point --ops all"),
])
def test_tinygpt(kind, more, tmp_path):
    """What is written means what dequantize says, in ONNX Runtime, too, which decodes nothing at each run; restyle keeps it."""
    out, plain, other = tmp_path / "out.onnx", tmp_path / "plain.onnx", tmp_path / "other.onnx"
    run = onnxquant
    r = run("--json", "--target", "ort", "--block", BLOCK, *more.split(), "--scale-type", kind, TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    plan = json.loads(r.stdout)["plan"]
    assert not [t["note"] for t in plan["tensors"] if "scales" in t.get("note", "").replace("make the scales float32 constants", "")]
    assert not fusion.decoded(fusion.optimized(out, tmp_path))
    weights = [w["scale"] for w in json.loads(run("inspect", "--json", out).stdout)["quantized"]]
    stored = tensors(onnx.load(out))
    assert weights and {helper.tensor_dtype_to_np_dtype(stored[s].data_type).name for s in weights} == {kind}
    assert run("dequantize", out, plain).status == 0
    ids = {"ids": np.arange(16, dtype=np.int64).reshape(1, 16)}
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    want = ort.InferenceSession(plain, options).run(None, ids)[0]
    if not any(n.domain == "com.microsoft" for n in onnx.load(out).graph.node):
        np.testing.assert_allclose(ort.InferenceSession(out, options).run(None, ids)[0], want, rtol=0, atol=1e-4 * np.abs(want).max())
    for style in ("nbits", "dq"):
        assert run("restyle", "--style", style, out, other).status == 0
        kept = [w["scale"] for w in json.loads(run("inspect", "--json", other).stdout)["quantized"]]
        stored = tensors(onnx.load(other))
        assert {helper.tensor_dtype_to_np_dtype(stored[s].data_type).name for s in kept} == {kind}
        assert run("dequantize", other, tmp_path / "again.onnx").status == 0
        a, b = tensors(onnx.load(plain)), tensors(onnx.load(tmp_path / "again.onnx"))
        for name in a.keys() & b.keys():
            x, y = numpy_helper.to_array(a[name]), numpy_helper.to_array(b[name])
            assert (x == (y if x.shape == y.shape else y.T)).all(), name


def note(report, name="w0"):
    return next(t.get("note", "") for t in report["plan"]["tensors"] if t["name"] == name)


@pytest.mark.parametrize("factor, kind, want", [
    (1e7, "float16", "scales of type float32, not float16: the largest is 6.55e+04"),
    (1e-6, "float16", "scales of type float32, not float16: the largest is"),
    (1, "float16", ""),
    (1e-30, "uint8", ""),
    (1e30, "uint8", ""),
])
def test_range(factor, kind, want, tmp_path):
    """Scales beyond the range of float16 stay float32; the others have a step of any size."""
    w = np.random.default_rng(2).standard_normal((256, 64)) * factor
    model, report = convert(save(tmp_path, w), "--block", BLOCK, "--scale-type", kind)
    assert want in note(report) and bool(want) == bool(note(report))
    stored = tensors(model)["w0_scale"]
    assert helper.tensor_dtype_to_np_dtype(stored.data_type).name == ("float32" if want else kind)


def test_different(tmp_path):
    """Scales that a step does not fit get float16."""
    w = np.random.default_rng(2).standard_normal((256, 64))
    w[3, 5] = 1000
    model, report = convert(save(tmp_path, w), "--block", BLOCK, "--scale-type", "uint8")
    assert "scales of type float16, not uint8: they are too different for 8 bits" in note(report)
    assert tensors(model)["w0_scale"].data_type == T.FLOAT16


def test_half(tmp_path):
    """Weights of type float16 keep scales of their own type."""
    w = np.random.default_rng(2).standard_normal((256, 64))
    model, report = convert(save(tmp_path, w, dtype=np.float16), "--scale-type", "uint8")
    assert "scales of type float16, as the weight" in note(report)
    assert tensors(model)["w0_scale"].data_type == T.FLOAT16


def test_per_weight(tmp_path):
    """precision_info sets the type for single weights."""
    rng = np.random.default_rng(2)
    source = save(tmp_path, *(rng.standard_normal((128, 128)) for _ in range(3)))
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"w0": {"scale_type": "float32"}, "w1": {"scale_type": "float16", "block": 16}}))
    model, _ = convert(source, "--scale-type", "uint8", "--block", BLOCK, "--precision-info", settings)
    types = [helper.tensor_dtype_to_np_dtype(tensors(model)[f"w{i}_scale"].data_type).name for i in range(3)]
    assert types == ["float32", "float16", "uint8"]


@pytest.mark.parametrize("args, message", [
    ("--scale-type uint8 --format nvfp4", "scale type uint8 is for integer formats, not for nvfp4"),
    ("--scale-type float16 --style qdq", "QuantizeLinear takes scales of the weight's type"),
    ("--scale-type float16 --target tensorrt", "target tensorrt takes no scales that nodes decode"),
    ("--scale-type uint8 --algorithm rtn-ort", "negative scales"),
    ("--scale-type float16 --activations dynamic", "dynamic activations have scales of type float32"),
    ("--scale-type float16 --zero-point --algorithm hqq", "algorithm hqq has the scales of ONNX Runtime's quantizer"),
    ("--scale-type float64", "float32, float16, int8 or uint8"),
])
def test_refused(args, message, tmp_path):
    r = onnxquant(*args.split(), TINYGPT / "model.onnx", tmp_path / "out.onnx")
    assert r.status == 2 and message in r.stderr, r.stderr


def test_analyze(tmp_path):
    """Scale types of candidates come into the mix."""
    source = save(tmp_path, np.random.default_rng(2).standard_normal((256, 256)))
    emitted = tmp_path / "mix.json"
    r = onnxquant("analyze", "--json", "--candidates", "int4:16,int4:16:uint8scale", "--max-size", 40000, "--emit", emitted, source)
    assert r.status == 0, r.stderr
    weight, = json.loads(r.stdout)["weights"]
    sizes = {c["candidate"]: c["bytes"] for c in weight["choices"]}
    assert sizes["int4:16"] == 256 * 256 * 6 / 8 and sizes["int4:16:uint8scale"] == 256 * 256 * 4.5 / 8 + 4
    assert weight["recommended"] == "int4:16:uint8scale"
    model, _ = convert(source, "--precision-info", emitted)
    assert tensors(model)["w0_scale"].data_type == T.UINT8
