"""verify and models with codes for activations: ours, and those of quantize_static."""
import json
import shlex

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat

import static
import static_models
from command import onnxquant
from test_static import MODELS, SETTINGS, Lab, defined, flags
from test_verify import library, with_runtime
from test_verify import verify as verify_by


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def verify(lab, out, *args):
    done = onnxquant("verify", "--json", *args, lab.plain, out)
    assert done.status in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] == (done.status == 0)
    return report


def activations(path):
    """How many values a QuantizeLinear of a model reads that are not stored, by the type of their codes."""
    g = onnx.load(path).graph
    stored = {t.name: t for t in g.initializer}
    found = {}
    for n in g.node:
        if n.op_type == "QuantizeLinear" and n.input[0] not in stored:
            found.setdefault(onnx.TensorProto.DataType.Name(stored[n.input[2]].data_type), set()).add(n.input[0])
    return {name: len(values) for name, values in found.items()}


def test_ranges(lab):
    """Codes of activations are held against the values of the float model; one that clips is named with its share."""
    name = next(iter(MODELS))
    lab.calibrate(MODELS[name])
    lab.convert()
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    right = verify(lab, lab.ours, "--inputs", lab.folder / "x.npz")
    assert len(right["execution"]["ranges"]) == sum(activations(lab.ours).values())
    assert all(r["sqnr_db"] > 25 and r["clipped"] < 0.01 for r in right["execution"]["ranges"]) and not right.get("warnings")
    m = onnx.load(lab.ours)
    stored = {t.name: t for t in m.graph.initializer}
    q = next(n for n in m.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in stored)
    small = stored[q.input[1]]
    small.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(small) / 8, small.name))
    del m.metadata_props[:]
    onnx.save(m, lab.ours)
    wrong = verify(lab, lab.ours, "--inputs", lab.folder / "x.npz")
    first, reach = wrong["execution"]["ranges"][0], right["execution"]["ranges"]
    was = next(r for r in reach if r["activation"] == first["activation"])
    assert first["codes"][1] == pytest.approx(was["codes"][1] / 8) and first["clipped"] > 0.2 and first["sqnr_db"] < 10
    assert any("are clipped" in w and first["activation"] in w for w in wrong["warnings"])


@pytest.mark.parametrize("name", MODELS)
def test_accepted(lab, name):
    """verify accepts what both tools make, with all their activations, and nothing is left to tell."""
    lab.calibrate(MODELS[name])
    setting = SETTINGS[list(MODELS).index(name) % len(SETTINGS)]
    lab.convert(*flags(*setting))
    made = [lab.ours]
    if defined(name, MODELS[name], setting):
        lab.peer(*setting[:4], ActivationSymmetric=setting[4])
        made.append(lab.theirs)
    for path in made:
        report = verify(lab, path, "--engine", "none")
        assert report["passed"], (path.name, setting, report["failures"])
        assert report["structure"]["activations"] == activations(path)


@pytest.mark.parametrize("spoilt", [False, True])
def test_spoilt(lab, spoilt):
    """Where masked scores are quantized, the wrong classes of real inputs are told, with what helps."""
    lab.calibrate(static_models.masked())
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    lab.convert(*["--coarse-activations"] * spoilt)
    done = onnxquant("verify", "--engine", "go", "--logits", "y", "--inputs", lab.folder / "x.npz", lab.plain, lab.ours)
    assert ("quantize fewer activations" in done.stdout) == spoilt, done.stdout


@pytest.mark.parametrize("name", ["relu", "clip", "residual", "matmul", "flatten", "concat"])
def test_outputs(lab, name):
    """The engine in Go measures the error of activations that ONNX Runtime has."""
    lab.calibrate(MODELS[name])
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    for setting in (("uint8", "int8", True, False, False), ("int16", "int8", False, False, False)):
        lab.convert(*flags(*setting))
        lab.peer(*setting[:4])
        want = static.run(lab.plain, lab.feeds[0])[0]
        for path in (lab.ours, lab.theirs):
            report = verify(lab, path, "--engine", "go", "--inputs", lab.folder / "x.npz")
            assert report["passed"], report["failures"]
            error = np.subtract(static.run(path, lab.feeds[0], optimized=False)[0], want, dtype=np.float64)
            (output,) = report["execution"]["outputs"]
            assert output["sqnr_db"] == pytest.approx(10 * np.log10(np.sum(np.square(want, dtype=np.float64)) / np.sum(np.square(error))), abs=0.3)
            assert output["max_error"] == pytest.approx(np.abs(error).max(), rel=0.05)


