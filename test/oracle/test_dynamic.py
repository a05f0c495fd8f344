"""--activations dynamic against ONNX Runtime's quantize_dynamic: the same initializers, bit-equal outputs."""
import itertools
import json
import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import integer
from command import SHARED, onnxquant
from runtime import SATURATES

logging.disable(logging.WARNING)

ALL = ["MatMul", "Gemm", "Conv", "LSTM", "Gather", "Attention"]
KINDS = {QuantType.QInt8: "int8", QuantType.QUInt8: "uint8"}
GRID = list(itertools.product(KINDS, (False, True), (False, True)))


def session(path, optimized=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, feed):
    return session(path).run(None, feed)


def stored(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def convert(source, target, kind, per_channel, reduce_range, ops, *flags):
    flags = ["--quiet", "--activations", "dynamic", "--format", KINDS[kind], "--ops", ",".join(ops), *flags]
    flags += ["--block=-1"] if per_channel else ["--block=-2"] if "Conv" in ops else []
    flags += ["--reduce-range"] if reduce_range else []
    done = onnxquant(*flags, source, target)
    assert done.status == 0, done.stderr


def same_weights(ours, theirs):
    """Checks that each quantized initializer of theirs is in ours, and the other way round. Returns how many."""
    mine, peer = stored(ours), stored(theirs)
    found = set()
    for name, codes in peer.items():
        base = name.removesuffix("_quantized").removesuffix("_transposed")
        if name == base or f"{base}_zero_point" not in peer:
            continue
        have = mine.get(f"{base}_i8", mine.get(f"{base}_u8"))
        assert have is not None, base
        assert have.dtype == codes.dtype and have.shape == codes.shape
        np.testing.assert_array_equal(have, codes)
        scale = peer[f"{base}_scale"]
        assert mine[f"{base}_scale"].tobytes() == scale.tobytes() and mine[f"{base}_scale"].shape == scale.shape
        np.testing.assert_array_equal(mine[f"{base}_zp"], peer[f"{base}_zero_point"])
        found.add(base)
    assert found == {name[:-3] for name in mine if name.endswith(("_i8", "_u8"))}
    return len(found)


def compare(folder, model, feed, setting, ops, weights=None):
    plain, ours, theirs = (str(folder / f"{name}.onnx") for name in ("plain", "ours", "theirs"))
    onnx.save(model, plain)
    kind, per_channel, reduce_range = setting
    if per_channel and "Conv" in ops:  # quantize_dynamic has one scale for them
        ops, weights = [op for op in ops if op != "Conv"], weights - 2
    quantize_dynamic(plain, theirs, weight_type=kind, per_channel=per_channel, reduce_range=reduce_range,
                     op_types_to_quantize=[op for op in ops if op != "Gemm"])
    convert(plain, ours, *setting, ops)
    onnx.checker.check_model(onnx.load(ours), full_check=True)
    found = same_weights(ours, theirs)
    assert weights is None or found == weights
    for a, b in zip(run(ours, feed), run(theirs, feed), strict=True):
        assert a.tobytes() == b.tobytes()
    return ours


IDS = {"ids": np.arange(12, dtype=np.int64).reshape(6, 2) % 20}
WORDS = {"ids": np.arange(12, dtype=np.int32).reshape(2, 6) % 20, "segments": np.arange(12, dtype=np.int32).reshape(2, 6) % 2}


@pytest.mark.parametrize("setting", GRID, ids=str)
def test_operators(tmp_path, setting):
    """All operators, and two of them alone."""
    compare(tmp_path, integer.speech(), IDS, setting, ALL, 8)
    compare(tmp_path, integer.speech(), IDS, setting, ["MatMul", "Gemm"], 3)
    compare(tmp_path, integer.speech(), IDS, setting, ["Conv", "Gather"], 3)


@pytest.mark.parametrize("setting", GRID, ids=str)
def test_attention(tmp_path, setting):
    compare(tmp_path, integer.attention(), WORDS, setting, ["Attention"], 1)


@pytest.mark.parametrize("mask", [None, ["b"], ["b", "t"]], ids=str)
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"scale": 0.9}, {"mask_filter_value": -50.0}, {"do_rotary": 0}], ids=str)
@pytest.mark.parametrize("past", [False, True])
def test_attention_options(tmp_path, mask, attributes, past):
    draw = np.random.default_rng(7)
    feed = {"x": draw.standard_normal((2, 3, 8)).astype(np.float32)}
    if mask:
        feed["mask"] = np.array([2, 3] if mask == ["b"] else [[1] * (3 + 4 * past), [0] + [1] * (2 + 4 * past)], np.int32)
    if past:
        feed["past"] = draw.standard_normal((2, 2, 2, 4, 4)).astype(np.float32)
    m = integer.attending(mask if mask != ["b", "t"] else ["b", "all"], past, **attributes)
    ours = compare(tmp_path, m, feed, (*GRID[0][:2], SATURATES), ["Attention"], 1)
    for a, b in zip(run(ours, feed), run(str(tmp_path / "plain.onnx"), feed), strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)


