"""--float16 and --bfloat16: the corpus, models that other converters break, and real ones."""
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper, parser
from onnxruntime.transformers.float16 import convert_np_to_float16

import grid
import runtime
from command import CORPUS, SHARED, TINYGPT, onnxquant

FOLDER = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((FOLDER / "INDEX.json").read_text())}
TOLERANCE = 1e-2  # of the outputs, relative to the largest

SETTINGS = {
    "float16": ["--float16"],
    "io": ["--float16", "--keep-io-types=false"],
    "bfloat16": ["--bfloat16"],
    "int4": ["--float16", "-bits", "4", "-block", "32", "--ops", "all"],
    "nbits": ["--float16", "-bits", "4", "-block", "32", "--style", "nbits", "--ops", "all"],
}
UNRECOGNIZED = {("nbits", "behind_unsqueeze"), ("nbits", "behind_transpose_reshape")}  # in float32, too
RUNS = {"float16", "io"}


def run(model, feeds):
    """Without the optimizations of layouts: ONNX Runtime 1.31 crashes in them on some float16 models,
    also on those of its own converter. Weights that it fuses in them are decoded right only there."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    s = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    halves = [f.astype(np.float16) if "float16" in i.type else f for i, f in zip(s.get_inputs(), feeds)]
    return s.run(None, dict(zip((i.name for i in s.get_inputs()), halves, strict=True)))


def stored(case, kind):
    files = (FOLDER / case / "test_data_set_0").glob(f"{kind}_*.pb")
    return [numpy_helper.to_array(onnx.load_tensor(p)) for p in sorted(files, key=lambda p: int(p.stem.split("_")[1]))]


def assert_close(got, want, tolerance=TOLERANCE):
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(map(np.asarray, got), map(np.asarray, want))):
        if not runtime.is_float(w):
            assert np.array_equal(g, w), f"output {i}"
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        finite = np.isfinite(w)
        assert np.array_equal(np.isnan(g), np.isnan(w)), f"output {i}: NaN"
        if finite.any():
            assert np.abs(g - w)[finite].max() <= tolerance * max(np.abs(w[finite]).max(), 1e-3), f"output {i}"


def convert(model, out, *args):
    r = onnxquant(*args, model, out)
    assert r.status == 0, r.stderr
    return out


# Outputs of these cancel, or are beyond float16.
BEYOND = {
    "name_collision_subgraph": "the sum of a number and its negative",
    "val_huge": "products beyond float16",
    "quant_qlinear": "a rounded input gets another code",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case, setting", grid.pairs(CASES, ["float16", "io"], ["bfloat16", "int4", "nbits"]))
def test_corpus(case, setting, tmp_path):
    source = FOLDER / case / "model.onnx"
    out = convert(source, tmp_path / "out.onnx", *SETTINGS[setting])
    if (setting, case) not in UNRECOGNIZED:
        r = onnxquant("verify", "--engine", "none", source, out)
        assert r.status == 0, r.stdout + r.stderr
    if CASES[case]["checked"] != "none":
        onnx.checker.check_model(out)
    if setting in RUNS and case not in BEYOND:
        feeds = stored(case, "input")
        try:
            want = runtime.run(source, feeds)
        except Exception:  # what it cannot run in float32
            return
        assert_close(run(out, feeds), want)


# Models on which other converters write Casts to float whose outputs are float16, nodes out of
# order, or float16 where an operator takes float alone: see reports 208, 320 and 329 of onnxconverter-common,
# 25522 and 31626 of ONNX Runtime.
HARD = {
    "a Cast to float": "(int64[N] i, float[N] x) => (float[N] y) { f = Cast<to=1>(i)  y = Mul(f, x) }",
    "a Cast to float whose type is declared": "(int64[N] i, float[N] x) => (float[N] y) <float[N] f> { f = Cast<to=1>(i)  y = Mul(f, x) }",
    "a Cast to float in front of an operator that stays": """(int64[4] i, float[4] x) => (float[4] y) <int64 axis = {0}> {
        f = Cast<to=1>(i)  a = CumSum(f, axis)  b = Neg(f)  c = Mul(a, b)  y = Add(c, x) }""",
    "a weight of an operator that stays and of another": """(float[4] x) => (float[4] y) <float[4] w = {1.0,-2.0,0.5,3.0}> {
        a = Neg(x)  b = Min(a, w)  c = Add(a, w)  y = Mul(b, c) }""",
    "an operator of the list on integers": "(int64[4] i, float[4] x) => (float[4] y) <int64 axis = {0}> { a = CumSum(i, axis)  f = Cast<to=1>(a)  y = Mul(f, x) }",
    "a Cast to float that is an output": "(int64[N] i) => (float[N] y) { y = Cast<to=1>(i) }",
    "a Cast in a branch": """(bool c, int64[4] i, float[4] x) => (float[4] y) {
        y = If(c) <then_branch = g1 () => (float[4] a) { f = Cast<to=1>(i)  a = Add(f, x) },
                   else_branch = g2 () => (float[4] b) { b = Neg(x) }> }""",
    "Resize with an empty roi": """(float[1,1,4,4] x) => (float[1,1,8,8] y)
        <float[0] none = {}, float[4] scales = {1.0,1.0,2.0,2.0}> { n = Neg(x)  y = Resize<mode="nearest">(n, none, scales) }""",
    "a loop that carries a float": """(int64 n, bool c, float[2] x) => (float[2] y, float[K,2] s) {
        y, s = Loop(n, c, x) <body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] w, float[2] o) {
            co = Identity(ci)  f = Cast<to=1>(i)  w = Add(v, f)  o = Mul(w, v) }> }""",
    "an operator of its own list": "(float[4] x) => (float[4] y) <int64 axis = {0}> { a = Neg(x)  b = CumSum(a, axis)  y = Abs(b) }",
    "squares that overflow": """(float[2,8] x) => (float[2,8] y) <float two = {2.0}, float tiny = {0.00000001}> {
        a = Add(x, x)  q = Pow(a, two)  m = ReduceMean<axes=[1]>(q)  e = Add(m, tiny)  r = Sqrt(e)  y = Div(a, r) }""",
    "a constant beyond float16": """(float[4] x, bool[4] m) => (float[4] y) <float low = {-3.4e38}> {
        a = Neg(x)  w = Where(m, a, low)  y = Softmax<axis=0>(w) }""",
    "a mask filled with numbers beyond float16": """(float[4] x, bool[4] m) => (float[4] y) <int64[1] four = {4}> {
        a = Neg(x)  low = ConstantOfShape<value = float[1] {-3.4e38}>(four)  f = Cast<to=1>(m)  p = Mul(low, f)  w = Add(a, p)  y = Softmax<axis=0>(w) }""",
    "an attribute beyond float16": """(float[4] x, bool[4] m) => (float[4] y) {
        a = Neg(x)  low = Constant<value_float = -3.4e38>()  f = Cast<to=1>(m)  p = Mul(low, f)  w = Add(a, p)  y = Softmax<axis=0>(w) }""",
    "an output that is read": "(float[4] x) => (float[4] y, float[4] z) { y = Neg(x)  z = Abs(y) }",
    "an input that is an output": "(float[4] x) => (float[4] x2, float[4] z) { z = Neg(x)  x2 = Identity(x) }",
    "a shape of half": "(float[N,4] x) => (int64[2] y, float[N,4] z) { z = Neg(x)  y = Shape(z) }",
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("io", [True, False])
def test_hard(name, io, tmp_path):
    model = helper.make_model(parser.parse_graph("g " + HARD[name]), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    out = convert(tmp_path / "model.onnx", tmp_path / "out.onnx", "--float16", *([] if io else ["--keep-io-types=false"]))
    onnx.checker.check_model(out, full_check=True)
    r = onnxquant("verify", "--engine", "none", tmp_path / "model.onnx", out)
    assert r.status == 0, r.stdout
    scale = 200.0 if "overflow" in name else 1.0
    feeds = []
    for i in runtime.session(tmp_path / "model.onnx").get_inputs():
        shape = [d if isinstance(d, int) else 4 for d in i.shape]
        rng = np.random.default_rng(1)
        feeds.append({"tensor(float)": lambda: (scale * rng.standard_normal(shape)).astype(np.float32),
                      "tensor(int64)": lambda: rng.integers(1, 4, shape),
                      "tensor(bool)": lambda: rng.integers(0, 2, shape).astype(bool) if shape else np.array(True)}[i.type]())
    assert_close(run(out, feeds), run(tmp_path / "model.onnx", feeds))


def test_variance_of_a_batch_normalization(tmp_path):
    """Its sum of squares stays float32 up to the operator that reads it: ONNX Runtime hides a Cast in between, others do not."""
    model = helper.make_model(parser.parse_graph("""g (float[1,4,8] x) => (float[1,4,8] y) <float eight = {8.0}, float[4] one = {1.0,1.0,1.0,1.0}, float[4] zero = {0.0,0.0,0.0,0.0}> {
        a = Add(x, x)  s = ReduceSumSquare<axes=[0,2], keepdims=0>(a)  v = Div(s, eight)  y = BatchNormalization(a, one, zero, zero, v) }"""), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    out = onnx.load(convert(tmp_path / "model.onnx", tmp_path / "out.onnx", "--float16"))
    made = {o: n for n in out.graph.node for o in n.output}
    div = next(n for n in out.graph.node if n.op_type == "Div")
    assert made[div.input[0]].op_type == "ReduceSumSquare"
    assert div.output[0] in next(n for n in out.graph.node if n.op_type == "BatchNormalization").input


def test_a_cast_to_float_is_not_doubled(tmp_path):
    model = helper.make_model(parser.parse_graph("g " + HARD["a Cast to float"]), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    out = onnx.load(convert(tmp_path / "model.onnx", tmp_path / "out.onnx", "--float16"))
    assert [n.op_type for n in out.graph.node].count("Cast") == 3  # the model's own, of x, of y


def test_values_beyond_float16_stay_float(tmp_path):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 64)).astype(np.float32)
    w[3, 5] = 70000
    model = helper.make_model(parser.parse_graph(f"g (float[N,64] x) => (float[N,64] y) {{ h = MatMul(x, w)  y = MatMul(h, v) }}"),
                              ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    model.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(w / 1000, "v")])
    onnx.save(model, tmp_path / "model.onnx")
    r = onnxquant("--float16", tmp_path / "model.onnx", tmp_path / "out.onnx")
    assert r.status == 0 and 'warning: "w" stays in float32' in r.stderr
    types = {t.name: t.data_type for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    assert types == {"w": onnx.TensorProto.FLOAT, "v": onnx.TensorProto.FLOAT16}
    clamped = onnx.load(convert(tmp_path / "model.onnx", tmp_path / "clamped.onnx", "--float16", "--clamp"))
    got = {t.name: numpy_helper.to_array(t) for t in clamped.graph.initializer}
    assert got["w"].dtype == np.float16 and got["w"][3, 5] == 65504


# Where no rule differs: ONNX Runtime's converter raises tiny values to 5.96e-8 and clamps large ones.
def test_initializers_equal_onnxruntimes(tmp_path):
    out = onnx.load(convert(TINYGPT / "model.onnx", tmp_path / "out.onnx", "--float16"))
    before = {t.name: numpy_helper.to_array(t) for t in onnx.load(TINYGPT / "model.onnx").graph.initializer}
    compared = 0
    for t in out.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT16:
            x = before[t.name]
            usual = (np.abs(x) >= 5.97e-8) & (np.abs(x) <= 65504) | (x == 0)
            assert np.array_equal(numpy_helper.to_array(t)[usual], convert_np_to_float16(x)[usual]), t.name
            compared += int(usual.sum())
    assert compared > 1_500_000


REAL = {p.parent.name: p for p in [TINYGPT / "model.onnx", *sorted((SHARED / "models" / "real").glob("*/model.onnx"))]}
# magika_v1 has a test of its own. Random inputs have no sense (silero, tashkeel), or the checker and
# ONNX Runtime do not take the model.
WITHIN = ["tinygpt", "dtln_model_2", "genai_static_scatter_op24", "mnist8", "mujoco_apollo_policy", "super_resolution", "vespa_bert_mlm_random"]


@pytest.mark.parametrize("name", WITHIN)
def test_real_models(name, tmp_path):
    if name not in REAL:
        pytest.skip("the model does not lie beside the project")
    out = convert(REAL[name], tmp_path / "out.onnx", "--float16")
    assert onnxquant("verify", "--engine", "none", REAL[name], out).status == 0
    feeds = runtime.random_feeds(REAL[name])
    assert_close(run(out, feeds), runtime.run(REAL[name], feeds))


def test_magika(tmp_path):
    """It has values of 2.4 million between a normalization and another one."""
    if "magika_v1" not in REAL:
        pytest.skip("the model does not lie beside the project")
    source = REAL["magika_v1"]
    out = convert(source, tmp_path / "out.onnx", "--float16")
    text = np.frombuffer(__doc__.encode() * 20, np.uint8)[:1536]
    for content in np.random.default_rng(0).integers(0, 257, 1536), text, np.full(1536, 256):
        feeds = [content.astype(np.float32)[None]]
        got, want = run(out, feeds)[0], runtime.run(source, feeds)[0]
        assert np.abs(got - want).max() < 1e-2


def test_shared_scales(tmp_path):
    """ONNX Runtime 1.31 computes wrongly with float16 scales that MatMulNBits of accuracy_level 4 share."""
    name = "vespa_bert_mlm_random"
    if name not in REAL:
        pytest.skip("the model does not lie beside the project")
    out = convert(REAL[name], tmp_path / "out.onnx", "--float16", "--bits", "8", "--block", "16", "--target", "ort")
    feeds = runtime.random_feeds(REAL[name])
    got, want = run(out, feeds)[0].astype(np.float64), runtime.run(REAL[name], feeds)[0]
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)


# Of unknown shape, so that ONNX Runtime does not know how to fuse Transpose and MatMul.
TURNED = """
<ir_version: 8, opset_import: ["" : 17]>
turned (float[N] x, int64[R] shape, int64[R] other) => (float[M] y) {
  a = Reshape(x, shape)
  scale = Constant<value = float {0.5}>()
  reshaped = Reshape(x, other)
  b = Mul(reshaped, scale)
  t = Transpose<perm = [1, 2, 0]>(a)
  p = MatMul(b, t)
  flat = Constant<value = int64[1] {-1}>()
  y = Reshape(p, flat)
}"""
LOADS = """
import sys, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


