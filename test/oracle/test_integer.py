"""verify, dequantize and inspect with the models of ONNX Runtime's quantize_dynamic and quantize_static."""
import json
import logging
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import integer
from command import BINARY, CORPUS, onnxquant
from runtime import SATURATES

logging.disable(logging.WARNING)

FEEDS = {
    "ids": np.arange(12, dtype=np.int64).reshape(6, 2) % 20,
    "image": np.random.default_rng(5).standard_normal((2, 8, 8, 8)).astype(np.float32),
    "words": np.arange(12, dtype=np.int32).reshape(2, 6) % 20,
}


def verify(*args):
    p = subprocess.run([BINARY, "verify", "--json", "--engine", "none", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.stderr == "", p.stderr
    return json.loads(p.stdout)


def run(path, feed, fused=True):
    options = onnxruntime.SessionOptions()
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def close(got, want, cosine):
    assert np.vdot(got, want) > cosine * np.linalg.norm(got) * np.linalg.norm(want)


def stored(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def check(folder, forms, feed, cosine=0.999):
    """Checks float.onnx and its quantized.onnx, with a number of weights of each form."""
    plain, quantized, back = (str(folder / f"{name}.onnx") for name in ("float", "quantized", "back"))
    report = verify(plain, quantized)
    assert report["structure"]["problems"] == [] and report["passed"]
    found = [w["form"] for w in report["weights"]]
    assert {f: found.count(f) for f in found} == forms
    assert all(w["sqnr_db"] > 30 for w in report["weights"])

    listed = json.loads(onnxquant("inspect", "--json", quantized).stdout)["quantized"]
    assert all("obstacle" not in w and w["scale"] for w in listed), listed

    assert onnxquant("dequantize", "--quiet", quantized, back).status == 0
    onnx.checker.check_model(onnx.load(back))
    operators = {n.op_type for n in onnx.load(back).graph.node}
    assert not any("Quantize" in op or op.startswith("Q") or op.endswith("Integer") for op in operators), operators
    want = run(plain, feed)
    close(run(back, feed), want, cosine)
    close(run(quantized, feed), want, cosine - 0.01)
    return back


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_quantize_dynamic(tmp_path, kind, per_channel):
    onnx.save(integer.speech(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "quantized.onnx", weight_type=kind, per_channel=per_channel)
    forms = {"DequantizeLinear": 1, "MatMulInteger": 3, "DynamicQuantizeLSTM": 2, "ConvInteger": 2}
    back = stored(check(tmp_path, forms, {"ids": FEEDS["ids"]}))
    codes = stored(tmp_path / "quantized.onnx")
    for name in ("m1", "m2", "cw2"):
        q, scale, zero = (codes[f"{name}_{part}"] for part in ("quantized", "scale", "zero_point"))
        want = (q.astype(np.float32) - zero.astype(np.float32)) * scale
        np.testing.assert_array_equal(back[name], want)


def test_attention(tmp_path):
    onnx.save(integer.attention(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "quantized.onnx", weight_type=QuantType.QInt8,
                     op_types_to_quantize=["Attention", "EmbedLayerNormalization"])
    forms = {"QEmbedLayerNormalization": 5, "QAttention": 1}
    check(tmp_path, forms, {"ids": FEEDS["words"], "segments": FEEDS["words"] % 2}, 0.99)


def test_as_onnx_runtime_fuses_it(tmp_path):
    """DynamicQuantizeMatMul and what else ONNX Runtime makes when it loads a model."""
    onnx.save(integer.speech(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "plain.onnx", weight_type=QuantType.QInt8,
                     op_types_to_quantize=["MatMul"])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "quantized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(tmp_path / "plain.onnx", options, providers=["CPUExecutionProvider"])
    assert "DynamicQuantizeMatMul" in {n.op_type for n in onnx.load(tmp_path / "quantized.onnx").graph.node}
    assert onnxquant("dequantize", "--quiet", tmp_path / "quantized.onnx", tmp_path / "back.onnx").status == 0
    close(run(tmp_path / "back.onnx", {"ids": FEEDS["ids"]}), run(tmp_path / "float.onnx", {"ids": FEEDS["ids"]}), 0.999)
    assert onnxquant("--quiet", "--float16", tmp_path / "quantized.onnx", tmp_path / "half.onnx").status == 0
    assert verify(tmp_path / "float.onnx", tmp_path / "half.onnx")["passed"]


class Reader(CalibrationDataReader):
    def __init__(self):
        self.batches = iter([{"x": FEEDS["image"] * scale} for scale in (1, 0.5, 1.5)])

    def get_next(self):
        return next(self.batches, None)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_quantize_static(tmp_path, kind, per_channel):
    onnx.save(integer.image(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "quantized.onnx", Reader(), quant_format=QuantFormat.QOperator,
                    per_channel=per_channel, activation_type=kind)
    check(tmp_path, {"QLinearConv": 3, "QGemm": 2, "QLinearMatMul": 1}, {"x": FEEDS["image"]})


def test_a_changed_clip_fails(tmp_path):
    """quantize_static drops a Clip whose bounds the codes have. Other bounds are another model."""
    m = integer.image()
    onnx.save(m, tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "quantized.onnx", Reader(), quant_format=QuantFormat.QOperator)
    next(t for t in m.graph.initializer if t.name == "high").CopyFrom(numpy_helper.from_array(np.float32(0.4), "high"))
    onnx.save(m, tmp_path / "other.onnx")
    assert verify(tmp_path / "float.onnx", tmp_path / "quantized.onnx")["passed"]
    assert not verify(tmp_path / "other.onnx", tmp_path / "quantized.onnx")["passed"]


def scale_of_another_weight(g):
    node = next(n for n in g.node if n.op_type == "Mul" and "m1_scale" in n.input)
    node.input[list(node.input).index("m1_scale")] = "m2_scale"


def zero_point_of_another_weight(g):
    node = next(n for n in g.node if n.op_type == "MatMulInteger" and "gw_quantized" in n.input)
    node.input[3] = "emb_zero_point"


def scale_of_another_activation(g):
    node = next(n for n in g.node if n.op_type == "Mul" and "u_scale" in n.input)
    node.input[list(node.input).index("u_scale")] = "f_scale"


def no_zero_point(g):
    node = next(n for n in g.node if n.op_type == "ConvInteger")
    node.input[2] = ""


def a_scale_less(g):
    node = next(n for n in g.node if n.op_type == "Mul" and n.output[0] == "a")
    node.op_type, node.input[:] = "Identity", [node.input[0]]


def weights_swapped(g):
    a, b = (next(n for n in g.node if n.op_type == "MatMulInteger" and w in n.input) for w in ("m1_quantized", "m2_quantized"))
    a.input[1], b.input[1] = b.input[1], a.input[1]


def another_bias(g):
    node = next(n for n in g.node if n.op_type == "Reshape" and n.input[0] == "cb")
    g.initializer.append(numpy_helper.from_array(np.ones(32, np.float32), "ones"))
    node.input[0] = "ones"


def weights_of_the_lstm_swapped(g):
    node = next(n for n in g.node if n.op_type == "DynamicQuantizeLSTM")
    node.input[8], node.input[10] = node.input[10], node.input[8]


def another_operand(g):
    node = next(n for n in g.node if n.op_type == "DynamicQuantizeLinear" and n.input[0] == "u")
    g.node.insert(list(g.node).index(node), helper.make_node("Neg", ["u"], ["minus"]))
    node.input[0] = "minus"


@pytest.mark.parametrize("change", [
    scale_of_another_weight, zero_point_of_another_weight, scale_of_another_activation, no_zero_point, a_scale_less, weights_swapped,
    another_bias, weights_of_the_lstm_swapped, another_operand], ids=lambda f: f.__name__)
def test_a_changed_model_fails(tmp_path, change):
    plain, quantized = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(integer.speech(), plain)
    quantize_dynamic(plain, quantized, weight_type=QuantType.QUInt8)
    m = onnx.load(quantized)
    change(m.graph)
    onnx.save(m, quantized)
    report = verify(plain, quantized)
    problems = report["structure"]["problems"]
    weak = [w for w in (report["weights"]) if w["sqnr_db"] < 25]
    assert problems or weak or not report["passed"]


@pytest.mark.parametrize("half", ["--float16", "--bfloat16"])
def test_half(tmp_path, half):
    """Casts come before the quantization of activations and behind the scales, not between."""
    plain, quantized, halved = (tmp_path / f"{name}.onnx" for name in ("float", "quantized", "half"))
    onnx.save(integer.speech(), plain)
    quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8)
    assert onnxquant("--quiet", half, quantized, halved).status == 0
    report = verify(plain, halved)
    assert report["structure"]["problems"] == [] and report["passed"]
    assert sorted(w["form"] for w in report["weights"]) == ["ConvInteger"] * 2 + ["DequantizeLinear"] + ["DynamicQuantizeLSTM"] * 2 + ["MatMulInteger"] * 3
    assert verify(quantized, halved)["passed"]

    m = onnx.load(halved)
    weights_swapped(m.graph)
    onnx.save(m, halved)
    assert not verify(quantized, halved)["passed"]


def scale_of_another_activation_of_half(g):
    a, b = [n for n in g.node if n.op_type == "QuantizeLinear"][2:4]
    a.input[1] = b.input[1]


def codes_for_negative_numbers(g):
    """They do not do what the Relu did."""
    next(t for t in g.initializer if t.name == "r_zero_point").CopyFrom(numpy_helper.from_array(np.int8(0), "r_zero_point"))


def another_pool(g):
    node = next(n for n in g.node if n.op_type == "MaxPool")
    node.op_type = "AveragePool"


@pytest.mark.parametrize("half", [["--float16"], ["--float16", "--keep-io-types=false"], ["--bfloat16"]], ids=" ".join)
@pytest.mark.parametrize("opset", [13, 19])
def test_half_static(tmp_path, opset, half):
    """Before opset 19 codes are made of float32 alone: Casts are around each pair."""
    plain, quantized, halved = (tmp_path / f"{name}.onnx" for name in ("float", "quantized", "half"))
    m = integer.image()
    m.opset_import[0].version = opset
    onnx.save(m, plain)
    quantize_static(plain, quantized, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QInt8)
    assert onnxquant("--quiet", *half, quantized, halved).status == 0
    for path in plain, quantized:
        report = verify(path, halved)
        assert report["passed"], report["failures"]
    assert report["structure"]["half"] == half[0][2:]
    for change in scale_of_another_activation_of_half, codes_for_negative_numbers, another_pool:
        m = onnx.load(halved)
        change(m.graph)
        onnx.save(m, tmp_path / "changed.onnx")
        assert not verify(plain, tmp_path / "changed.onnx")["passed"], change.__name__


def scale_of_another_code(g):
    node = next(n for n in g.node if n.op_type == "QLinearMatMul")
    node.input[1] = node.input[6]


def weight_scale_larger(g):
    scale = next(t for t in g.initializer if t.name == "mw_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.5), "mw_scale"))


def another_zero_point(g):
    """Of the input's codes, which QuantizeLinear makes: QLinearConv keeps its own."""
    g.initializer.append(numpy_helper.from_array(np.int8(7), "seven"))
    next(n for n in g.node if n.op_type == "QuantizeLinear").input[2] = "seven"


def decoded_twice_as_large(g):
    g.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
    next(n for n in g.node if n.op_type == "DequantizeLinear").input[1] = "two"


@pytest.mark.parametrize("half", [["--float16"], ["--float16", "--keep-io-types=false"], ["--bfloat16"]], ids=" ".join)
@pytest.mark.parametrize("opset", [13, 19, 21])
def test_half_operators_on_codes(tmp_path, opset, half):
    """Their scales stay float32, and so do QuantizeLinear and DequantizeLinear, which take half from opset 19 on:
    codes are what they were."""
    plain, quantized, halved = (tmp_path / f"{name}.onnx" for name in ("float", "quantized", "half"))
    m = integer.image()
    m.opset_import[0].version = opset
    onnx.save(m, plain)
    quantize_static(plain, quantized, Reader(), quant_format=QuantFormat.QOperator, activation_type=QuantType.QInt8)
    assert onnxquant("--quiet", *half, quantized, halved).status == 0
    onnx.checker.check_model(onnx.load(halved))
    for path in plain, quantized:
        report = verify(path, halved)
        assert report["passed"], report["failures"]
    image = FEEDS["image"].astype(np.float16)
    want = run(quantized, {"x": image.astype(np.float32)})
    got = run(halved, {"x": image if "--keep-io-types=false" in half else image.astype(np.float32)})
    np.testing.assert_array_equal(got, want.astype(got.dtype))
    for change in scale_of_another_code, weight_scale_larger, another_zero_point, decoded_twice_as_large:
        m = onnx.load(halved)
        change(m.graph)
        onnx.save(m, tmp_path / "changed.onnx")
        assert not verify(quantized, tmp_path / "changed.onnx")["passed"], change.__name__


def test_half_attention(tmp_path):
    """QAttention takes half, but the scale of its codes is float32."""
    plain, quantized, halved = (tmp_path / f"{name}.onnx" for name in ("float", "quantized", "half"))
    onnx.save(integer.attention(), plain)
    quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8, op_types_to_quantize=["Attention", "EmbedLayerNormalization"])
    assert onnxquant("--quiet", "--float16", quantized, halved).status == 0
    for path in plain, quantized:
        report = verify(path, halved)
        assert report["passed"], report["failures"]
    feed = {"ids": FEEDS["words"], "segments": FEEDS["words"] % 2}
    np.testing.assert_array_equal(run(halved, feed), run(quantized, feed))
    m = onnx.load(halved)
    node = next(n for n in m.graph.node if n.op_type == "QAttention")
    node.input[3] = node.input[4]  # the scale of the weight
    onnx.save(m, halved)
    assert not verify(quantized, halved)["passed"]


def test_sums_beyond_float16(tmp_path):
    """A sum of products of codes is far larger than the value that it stands for. ONNX Runtime drops the Casts
    to float16 on a CPU, onnx does not."""
    draw = np.random.default_rng(6)
    w = numpy_helper.from_array(draw.uniform(0.5, 1, (256, 8)).astype(np.float32) / 256, "w")
    x = {"x": draw.uniform(0.5, 1, (2, 256)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(integer.model(nodes, {"x": (1, ["b", 256])}, {"y": (1, ["b", 8])}, [w]), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "quantized.onnx")
    assert onnxquant("--quiet", "--float16", tmp_path / "quantized.onnx", tmp_path / "half.onnx").status == 0
    [y] = ReferenceEvaluator(str(tmp_path / "half.onnx")).run(None, x)
    np.testing.assert_allclose(y, run(tmp_path / "float.onnx", x), rtol=0.01)


@pytest.mark.parametrize("name, operators", [("quant_dynamic", ["MatMul"]), ("quant_qlinear", ["Clip", "MatMul", "Clip"])])
def test_corpus(tmp_path, name, operators):
    """The models of the corpus, whose scales are multiplied one after the other."""
    path = next(CORPUS.rglob(f"{name}/model.onnx"), None) or pytest.skip("not in the corpus")
    assert onnxquant("dequantize", "--quiet", path, tmp_path / "back.onnx").status == 0
    assert [n.op_type for n in onnx.load(tmp_path / "back.onnx").graph.node if n.op_type != "Constant"] == operators


def bounded(kind, source):
    """A Relu or a Clip between an operator and a Conv. What quantizes drops it: the codes end where it does."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], "conv", kernel_shape=[3, 3]) if source == "Conv" else
        helper.make_node("Sub", ["x", "k"], ["c"], "sub"),
        helper.make_node("Relu", ["c"], ["r"], "relu") if kind == "Relu" else helper.make_node("Clip", ["c", "low", "high"], ["r"], "clip"),
        helper.make_node("Conv", ["r", "w1"], ["y"], "last", kernel_shape=[3, 3]),
    ]
    low, high = {"Relu": (0, 0), "Clip to 0 … 0.5": (0, 0.5), "Clip to -0.3 … 0.3": (-0.3, 0.3), "Clip to -1 … 0": (-1, 0)}[kind]
    tensors = integer.weights(1, w0=(8, 8, 3, 3), w1=(4, 8, 3, 3), k=(8, 1, 1))
    tensors += [numpy_helper.from_array(np.float32(v), name) for name, v in (("low", low), ("high", high))]
    read = {name for n in nodes for name in n.input}
    return integer.model(nodes, {"x": (1, ["b", 8, 8, 8])}, {"y": (1, ["b", 4, "h", "w"])}, [t for t in tensors if t.name in read])


@pytest.mark.parametrize("optimized", [False, True], ids=["", "optimized"])
@pytest.mark.parametrize("form", [QuantFormat.QOperator, QuantFormat.QDQ], ids=lambda f: f.name)
@pytest.mark.parametrize("codes", [QuantType.QInt8, QuantType.QUInt8], ids=lambda c: c.name)
@pytest.mark.parametrize("source", ["Conv", "Sub"])
@pytest.mark.parametrize("kind", ["Relu", "Clip to 0 … 0.5", "Clip to -0.3 … 0.3", "Clip to -1 … 0"])
def test_codes_end_where_a_clip_did(tmp_path, kind, source, codes, form, optimized):
    plain, quantized, back = (str(tmp_path / f"{name}.onnx") for name in ("float", "quantized", "back"))
    onnx.save(bounded(kind, source), plain)
    quantize_static(plain, quantized, Reader(), quant_format=form, activation_type=codes)
    if optimized:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = quantized = str(tmp_path / "optimized.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(tmp_path / "quantized.onnx", options, providers=["CPUExecutionProvider"])
    assert onnxquant("dequantize", "--quiet", quantized, back).status == 0
    onnx.checker.check_model(onnx.load(back), full_check=True)
    feed = {"x": FEEDS["image"]}
    fused = not SATURATES
    for other in plain, quantized:
        close(run(back, feed, fused), run(other, feed, fused), 0.998)
    if form == QuantFormat.QOperator:
        assert verify(plain, quantized)["passed"]