@pytest.mark.parametrize("extra", ["UseQDQContribOps", "DedicatedQDQPair", "AddQDQPairToWeight", "QDQKeepRemovableActivations"])
def test_options_of_quantize_static(lab, extra):
    lab.calibrate(MODELS["image"])
    lab.peer(**{extra: True})
    report = verify(lab, lab.theirs)
    assert report["passed"], report["failures"]
    assert report["execution"]["compared"]
    assert report["structure"]["activations"] == activations(lab.theirs)


@pytest.mark.parametrize("target", ["tensorrt", "openvino", "qnn"])
def test_targets(lab, target):
    lab.calibrate(MODELS["image"])
    lab.convert("--target", target)
    report = verify(lab, lab.ours, "--engine", "none")
    assert report["passed"], report["failures"]
    assert report["structure"]["activations"] == activations(lab.ours)


def parts(m, of):
    """The QuantizeLinear of a value, the DequantizeLinears of its codes, and their initializers by name."""
    q = next(n for n in m.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == of)
    return q, [n for n in m.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == q.output[0]], {t.name: t for t in m.graph.initializer}


def fill(m, name, value, copy=""):
    """Gives an initializer, or a copy of it, another value."""
    t = next(t for t in m.graph.initializer if t.name == name)
    made = numpy_helper.from_array(np.full_like(numpy_helper.to_array(t), value), copy or name)
    if copy:
        m.graph.initializer.append(made)
    else:
        t.CopyFrom(made)
    return made.name


def zero_of_one(m):
    q, (d, *_), _ = parts(m, "b")
    d.input[2] = fill(m, d.input[2], 3, "other")


def scale_of_one(m):
    q, _, _ = parts(m, "b")
    q.input[1] = fill(m, q.input[1], 0.5, "other")


def type_of_one(m):
    q, (d, *_), _ = parts(m, "b")
    m.graph.initializer.append(numpy_helper.from_array(np.zeros((), np.int8), "other"))
    q.input[2] = "other"


def scale(value):
    return lambda m: fill(m, parts(m, "b")[0].input[1], value)


def below_relu(m):
    """Codes for negative numbers, where the Relu is gone."""
    fill(m, parts(m, "b")[0].input[2], 1)


def another_tensor(m):
    parts(m, "b")[0].input[0] = "x"


def past_the_pair(m):
    """One reader of what the Relu made reads what it read."""
    _, ds, _ = parts(m, "b")
    reader = next(n for n in m.graph.node if ds[0].output[0] in n.input)
    reader.input[list(reader.input).index(ds[0].output[0])] = "b"


def computed_scale(m):
    q, ds, _ = parts(m, "b")
    m.graph.node.insert(0, helper.make_node("ReduceMax", ["x"], ["computed"], keepdims=0))
    for n in (q, *ds):
        n.input[1] = "computed"


def between_them(m):
    _, (d, *_), _ = parts(m, "b")
    m.graph.node.insert(list(m.graph.node).index(d), helper.make_node("Transpose", [d.input[0]], ["turned"], perm=[0, 1, 3, 2]))
    d.input[0] = "turned"


MUTATIONS = [zero_of_one, scale_of_one, type_of_one, scale(0), scale(-0.01), scale(np.nan), scale(np.inf), below_relu, another_tensor, past_the_pair, computed_scale, between_them]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda f: f.__name__)
def test_refused(lab, mutate):
    """Each change of a pair behind Conv and Relu is a difference."""
    lab.calibrate(MODELS["relu"])
    lab.convert()
    assert verify(lab, lab.ours, "--engine", "none")["passed"]
    m = onnx.load(lab.ours)
    assert not any(n.op_type == "Relu" for n in m.graph.node)
    mutate(m)
    onnx.save(m, lab.theirs)
    report = verify(lab, lab.theirs, "--engine", "none")
    assert not report["passed"] and report["structure"]["problems"]


