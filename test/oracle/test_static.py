"""--activations static against ONNX Runtime's quantize_static: the same tensors, initializers and outputs."""
import itertools
import json
import pathlib

import numpy as np
import onnx
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

import integer
import static
import static_models
from command import onnxquant
from runtime import REDUCED, SATURATES

MODELS = dict(static_models.models())
SETTINGS = [(a, w, c, r, s) for a, w, c, r, s in itertools.product(("uint8", "int8", "uint16", "int16"), ("int8", "uint8"), *[(False, True)] * 3)
            if (a, w) != ("int8", "uint8")]


@pytest.fixture
def lab(tmp_path):
    """calibrate(model) saves it and finds its ranges; lab(*flags) converts it."""
    return Lab(tmp_path)


class Lab:
    def __init__(self, folder):
        self.folder, self.plain, self.ours, self.theirs = folder, folder / "plain.onnx", folder / "ours.onnx", folder / "theirs.onnx"

    def calibrate(self, m):
        onnx.save(m, self.plain)
        self.feeds = [static_models.feed(m, seed) for seed in range(2)]
        self.ranges, self.cache = static.calibrate(str(self.plain), self.feeds, self.folder)
        return self

    def convert(self, *flags):
        done = onnxquant("--quiet", "--activations", "static", "--ranges", self.ranges, *flags, self.plain, self.ours)
        assert done.status == 0, done.stderr
        onnx.checker.check_model(onnx.load(self.ours), full_check=True)
        return done

    def peer(self, *args, **extra):
        static.peer(str(self.plain), str(self.theirs), self.cache, *args, **extra)

    def same(self):
        count = static.same(self.ours, self.theirs)
        for a, b in zip(static.run(self.ours, self.feeds[0]), static.run(self.theirs, self.feeds[0]), strict=True):
            np.testing.assert_array_equal(a, b)
        return count


def flags(activations, weights, per_channel, reduce_range, symmetric):
    on = ["--activation-type", activations, "--format", weights]
    on += ["--block=-1" if per_channel else "--block=-2"]
    on += ["--reduce-range"] if reduce_range else []
    return on + (["--symmetric-activations"] if symmetric else [])