def test_attention_that_rotates(tmp_path):
    """QAttention takes do_rotary and ignores it: the weight is decoded."""
    onnx.save(integer.attending(do_rotary=1), tmp_path / "plain.onnx")
    convert(tmp_path / "plain.onnx", tmp_path / "ours.onnx", *GRID[0], ["Attention"])
    assert [n.op_type for n in onnx.load(tmp_path / "ours.onnx").graph.node] == ["DequantizeLinear", "Attention"]


EMBEDDINGS = {
    "plain": {}, "without segments": {"segments": False}, "with a mask": {"mask": True}, "without segments, with a mask": {"segments": False, "mask": True},
    "epsilon": {"epsilon": 0.01}, "a bias of zeros": {"zero_bias": True}, "two of them": {"second": True},
}


@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("setting", [GRID[0], GRID[-1]], ids=str)
def test_embedding(tmp_path, name, setting):
    """QEmbedLayerNormalization: tables, scale and bias are uint8, whatever the format of weights."""
    m = integer.embedding(**EMBEDDINGS[name])
    feed = {i.name: WORDS.get(i.name, np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)) for i in m.graph.input}
    count = sum(len(t.dims) > 0 for t in m.graph.initializer)
    ours = compare(tmp_path, m, feed, setting, ["EmbedLayerNormalization"], count)
    plain, back = tmp_path / "plain.onnx", tmp_path / "back.onnx"
    assert onnxquant("verify", "--quiet", "--engine", "none", plain, ours).status == 0
    assert onnxquant("dequantize", "--quiet", ours, back).status == 0
    assert [n.op_type for n in onnx.load(back).graph.node] == [n.op_type for n in m.graph.node]
    for a, b in zip(run(str(back), feed), run(ours, feed), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    inspected = json.loads(onnxquant("inspect", "--json", ours).stdout)
    assert "QEmbedLayerNormalization" in json.dumps(inspected)


def test_embedding_that_stays(tmp_path):
    """All tensors of an EmbedLayerNormalization have codes for QEmbedLayerNormalization, or none."""
    summed, placed = integer.embedding(), integer.embedding()
    summed.graph.node[0].output.append("sum")
    placed.graph.node[0].input.extend(["", "segments"])  # positions
    for flags, model in ([], summed), ([], placed), (["--exclude", "gamma"], integer.embedding()), (["--exclude", "position"], integer.embedding()):
        plain, ours = str(tmp_path / "plain.onnx"), str(tmp_path / "ours.onnx")
        onnx.save(model, plain)
        done = onnxquant("--quiet", "--activations", "dynamic", "--ops", "EmbedLayerNormalization", *flags, plain, ours)
        assert done.status == 0, done.stderr
        assert "EmbedLayerNormalization" in [n.op_type for n in onnx.load(ours).graph.node]
        feed = {name: WORDS[name] for name in ("ids", "segments")}
        for a, b in zip(run(ours, feed), run(plain, feed), strict=True):
            np.testing.assert_allclose(a, b, atol=0.05)


def test_all_products_fuse(tmp_path):
    """ONNX Runtime makes each product a DynamicQuantizeMatMul, whatever follows."""
    shapes = {"w1": (16, 16), "w2": (16, 16), "w3": (16, 16), "w4": (16, 16), "b": (16,)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b"], ["g"], transB=1), helper.make_node("Add", ["g", "x"], ["s"]),
        helper.make_node("MatMul", ["s", "w3"], ["c"]), helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"]), helper.make_node("MatMul", ["e", "w4"], ["y"]),
    ]
    floats = (TensorProto.FLOAT, ["n", 16])
    m = integer.model(nodes, {"x": floats}, {"y": floats}, integer.weights(4, **shapes))
    feed = {"x": np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)}
    for setting in GRID:
        ours = compare(tmp_path, m, feed, setting, ["MatMul", "Gemm"], 4)
        session(ours, tmp_path / "optimized.onnx")
        operators = [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node]
        assert operators.count("DynamicQuantizeMatMul") == 4 and "MatMulInteger" not in operators