def test_transpose_that_crashes_onnxruntime(tmp_path):
    """It stays in float32. In a model that has it in half, as --target tensorrt makes one, inspect names it."""
    source, path, other = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "other.onnx"
    onnx.save(parser.parse_model(TURNED), source)
    convert(source, path, "--float16")
    convert(source, other, "--float16", "--target", "tensorrt")

    def hazards(model):
        return [h["check"] for h in json.loads(onnxquant("inspect", "--json", model).stdout)["hazards"]]
    assert "ort-transpose" in hazards(other) and "ort-transpose" not in hazards(path)
    crashed, loaded = (subprocess.run([sys.executable, "-c", LOADS, m], capture_output=True) for m in (other, path))
    assert crashed.returncode < 0, "ONNX Runtime loads it now: the rule is not needed any more"
    assert loaded.returncode == 0, loaded.stderr
    feeds = [np.random.default_rng(0).standard_normal(24).astype(np.float32), np.array([4, 2, 3]), np.array([2, 4, 3])]
    s = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert_close(s.run(None, dict(zip(("x", "shape", "other"), feeds))), run(source, feeds))


OVERFLOWS = """
<ir_version: 8, opset_import: ["" : 17]>
overflows (float[64] x) => (float[64] y) {
  c = Constant<value = float {3000.0}>()
  a = Mul(x, c)
  b = Mul(a, c)
  y = Div(b, a)
}"""