def defined(name, m, setting):
    """Whether quantize_static's result is: see docs/activations.md."""
    activations, _, per_channel, _, _ = setting
    opset = m.opset_import[0].version
    return not (opset < 13 and per_channel and activations[-1] == "8") and not (activations[-2:] == "16" and name in ("pad_old", "large_bias"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_same(lab, name):
    """Each model has a fifth of the settings, so that all occur."""
    lab.calibrate(MODELS[name])
    for setting in SETTINGS[list(MODELS).index(name) % 5 :: 5]:
        lab.convert(*flags(*setting))
        if defined(name, MODELS[name], setting):
            lab.peer(*setting[:4], ActivationSymmetric=setting[4])
            assert lab.same() >= 5, setting
        else:
            static.run(lab.ours, lab.feeds[0])


def test_same_in_all_settings(lab):
    lab.calibrate(MODELS["image"])
    for setting in SETTINGS:
        lab.convert(*flags(*setting))
        lab.peer(*setting[:4], ActivationSymmetric=setting[4])
        assert lab.same() >= 20, setting


QNN = [("uint8", "uint8", False), ("uint16", "uint8", True), ("uint16", "int8", False), ("uint8", "int8", True)]


@pytest.mark.parametrize("name", ["sigmoid", "softmax", "layer", "flatten", "matmul", "residual", "branch", "image", "transposed"])
def test_qnn(lab, name):
    """--target qnn is get_qnn_qdq_config, but for SiLU of 16 bits, where QNN computes wrongly what that writes."""
    lab.calibrate(MODELS[name])
    for activations, weights, per_channel in QNN:
        if (name, activations) == ("sigmoid", "uint16"):
            continue
        lab.convert("--target", "qnn", *flags(activations, weights, per_channel, False, False))
        static.qnn_peer(str(lab.plain), str(lab.theirs), lab.cache, activations, weights, per_channel)
        assert lab.same() >= 5, (activations, weights, per_channel)


@pytest.mark.parametrize("name,node", [("cumsum", "CumSum"), ("batch", "BatchNormalization")])
def test_qnn_computes_wrongly(lab, name, node):
    """What its emulator computes wrongly with 8 bits is named, by inspect, too."""
    lab.calibrate(MODELS[name])
    assert "computes wrongly with activations of 8 bits: " + node in lab.convert("--target", "qnn").stderr
    assert "qnn-8bit" in [h["check"] for h in json.loads(onnxquant("inspect", "--json", lab.ours).stdout)["hazards"]]
    assert lab.convert("--target", "qnn", "--activation-type", "uint16").stderr == ""
    assert lab.convert("--block=-2").stderr == ""


def openvino_run(path, feed):
    compiled = openvino.Core().compile_model(str(path), "CPU")
    result = compiled(feed)
    return [np.asarray(result[o]) for o in compiled.outputs]


def sqnr(ours, want):
    return 10 * np.log10(np.sum(np.square(want, dtype=np.float64)) / np.sum(np.square(np.subtract(ours, want, dtype=np.float64))))


@pytest.mark.parametrize("name", ["relu", "residual", "max_pool", "average", "flatten", "matmul", "concat", "split_reshape", "image"])
def test_openvino_and_tensorrt(lab, name):
    """Both runtimes run the form for OpenVINO. Its error, and that of TensorRT's, is not above quantize_static's."""
    lab.calibrate(MODELS[name] if name in MODELS else split_reshape())
    lab.peer(per_channel=True, reduce_range=SATURATES)
    want = static.run(lab.plain, lab.feeds[0])[0]
    least = sqnr(static.run(lab.theirs, lab.feeds[0])[0], want) - 0.5
    lab.convert("--target", "openvino", *REDUCED)
    assert sqnr(static.run(lab.ours, lab.feeds[0])[0], want) > least
    assert sqnr(openvino_run(lab.ours, lab.feeds[0])[0], want) > least
    lab.convert("--target", "tensorrt", *REDUCED)
    assert sqnr(static.run(lab.ours, lab.feeds[0])[0], want) > least - 1.5  # symmetric codes
    g = onnx.load(lab.ours).graph
    makers = {o: n.op_type for n in g.node for o in n.output}
    stored = {t.name: t.data_type for t in g.initializer}
    for n in g.node:
        if n.op_type == "QuantizeLinear":
            assert stored[n.input[2]] == TensorProto.INT8
        if n.op_type == "Relu" and name != "concat":  # there, a pool wants the codes, too
            assert makers[n.input[0]] != "DequantizeLinear"
        if n.op_type in ("Conv", "Gemm", "MatMul"):
            assert makers[n.input[0]] == "DequantizeLinear" and TensorProto.INT32 not in stored.values()


def split_reshape():
    """A product with a scale per channel before a Reshape that makes an axis longer than the channels: OpenVINO refuses it without a pair between them."""
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["f"], "flat"), helper.make_node("MatMul", ["f", "mw"], ["m"], "mm"), helper.make_node("Add", ["m", "b"], ["a"], "add"),
             helper.make_node("Reshape", ["a", "deep"], ["d"], "deep"), helper.make_node("MatMul", ["d", "mw2"], ["y"], "mm2")]
    tensors = integer.weights(4, mw=(8, 8), b=(8,), mw2=(8, 8)) + static_models.arrays(flat=([-1, 8], np.int64), deep=([-1, 12, 8], np.int64))
    return integer.model(nodes, {"x": (TensorProto.FLOAT, ["n", 12, 8])}, {"y": (TensorProto.FLOAT, ["n", 12, 8])}, tensors)