def convolutions(draw, rank, group=1, out=8):
    """Two convolutions. Their channels differ in size."""
    kernel = [3] * rank
    sizes = np.exp(draw.uniform(-4, 0, (12, *[1] * (rank + 1))))
    tensors = {"w1": draw.standard_normal((12, 6, *kernel)) * sizes, "b1": draw.standard_normal(12), "w2": draw.standard_normal((out, 12 // group, *kernel)) * np.resize(sizes, (out, *sizes.shape[1:]))}
    nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["h"], pads=[1] * 2 * rank), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Conv", ["r", "w2"], ["y"], pads=[1] * 2 * rank, group=group)]
    sides = [{name: (TensorProto.FLOAT, ["n", channels, *"dhw"[:rank]])} for name, channels in (("x", 6), ("y", out))]
    return integer.model(nodes, *sides, [numpy_helper.from_array(v.astype(np.float32), name) for name, v in tensors.items()])


def worst_channel(a, b):
    """Of channels of b, the largest error relative to the channel."""
    axes = (0, *range(2, b.ndim))
    return (np.linalg.norm(np.moveaxis(a - b, 1, 0).reshape(b.shape[1], -1), axis=1) / np.linalg.norm(np.moveaxis(b, 1, 0).reshape(b.shape[1], -1), axis=1)).max()


@pytest.mark.parametrize("flags", [[], ["--block=-1"], ["--format", "int8"], ["--format", "uint8", "--reduce-range"]], ids=str)
@pytest.mark.parametrize("rank", [1, 2])
def test_convolutions(tmp_path, rank, flags):
    """Each channel has a scale, so small channels keep their values; one scale loses them."""
    draw = np.random.default_rng(rank)
    feed = {"x": draw.standard_normal((2, 6, *[9] * rank)).astype(np.float32)}
    plain, ours, one, back = (str(tmp_path / f"{name}.onnx") for name in ("plain", "ours", "one", "back"))
    onnx.save(convolutions(draw, rank), plain)
    for path, more in (ours, flags), (one, [*flags[:2], "--block=-2"] if "--format" in flags else ["--block=-2"]):
        done = onnxquant("--quiet", "--activations", "dynamic", "--ops", "all", *more, plain, path)
        assert done.status == 0, done.stderr
        onnx.checker.check_model(onnx.load(path), full_check=True)
        assert [n.op_type for n in onnx.load(path).graph.node].count("ConvInteger") == 2
    assert onnxquant("verify", "--quiet", plain, ours).status == 0
    assert onnxquant("dequantize", "--quiet", ours, back).status == 0
    [want], [got], [other], [decoded] = (run(p, feed) for p in (plain, ours, one, back))
    limit = 0.08 if "--reduce-range" in flags else 0.03
    assert worst_channel(got, want) < min(limit, worst_channel(other, want) / 2)
    assert worst_channel(decoded, want) < limit


def test_convolutions_of_few_channels(tmp_path):
    """Depthwise convolutions, and those of images, are decoded: they would be slower, and lose more. Small ones stay in float."""
    draw = np.random.default_rng(0)
    small, large, ours = tmp_path / "small.onnx", tmp_path / "large.onnx", tmp_path / "ours.onnx"
    onnx.save(convolutions(draw, 2, group=4), small)
    onnx.save(convolutions(draw, 2, group=4, out=160), large)

    def w2(model, *flags):
        planned = json.loads(onnxquant("--dry-run", "--json", "--activations", "dynamic", "--ops", "all", *flags, model).stdout)["tensors"]
        return next(t for t in planned if t["name"] == "w2")

    decoded = ("DequantizeLinear", -1, "weights only, one scale per channel: a convolution of 3 channels")
    for model, flags in (large, []), (small, ["--strict"]):
        w = w2(model, *flags)
        assert (w["form"], w["block"], w["note"]) == decoded
    assert w2(small)["reason"] == "a small convolution of 3 channels" and w2(small, "--block=-2")["decision"] == "quantize"
    for model, operators in (small, {"Conv", "ConvInteger"}), (large, {"Conv", "ConvInteger", "DequantizeLinear"}):
        assert onnxquant("--quiet", "--activations", "dynamic", "--ops", "all", model, ours).status == 0
        assert {n.op_type for n in onnx.load(ours).graph.node} & {"Conv", "ConvInteger", "DequantizeLinear"} == operators
        assert onnxquant("verify", "--quiet", model, ours).status == 0


def shared(nodes, opset=17):
    floats, ids = (TensorProto.FLOAT, ["n", 32]), (TensorProto.INT64, ["n"])
    tensors = integer.weights(5, table=(40, 32), other=(32, 32))
    return integer.model(nodes, {"x": floats, "ids": ids}, {name: (TensorProto.FLOAT, ["p_" + name, "q_" + name]) for name in "yz"}, tensors, opset)


X = {"x": np.random.default_rng(1).standard_normal((5, 32)).astype(np.float32), "ids": np.arange(5)}


def near(path, plain, limit=0.1):
    for a, b in zip(run(path, X), run(plain, X), strict=True):
        assert np.abs(a - b).max() < limit * np.abs(b).max()


def dynamic(tmp_path, m, *flags):
    plain, ours = str(tmp_path / "plain.onnx"), str(tmp_path / "ours.onnx")
    onnx.save(m, plain)
    done = onnxquant("--quiet", "--activations", "dynamic", *flags, plain, ours)
    assert done.status == 0, done.stderr
    onnx.checker.check_model(onnx.load(ours), full_check=True)
    near(ours, plain)
    assert onnxquant("verify", "--quiet", "--engine", "none", plain, ours).status == 0
    back = tmp_path / "back.onnx"
    assert onnxquant("dequantize", "--quiet", ours, back).status == 0
    near(str(back), plain)
    return [n.op_type for n in onnx.load(ours).graph.node]


@pytest.mark.parametrize("head", ["Gemm", "Transpose"])
def test_embedding_and_head(tmp_path, head):
    """A table that both read is stored once, with one DequantizeLinear."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Add", ["e", "x"], ["z"])]
    if head == "Gemm":
        nodes.append(helper.make_node("Gemm", ["z", "table"], ["y"], transB=1))
    else:
        nodes += [helper.make_node("Transpose", ["table"], ["t"]), helper.make_node("MatMul", ["z", "t"], ["y"])]
    operators = dynamic(tmp_path, shared(nodes), "--ops", "MatMul,Gemm,Gather")
    assert operators.count("DequantizeLinear") == 1 and operators.count("MatMulInteger") == 1
    assert sorted(stored(tmp_path / "ours.onnx")) == ["other", "table_scale", "table_u8", "table_zp"]


def test_rows_that_only_products_read(tmp_path):
    """Their codes are the activation, as in quantize_dynamic."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("MatMul", ["e", "other"], ["y"]),
             helper.make_node("Relu", ["x"], ["z"])]
    assert "DequantizeLinear" not in dynamic(tmp_path, shared(nodes), "--ops", "MatMul,Gather")
    compare(tmp_path, shared(nodes), X, GRID[0], ["MatMul", "Gather"], 2)


def test_one_activation_is_quantized_once(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "other"], ["y"]), helper.make_node("Identity", ["other"], ["same"]),
             helper.make_node("MatMul", ["x", "same"], ["z"])]
    operators = dynamic(tmp_path, shared(nodes))
    assert operators.count("DynamicQuantizeLinear") == 1 and operators.count("MatMulInteger") == 2