def test_overflow_is_named(tmp_path):
    """verify says what helps, and it does."""
    source, path = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(parser.parse_model(OVERFLOWS), source)
    convert(source, path, "--float16")
    r = onnxquant("verify", source, path)
    assert r.status == 1 and "exceed 65504" in r.stdout
    for args in ["--float16", "--float-ops", "Mul,Div"], ["--bfloat16"]:
        convert(source, path, *args)
        r = onnxquant("verify", "--min-output-sqnr", 30, "--engine", "go", source, path)
        assert r.status == 0 and "exceed 65504" not in r.stdout, r.stdout


LARGE = """
<ir_version: 8, opset_import: ["" : 17]>
large (float[N,64] x) => (float[N,64] y) {
  a = LayerNormalization(x, one, zero)
  b = MatMul(a, w)
  r = Relu(b)
  c = MatMul(r, w)
  m = ReduceMean<axes = [1]>(c)
  d = Sub(c, m)
  y = LayerNormalization(d, one, zero)
}"""


@pytest.mark.parametrize("gain, kept", [(20, 0), (3000, 6)])
def test_overflow_is_foreseen(gain, kept, tmp_path):
    """What follows a normalization and two products with large weights stays in float32, up to the next one."""
    rng = np.random.default_rng(0)
    model = parser.parse_model(LARGE)
    w = rng.standard_normal((64, 64)) * gain / 8
    for name, a in ("w", w), ("one", np.ones(64)), ("zero", np.zeros(64)):
        model.graph.initializer.append(numpy_helper.from_array(a.astype(np.float32), name))
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    plan = json.loads(onnxquant("--float16", "--dry-run", "--json", source, out).stdout)
    assert len([k for k in plan["half"]["kept_float32"] if "estimate" in k["reason"]]) == kept
    convert(source, out, "--float16")
    feeds = [rng.standard_normal((4, 64)).astype(np.float32)]
    assert_close(run(out, feeds), runtime.run(source, feeds))