def test_selection(lab):
    """--ops, --exclude and --include select nodes, as op_types_to_quantize and nodes_to_exclude do."""
    lab.calibrate(MODELS["image"])
    lab.convert("--block=-2", "--ops", "Conv,MaxPool,Relu")
    lab.peer(ops=["Conv", "MaxPool", "Relu"])
    assert lab.same() == 6
    lab.convert("--block=-2", "--exclude", "conv2", "--exclude", "mw")
    lab.peer(nodes_to_exclude=["conv2", "mm"])
    assert lab.same() == 18
    lab.convert("--block=-2", "--include", "conv*")
    lab.peer(nodes_to_quantize=["conv", "conv2"])
    assert lab.same() == 7


def test_reshaped_weights(lab):
    """A weight behind a Reshape, as CNTK leaves it, gets what quantize_static gives the reshaped weight."""
    w = integer.weights(3, w=(3, 4, 8), b=(8,))
    nodes = [helper.make_node("MatMul", ["x", "flat"], ["m"], "mm"), helper.make_node("Add", ["m", "b"], ["y"], "add")]
    inputs, outputs = {"x": (TensorProto.FLOAT, ["n", 12])}, {"y": (TensorProto.FLOAT, ["n", 8])}
    flat = numpy_helper.from_array(numpy_helper.to_array(w[0]).reshape(12, 8), "flat")
    lab.calibrate(integer.model(nodes, inputs, outputs, [flat, w[1]]))
    document = json.loads(pathlib.Path(lab.ranges).read_text())
    del document["model"]["sha256"]
    pathlib.Path(lab.ranges).write_text(json.dumps(document))
    reshape = helper.make_node("Reshape", ["w", "shape"], ["flat"], "reshape")
    reshaped = integer.model([reshape, *nodes], inputs, outputs, w + static_models.arrays(shape=([-1, 8], np.int64)))
    for setting in [], ["--block=-2"]:
        onnx.save(integer.model(nodes, inputs, outputs, [flat, w[1]]), lab.plain)
        lab.peer(per_channel=not setting)
        onnx.save(reshaped, lab.plain)
        lab.convert(*setting)
        assert lab.same() > 0


def test_mixed(lab):
    """Static convolutions, and weights of products in blocks."""
    lab.calibrate(MODELS["image"])
    info = lab.folder / "info.json"
    info.write_text('{"gw": {"bits": 4, "block": 8}, "mw": {"format": "float"}}')
    lab.convert("--precision-info", info)
    g = onnx.load(lab.ours).graph
    types = {t.name: t.data_type for t in g.initializer}
    assert types["cw_i8"] == TensorProto.INT8 and types["gw_i4"] == TensorProto.INT4 and types["mw"] == TensorProto.FLOAT
    readers = {n.name: list(n.input) for n in g.node}
    assert readers["gemm"][1:] == ["gw", "gb"] and "m_scale" not in types
    y, want = (static.run(p, lab.feeds[0])[0] for p in (lab.ours, lab.plain))
    assert np.abs(y - want).max() < 2 / 255  # two steps of Softmax


def test_plan(lab):
    """Every float tensor is accounted for."""
    lab.calibrate(MODELS["image"])
    plan = json.loads(onnxquant("--dry-run", "--json", "--activations", "static", "--ranges", lab.ranges, lab.plain).stdout)["tensors"]
    decisions = {t["name"]: (t["decision"], t.get("reason") or t["form"]) for t in plan}
    assert decisions == {
        **{name: ("quantize", "DequantizeLinear") for name in ("cw", "cw2", "gw", "mw")},
        "cb": ("keep", 'int32 codes at the scale of "x" · "cw"'), "gb": ("keep", 'int32 codes at the scale of "f" · "gw"'),
        "low": ("keep", "read by Clip:1"), "high": ("keep", "read by Clip:2"),
    }