@pytest.mark.parametrize("by, passes", [(1, True), (1.01, False)])
def test_upper_limit(lab, by, passes):
    """A Clip may be gone only if codes end where it does, above as well."""
    lab.calibrate(MODELS["clip"])
    ranges = json.loads(lab.ranges.read_text())
    ranges["tensors"]["b"]["max"] = 0.6
    lab.ranges.write_text(json.dumps(ranges))
    lab.convert()
    m = onnx.load(lab.ours)
    assert not any(n.op_type == "Clip" for n in m.graph.node)
    q, _, stored = parts(m, "b")
    fill(m, q.input[1], by * numpy_helper.to_array(stored[q.input[1]]))
    onnx.save(m, lab.theirs)
    report = verify(lab, lab.theirs, "--engine", "none")
    assert report["passed"] == passes == (not report["structure"]["problems"])


def test_engines_agree(lab):
    """ONNX Runtime's optimizations quantize decoded weights anew; verify runs them without, and has the figures of the engine in Go."""
    m = MODELS["relu"]
    m = type(m).FromString(m.SerializeToString())
    weight = next(t for t in m.graph.initializer if t.name == "cw")
    w = numpy_helper.to_array(weight).copy()
    w[1:] /= 40  # one scale for all would be too coarse for these
    weight.CopyFrom(numpy_helper.from_array(w, "cw"))
    lab.calibrate(m).convert("--block=-1")
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    floats = lab.folder / "floats.onnx"
    assert onnxquant("dequantize", lab.ours, floats).status == 0
    want = static.run(lab.plain, lab.feeds[0])[0]
    plain, changed = (10 * np.log10(np.sum(want ** 2) / np.sum((static.run(floats, lab.feeds[0], optimized)[0] - want) ** 2)) for optimized in (False, True))
    assert changed < plain - 3, (plain, changed)
    binary = with_runtime()
    go, ort = (verify_by("--ort-lib", library(), "--engine", engine, "--inputs", lab.folder / "x.npz", lab.plain, lab.ours, binary=binary)["execution"]
               for engine in ("go", "ort"))
    assert ort["engine"].startswith("ONNX Runtime 1.") and abs(go["outputs"][0]["sqnr_db"] - ort["outputs"][0]["sqnr_db"]) < 0.5
    assert abs(ort["outputs"][0]["sqnr_db"] - plain) < 0.5
    # What dequantize wrote is run both ways.
    both = verify_by("--ort-lib", library(), "--engine", "ort", "--inputs", lab.folder / "x.npz", lab.plain, floats, binary=binary)["execution"]
    assert abs(both["outputs"][0]["sqnr_db"] - plain) < 0.5 and abs(both["itself"]["outputs"][0]["sqnr_db"] - changed) < 0.5


def test_poor_operators(lab):
    """The command of a hint quantizes the operators that another tool's model has in codes."""
    lab.calibrate(static_models.masked())
    lab.peer("uint8", "int8")
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    report = verify(lab, lab.theirs, "--engine", "go", "--logits", "y", "--inputs", lab.folder / "x.npz")
    assert report["verdict"] == "poor", report
    command = shlex.split(next(h for h in report["hints"] if h.startswith("onnxquant ")))[1:-1]
    assert not any("--coarse-activations" in h for h in report["hints"])
    done = onnxquant("--json", *command, lab.folder / "better.onnx")
    assert done.status == 0 and json.loads(done.stdout)["quantized"], done.stdout


def test_codes_of_constants(lab):
    """quantize_static leaves weights of Constant nodes as floats, and reads their codes: one line says that outputs decide."""
    m = MODELS["relu"]
    m = type(m).FromString(m.SerializeToString())
    weights = [t for t in m.graph.initializer if t.name in ("cw", "dw")]
    for t in weights:
        m.graph.initializer.remove(t)
        m.graph.node.insert(0, helper.make_node("Constant", [], [t.name], value=t))
    lab.calibrate(m)
    static.quantize_static(str(lab.plain), str(lab.theirs), static.Feeds(lab.feeds), quant_format=QuantFormat.QOperator)
    np.savez(lab.folder / "x.npz", **lab.feeds[0])
    report = verify(lab, lab.theirs, "--engine", "go", "--inputs", lab.folder / "x.npz")
    assert report["verdict"] == "sound" and report["structure"]["unread"] and "the outputs decide" in report["warnings"][0], report
    report = verify(lab, lab.theirs, "--engine", "none")
    assert len(report["failures"]) == 1 and "cannot be compared by structure" in report["failures"][0]