def test_a_deep_model_stays_half(tmp_path):
    """An estimate through many products without normalization says nothing."""
    n = 24
    body = "".join(f"  h{i + 1} = MatMul(h{i}, w)\n" for i in range(n))
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\ndeep (float[4,64] x) => (float[4,64] y) {{\n  h0 = Tanh(x)\n{body}  y = Tanh(h{n})\n}}')
    w = np.random.default_rng(0).standard_normal((64, 64)) * 10 / 8
    model.graph.initializer.append(numpy_helper.from_array(w.astype(np.float32), "w"))
    onnx.save(model, tmp_path / "in.onnx")
    plan = json.loads(onnxquant("--float16", "--dry-run", "--json", tmp_path / "in.onnx", tmp_path / "out.onnx").stdout)
    assert plan["half"]["kept_float32"] == []


def test_measured_ranges_keep_what_overflows(tmp_path):
    """--ranges knows what no estimate does."""
    source, data, ranges, out = (tmp_path / n for n in ["in.onnx", "data.npz", "ranges.json", "out.onnx"])
    onnx.save(parser.parse_model(OVERFLOWS), source)
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    np.savez(data, x=x)
    r = onnxquant("calibrate", "--engine", "go", "--data", data, "-o", ranges, source)
    assert r.status == 0, r.stderr
    onnx.checker.check_model(convert(source, out, "--float16", "--ranges", ranges), full_check=True)
    assert {i.type.tensor_type.elem_type for i in onnx.load(out).graph.input} == {onnx.TensorProto.FLOAT}
    for feed in x:
        assert_close(run(out, [feed]), runtime.run(source, [feed]))
    r = onnxquant("--bfloat16", "--ranges", ranges, source, out)
    assert r.status == 2 and "ranges need static activations or float16" in r.stderr