@pytest.mark.parametrize("op, attributes", [("MatMul", {}), ("Gemm", {}), ("Gemm", {"transB": 1})], ids=["MatMul", "Gemm", "transB"])
@pytest.mark.parametrize("entry, wide, scales", [({"format": "int8", "block": 32}, 0.06, 1), ({"format": "uint8", "block": 32}, 0.06, 1), ({"bits": 4, "block": 32}, 0.3, 2)], ids=["int8", "uint8", "int4"])
def test_blocks_beside_codes(lab, op, attributes, entry, wide, scales):
    """ONNX Runtime runs a weight in blocks behind an activation with codes. 8 bits of a MatMul have a scale for each column."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node(op, ["b", "v"], ["y"], "second", **attributes),
    ]
    m = integer.model(nodes, {"x": (TensorProto.FLOAT, [4, 64])}, {"y": (TensorProto.FLOAT, [4, 16])},
                      integer.weights(4, w=(64, 64), v=(16, 64) if attributes else (64, 16)))
    lab.calibrate(m)
    info = lab.folder / "info.json"
    info.write_text(json.dumps({"v": entry}))
    lab.convert("--precision-info", info, *REDUCED)
    want, ours = (static.run(p, lab.feeds[0])[0] for p in (lab.plain, lab.ours))
    assert np.linalg.norm(ours - want) < wide * np.linalg.norm(want)
    [found] = [t for t in onnx.load(lab.ours).graph.initializer if t.name == "v_scale"]
    assert len(found.dims) == (scales if op == "MatMul" else 2)


def test_what_quantize_static_gets_wrong(lab):
    """beta of a Gemm; a Clip that codes do not do; the range of an output that a Relu alone reads."""
    nodes = [
        helper.make_node("Gemm", ["x", "gw", "gb"], ["g"], "gemm", beta=0.5),
        helper.make_node("Clip", ["g", "one", "two"], ["c"], "clip"),
        helper.make_node("MatMul", ["c", "mw"], ["m"], "mm"),
        helper.make_node("Relu", ["m"], ["y"], "relu"),
    ]
    tensors = integer.weights(4, gw=(8, 8), gb=(8,), mw=(8, 8)) + static_models.arrays(one=(1.0, np.float32), two=(2.0, np.float32))
    m = integer.model(nodes, {"x": (TensorProto.FLOAT, [4, 8])}, {name: (TensorProto.FLOAT, [4, 8]) for name in ("m", "y")}, tensors)
    lab.calibrate(m)
    lab.convert(*REDUCED)
    lab.peer()
    want, ours, theirs = (static.run(p, lab.feeds[0]) for p in (lab.plain, lab.ours, lab.theirs))
    for a, b, limit in zip(ours, want, (0.03, 0.03), strict=True):
        assert np.abs(a - b).max() < limit * np.abs(b).max()
    assert np.abs(theirs[0] - want[0]).max() > 0.3 * np.abs(want[0]).max()


@pytest.mark.parametrize("change, message", [
    (lambda d: d["tensors"].pop("c2"), 'no range of "c2"'),
    (lambda d: d["tensors"].update(c3={"min": 0, "max": 1}), 'the model has no value "c3"; did you mean "c'),
    (lambda d: d["model"].update(sha256="0" * 64), "of another model"),
    (lambda d: d["tensors"]["c2"].update(min=float("nan")), "NaN is no number"),
    (lambda d: d["tensors"]["c2"].update(min=float("inf")), "Infinity is no number"),
], ids=["missing", "unknown", "other", "nan", "infinity"])
def test_errors(lab, change, message):
    lab.calibrate(MODELS["image"])
    document = json.loads(lab.ranges.read_text())
    change(document)
    lab.ranges.write_text(json.dumps(document))
    done = onnxquant("--quiet", "--activations", "static", "--ranges", lab.ranges, lab.plain, lab.ours)
    assert done.status == 1 and message in done.stderr and done.stderr.count("\n") == 1 and not lab.ours.exists()


@pytest.mark.parametrize("wrong", [["--block", "32"], ["--bits", "4"], ["--style", "nbits"], ["--float16"], ["--range", "mse"], ["--ops", "LSTM"],
                                   ["--target", "ort-web"], ["--target", "tensorrt", "--activation-type", "uint8"], ["--format", "uint8", "--activation-type", "int8"]], ids=str)
def test_wrong_usage(lab, wrong):
    lab.calibrate(MODELS["relu"])
    done = onnxquant("--activations", "static", "--ranges", lab.ranges, *wrong, lab.plain, lab.ours)
    assert done.status == 2 and not lab.ours.exists()


@pytest.mark.parametrize("alone", [["--ranges", "r.json"], ["--activation-type", "int8"], ["--symmetric-activations"], ["--activations", "static"]], ids=str)
def test_half_a_request(lab, alone):
    lab.calibrate(MODELS["relu"])
    lab.ranges.rename(lab.folder / "r.json")
    assert onnxquant(*alone, lab.plain, lab.ours, folder=lab.folder).status == 2


def test_broken_weight(lab):
    """A weight with NaN stays in float, and so do the activations of its node."""
    m = integer.image()
    (t,) = [t for t in m.graph.initializer if t.name == "mw"]
    lab.calibrate(m)
    values = numpy_helper.to_array(t).copy()
    values[3, 3] = np.nan
    t.CopyFrom(numpy_helper.from_array(values, "mw"))
    onnx.save(m, lab.plain)
    static.write(str(lab.plain), {name: (r["min"], r["max"]) for name, r in json.loads(lab.ranges.read_text())["tensors"].items()}, lab.folder)
    done = lab.convert()
    assert '"mw" stays in float: holds NaN' in done.stderr
    strict = onnxquant("--strict", "--activations", "static", "--ranges", lab.ranges, lab.plain, lab.folder / "no.onnx")
    assert strict.status == 1 and '"mw": holds NaN' in strict.stderr
    g = onnx.load(lab.ours).graph
    assert "mw" in [t.name for t in g.initializer] and "k_scale" in [t.name for t in g.initializer]


def error(path, lab):
    got, want = (static.run(p, lab.feeds[0])[0] for p in (path, lab.plain))
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("activations", ["uint8", "uint16"])
def test_masked_scores(lab, activations):
    """Scores behind a mask, which quantize_static spoils, stay in float with a warning, unless that is wanted."""
    lab.calibrate(static_models.masked())
    setting = "--block=-2", "--activation-type", activations
    done = lab.convert(*setting)
    assert 'codes are too coarse for the range of 1 activation, widened by masks or outliers; the operators around them stay in float: "s2"' in done.stderr
    assert error(lab.ours, lab) < 0.05
    done = lab.convert(*setting, "--coarse-activations")
    assert 'the range of 1 activation, which may spoil the outputs: "s2"' in done.stderr
    lab.peer(activations)
    assert lab.same() >= 8
    assert error(lab.ours, lab) > 0.3


def test_reason_beside_coarse(lab):
    """With --coarse-activations, a tensor that an operator without codes reads stays in float for that."""
    m = static_models.masked()
    m.graph.node.insert(2, static_models.node("Pow", "s2 two", "q"))
    m.graph.initializer.append(numpy_helper.from_array(np.full(6, 2, np.float32), "two"))
    lab.calibrate(m)
    plan = onnxquant("--quiet", "--json", "--dry-run", "--activations", "static", "--ranges", lab.ranges, "--coarse-activations", lab.plain)
    reasons = {t["name"]: t.get("reason") for t in json.loads(plan.stdout)["tensors"]}
    assert reasons["two"] == "read by Pow:1" and reasons["mask"] is None


def test_outlier(lab):
    """So do values that are far below a step, which calibrate tells."""
    lab.calibrate(MODELS["leaky"])
    assert lab.convert("--block=-2").stderr == ""
    ranges = json.loads(lab.ranges.read_text())
    b = ranges["tensors"]["b"]
    b["typical"] = (b["max"] - b["min"]) / 255 / 2.1
    lab.ranges.write_text(json.dumps(ranges))
    assert '"b"' in lab.convert().stderr
    assert not {"b", "dw"} & set(static.quantized(lab.ours))
    assert lab.convert("--activation-type", "uint16").stderr == ""