def test_mixed(tmp_path):
    """A precision_info lets weights be decoded, or stay in float, in the same model."""
    nodes = [helper.make_node("MatMul", ["x", "other"], ["y"]), helper.make_node("Gemm", ["x", "table"], ["z"], transB=1)]
    info = tmp_path / "info.json"
    for entry, want in (("{\"bits\": 4, \"block\": 16}", {"DequantizeLinear": 1, "MatMulInteger": 1}), ("{\"format\": \"float\"}", {"MatMulInteger": 1}),
                        ("{\"bits\": 8, \"block\": 32}", {"DequantizeLinear": 1, "MatMulInteger": 1}), ("{\"format\": \"uint8\", \"block\": -1}", {"MatMulInteger": 2})):
        info.write_text(f'{{"table": {entry}}}')
        operators = dynamic(tmp_path, shared(nodes), "--precision-info", info)
        assert {op: operators.count(op) for op in ("DequantizeLinear", "MatMulInteger") if op in operators} == want, entry


def test_old_opset(tmp_path):
    """The operators on codes are of the opset that the model is raised to."""
    nodes = [helper.make_node("MatMul", ["x", "other"], ["y"]), helper.make_node("Gemm", ["x", "table", "zero"], ["z"], transB=1)]
    m = shared(nodes, 9)
    m.graph.initializer.append(numpy_helper.from_array(np.zeros(40, np.float32), "zero"))
    assert dynamic(tmp_path, m).count("MatMulInteger") == 2
    assert onnx.load(tmp_path / "ours.onnx").opset_import[0].version == 11