MODEL = TINYGPT / "model.onnx"


@pytest.mark.parametrize("flag, size, more", [("--float16", 1_200_000, []), ("--float16", 2_000_000, []), ("--bfloat16", 1_300_000, []),
                                              ("--float16", 1_400_000, ["--external-data", "always"])], ids=str)
def test_auto(tmp_path, flag, size, more):
    """--auto knows what becomes half, and that the mask, which float16 cannot hold, stays float32."""
    out = tmp_path / "out.onnx"
    r = onnxquant("--json", flag, "--auto", size, *more, MODEL, out)
    assert r.status == 0, r.stderr
    assert 0.97 * size < sum(f.stat().st_size for f in tmp_path.iterdir()) <= size
    plan = json.loads(r.stdout)["plan"]
    assert len({(t["format"], t["block"]) for t in plan["tensors"] if t["decision"] == "quantize"}) > 1 and plan["half"]["type"] == flag[2:]
    if flag == "--float16":
        ids = np.arange(16, dtype=np.int64).reshape(1, 16)
        assert_close(run(out, [ids]), run(MODEL, [ids]), 0.5)


def test_auto_all_half(tmp_path):
    """Where all fits in float16, nothing is quantized."""
    r = onnxquant("--float16", "--auto", 4_000_000, MODEL, tmp_path / "out.onnx")
    assert r.status == 0 and "the float16 model, 3.6 MiB, already fits in 3.8 MiB" in r.stderr
    assert (tmp_path / "out.onnx").stat().st_size <= 4_000_000