def test_old_clip(tmp_path):
    """A Clip before opset 11 has its ends as attributes. They become inputs, of the type of what it clips."""
    w = numpy_helper.from_array(np.random.default_rng(3).normal(size=(16, 16)).astype(np.float32), "other")
    nodes = [helper.make_node("MatMul", ["x", "other"], ["h"]), helper.make_node("Clip", ["h"], ["y"], min=-0.5)]
    m = shared(nodes)
    graph = helper.make_graph(nodes, "clip", [i for i in m.graph.input if i.name == "x"], [o for o in m.graph.output if o.name == "y"], [w])
    graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 16]))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 16]))
    x = np.random.default_rng(4).normal(size=(8, 16)).astype(np.float32)
    plain, ours = str(tmp_path / "plain.onnx"), str(tmp_path / "ours.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=7), plain)
    done = onnxquant("--quiet", "--activations", "dynamic", plain, ours)
    assert done.status == 0, done.stderr
    onnx.checker.check_model(onnx.load(ours), full_check=True)
    (a,), (b,) = (onnxruntime.InferenceSession(p).run(None, {"x": x}) for p in (ours, plain))
    assert np.abs(a - b).max() < 0.1 * np.abs(b).max() and a.min() == -0.5


def test_what_cannot_be_dynamic(tmp_path):
    """A weight that is the first factor is decoded; the plan says why, and --strict takes it."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["table", "t"], ["y"]),
             helper.make_node("MatMul", ["x", "other"], ["z"])]
    operators = dynamic(tmp_path, shared(nodes), "--strict")
    assert operators.count("MatMulInteger") == 1 and operators.count("DequantizeLinear") == 1
    plan = json.loads(onnxquant("--dry-run", "--json", "--activations", "dynamic", tmp_path / "plain.onnx").stdout)["tensors"]
    notes = {t["name"]: (t["form"], t["block"], t.get("note")) for t in plan}
    assert notes["other"] == ("MatMulInteger", -2, None)
    assert notes["table"] == ("DequantizeLinear", -1, "weights only, one scale per channel: MatMulInteger takes a matrix as the second factor")


@pytest.mark.parametrize("flags", [["--block", "32"], ["--bits", "4"], ["--style", "nbits"], ["--target", "tensorrt"], ["--range", "mse"], ["--format", "nf4"]], ids=str)
def test_wrong_usage(tmp_path, flags):
    onnx.save(integer.speech(), tmp_path / "plain.onnx")
    done = onnxquant("--activations", "dynamic", *flags, tmp_path / "plain.onnx", tmp_path / "out.onnx")
    assert done.status == 2 and "dynamic" in done.stderr and not (tmp_path / "out.onnx").exists()


def test_reduced_range_alone(tmp_path):
    onnx.save(integer.speech(), tmp_path / "plain.onnx")
    assert onnxquant("--reduce-range", tmp_path / "plain.onnx", tmp_path / "out.onnx").status == 2
