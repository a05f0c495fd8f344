"""The engine in pure Go, and onnx-go beside it, compute what ONNX Runtime computes."""
import atexit
import base64
import functools
import itertools
import json
import pathlib
import shutil
import subprocess
import tempfile

import ml_dtypes  # noqa: F401, for bfloat16
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import runtime
from command import ROOT, SHARED, TINYGPT


@functools.cache
def tool():
    folder = tempfile.mkdtemp(prefix="evaluate")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    binary = pathlib.Path(folder, "evaluate")
    subprocess.run(["go", "build", "-tags", "onnxgo", "-o", binary, "./test/oracle/evaluate"], cwd=ROOT, check=True)
    return binary


class Beyond(Exception):
    pass


def evaluate(path, feeds, folder):
    """The outputs of the model at path for feeds by name, of each engine."""
    files = []
    for i, (name, value) in enumerate(feeds.items()):
        files.append(folder / f"{i}.pb")
        files[-1].write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    p = subprocess.run([tool(), path, *files], capture_output=True, text=True, timeout=120)
    if p.returncode:
        raise Beyond(p.stderr)
    engines = json.loads(p.stdout)
    for outputs in engines.values():
        for i, o in enumerate(outputs):
            flat = np.frombuffer(base64.b64decode(o["data"] or ""), helper.tensor_dtype_to_np_dtype(o["type"]))
            outputs[i] = flat.reshape(o["dims"] or [])
    return engines


def assert_same(engines, want):
    assert list(engines) == ["onnx-go 0.5.0 (gorgonnx)", "pure Go"]
    for outputs in engines.values():
        runtime.assert_same(outputs, want)


def random(info, seed):
    rng = np.random.default_rng(seed)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape), dtype)
    return np.asarray(rng.integers(0, 2, shape) if dtype == bool else rng.integers(1, 7, shape), dtype)


UNARY = "Abs Ceil Cos Erf Exp Floor Neg Reciprocal Relu Round Sigmoid Sin Tanh Identity Dropout LeakyRelu".split()
BINARY = "Add Sub Mul Div Pow Min Max Equal Less LessOrEqual Greater GreaterOrEqual".split()
SHAPES = [("3,4", "3,4"), ("3,4", "4"), ("4,4", "4"), ("2,3,4", "3,1"), ("1,3,1,5", "2,1,4,1"), ("", "2,3"), ("1", "1"), ("2,0", "1,1")]
FACTORS = [("3,4", "4,5"), ("1,4", "4,1"), ("1,1", "1,1"), ("4", "4,5"), ("3,4", "4"), ("4", "4"), ("2,3,4", "4,5"), ("4", "2,4,3"),
           ("2,3,4", "2,4,5"), ("2,1,3,4", "5,4,2"), ("3,4", "2,4,5"), ("2,3,4", "1,4,5"), ("2,3,4", "4"), ("0,4", "4,2"), ("2,0", "0,3")]
CONV = [
    ("2,4,9,8", "6,4,3,3", "dilations=[1,1]"),
    ("1,4,9,8", "6,4,3,3", "pads=[1,2,0,1]"),
    ("2,4,9,8", "6,2,3,2", "group=2, strides=[2,1], pads=[1,1,1,1]"),
    ("2,4,9,8", "4,1,3,3", "group=4, dilations=[2,2]"),
    ("1,3,7,7", "2,3,1,1", "strides=[3,2]"),
    ("1,3,7,7", "5,3,7,7", "group=1"),
    ("1,3,7,6", "5,3,4,3", 'auto_pad="SAME_UPPER", strides=[2,2]'),
    ("1,3,7,6", "5,3,4,3", 'auto_pad="SAME_LOWER"'),
    ("1,3,7,6", "5,3,4,3", 'auto_pad="VALID"'),
    ("3,4,11", "6,4,3", "pads=[2,0], strides=[2]"),
    ("1,1,5,1", "1,1,2,1", "group=1"),
    ("2,8,80,70", "5,8,3,3", "pads=[1,1,1,1]"),  # patches in two parts
]
TRANSPOSED = [
    ("2,4,5,6", "4,3,3,3", "group=1"),
    ("2,4,5,6", "4,3,3,2", "strides=[2,3], pads=[1,0,1,1]"),
    ("1,4,5,6", "4,3,3,3", "group=2, dilations=[2,1], strides=[2,2], output_padding=[1,1]"),
    ("1,4,5,6", "4,3,2,2", "pads=[1,1,1,1]"),
    ("2,3,7", "3,2,4", "strides=[3], pads=[1,2]"),
]
POOL = [
    ("2,3,8,9", "kernel_shape=[2,2], strides=[2,2]"),
    ("2,3,8,9", "kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]"),
    ("1,1,7,7", 'kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER"'),
    ("2,3,10", "kernel_shape=[3], strides=[3]"),
]
LISTS = {  # operators with lists of integers as inputs, from opset 13 or 18 on
    "Squeeze": ("float[1,3,1] x", "0 0,2 -1"), "Unsqueeze": ("float[2,3] x", "0 1,3 -1"), "Reshape": ("float[2,3,4] x", "6,4 0,-1 2,-1,2"),
    "Expand": ("float[3,1] x", "3,4 2,1,5 1"), "ReduceMean": ("float[2,3,4] x", "0 -1 0,2"), "ReduceSum": ("float[2,3,4] x", "1 0,2"),
    "ReduceMax": ("float[2,3,4] x", "1 0,2"),
}
SLICES = ["{0},{2},{1},{1}", "{1,-3},{100,-1},{0,2},{1,1}", "{-1},{-100},{2},{-1}", "{3,0},{0,4},{1,2},{-2,3}", "{5},{1},{1},{1}"]


def cases():
    def case(name, opset, text):
        return pytest.param(opset, text, id=name)

    for op in UNARY:
        yield case(op, 17, f"(float[2,3,4] x) => (float[] y) {{ y = {op}(x) }}")
        yield case(op + "-scalar", 17, f"(float[] x) => (float[] y) {{ y = {op}(x) }}")
    for op in ("Log", "Sqrt"):
        yield case(op, 17, f"(float[2,3,4] x) => (float[] y) {{ a = Abs(x) y = {op}(a) }}")
    for op in ("Add", "Sub", "Mul", "Div"):
        for t in ("double", "int64", "int32"):
            yield case(f"{op}-{t}", 17, f"({t}[2,3] a, {t}[3] b) => ({t}[] y) {{ y = {op}(a, b) }}")
        yield case(op + "-float16", 17, f"(float16[2,3] a, float16[3] b) => (float16[] y) {{ y = {op}(a, b) }}")
        yield case(op + "-itself", 17, f"(float[2,3] a) => (float[] y) {{ y = {op}(a, a) }}")
    for op, (a, b) in itertools.product(BINARY, SHAPES):
        yield case(f"{op}-{a}-{b}", 17, f"(float[{a}] a, float[{b}] b) => ({'bool' if BINARY.index(op) > 6 else 'float'}[] y)"
                                        f"{{ c = {'Abs' if op == 'Pow' else 'Identity'}(a) y = {op}(c, b) }}")
    for a, b in FACTORS:
        yield case(f"MatMul-{a}-{b}", 17, f"(float[{a}] a, float[{b}] b) => (float[] y) {{ y = MatMul(a, b) }}")
    yield case("MatMul-double", 17, "(double[3,4] a, double[4,5] b) => (double[] y) { y = MatMul(a, b) }")
    yield case("MatMul-float16", 17, "(float16[3,4] a, float16[4,5] b) => (float16[] y) { y = MatMul(a, b) }")
    for a, b, c, how in (("3,4", "4,5", "5", "transA=0"), ("4,3", "5,4", "3,1", "transA=1, transB=1, alpha=0.5, beta=2.0"), ("3,4", "5,4", "", "transB=1, beta=0.5")):
        yield case(f"Gemm-{how}", 17, f"(float[{a}] a, float[{b}] b, float[{c}] c) => (float[] y) {{ y = Gemm<{how}>(a, b, c) }}")
    for x, w, how in CONV:
        yield case(f"Conv-{x}-{w}-{how}", 17, f"(float[{x}] x, float[{w}] w, float[{w.split(',')[0]}] b) => (float[] y) {{ y = Conv<{how}>(x, w, b) }}")
    for x, w, how in TRANSPOSED:
        yield case(f"ConvTranspose-{x}-{w}-{how}", 17, f"(float[{x}] x, float[{w}] w) => (float[] y) {{ y = ConvTranspose<{how}>(x, w) }}")
    for x, how in POOL:
        yield case(f"MaxPool-{x}-{how}", 17, f"(float[{x}] x) => (float[] y) {{ y = MaxPool<{how}>(x) }}")
    for op in ("MaxPool", "AveragePool"):  # as exporters write global pools
        yield case(f"{op}-global", 17, f"(float[2,3,4,5] x) => (float[] y) {{ y = {op}<kernel_shape=[9,9], strides=[9,9], ceil_mode=1>(x) }}")
    yield case("GlobalAveragePool", 17, "(float[2,3,4,5] x) => (float[] y) { y = GlobalAveragePool(x) }")
    yield case("BatchNormalization", 17, "(float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y)"
                                         "{ w = Abs(v) y = BatchNormalization<epsilon=0.1>(x, s, b, m, w) }")
    for a in (-1, 1):
        yield case(f"LayerNormalization-{a}", 17, f"(float[2,3,4] x, float[4] s, float[4] b) => (float[] y) {{ y = LayerNormalization<axis={a}>(x, s, b) }}")
    for opset, a in itertools.product((11, 13), (0, 1, 2, -1)):
        yield case(f"Softmax-{opset}-{a}", opset, f"(float[2,3,4] x) => (float[] y) {{ y = Softmax<axis={a}>(x) }}")
    yield case("Softmax-matrix", 11, "(float[3,4] x) => (float[] y) { y = Softmax<axis=0>(x) }")
    yield case("Clip", 17, "(float[3,4] x) => (float[] y) { a = Constant<value=float {-0.5}>() b = Constant<value=float {0.25}>() y = Clip(x, a, b) }")
    for op, (x, lists) in LISTS.items():
        for list_ in lists.split():
            n = len(list_.split(","))
            yield case(f"{op}-{list_}", 18, f"({x}) => (float[] y) {{ a = Constant<value=int64[{n}] {{{list_}}}>() y = {op}(x, a) }}")
    for op, x in (("Squeeze", "1,3,1"), ("Unsqueeze", "2,3")):
        yield case(f"{op}-attribute", 11, f"(float[{x}] x) => (float[] y) {{ y = {op}<axes=[0,2]>(x) }}")
    yield case("Squeeze-all", 17, "(float[1,3,1] x) => (float[] y) { y = Squeeze(x) }")
    yield case("ReduceMean-attribute", 17, "(float[2,3,4] x) => (float[] y) { y = ReduceMean<axes=[-1], keepdims=0>(x) }")
    yield case("ReduceMean-all", 17, "(float[2,3,4] x) => (float[] y) { y = ReduceMean(x) }")
    for s in SLICES:
        starts, ends, axes, steps = s.split("},{")
        n = len(starts.split(","))
        lists = " ".join(f"{name} = Constant<value=int64[{n}] {{{v.strip('{}')}}}>()" for name, v in zip("stak", (starts, ends, axes, steps)))
        yield case(f"Slice-{s}", 17, f"(float[3,4,5] x) => (float[] y) {{ {lists} y = Slice(x, s, t, a, k) }}")
    yield case("Slice-attribute", 9, "(float[3,4,5] x) => (float[] y) { y = Slice<starts=[1,0], ends=[-1,3], axes=[1,2]>(x) }")
    for perm in ("1,0,2", "2,0,1", "0,2,1"):
        yield case(f"Transpose-{perm}", 17, f"(float[2,3,4] x) => (float[] y) {{ y = Transpose<perm=[{perm}]>(x) }}")
    yield case("Transpose", 17, "(float[2,3,4] x) => (float[] y) { y = Transpose(x) }")
    for a in (0, 1, -1):
        yield case(f"Concat-{a}", 17, f"(float[2,3] a, float[2,3] b) => (float[] y) {{ y = Concat<axis={a}>(a, b, a) }}")
        yield case(f"Gather-{a}", 17, f"(float[3,4,3] x) => (float[] y) {{ i = Constant<value=int64[2,2] {{0,2,-1,1}}>() y = Gather<axis={a}>(x, i) }}")
        yield case(f"Flatten-{a}", 17, f"(float[2,3,4] x) => (float[] y) {{ y = Flatten<axis={a}>(x) }}")
    yield case("Split", 18, "(float[7,2] x) => (float[] y, float[] z, float[] w) { y, z, w = Split<num_outputs=3>(x) }")
    yield case("Split-sizes", 17, "(float[2,6] x) => (float[] y, float[] z) { n = Constant<value=int64[2] {1,5}>() y, z = Split<axis=1>(x, n) }")
    yield case("Split-attribute", 11, "(float[2,6] x) => (float[] y, float[] z) { y, z = Split<axis=1, split=[2,4]>(x) }")
    for mode in ("constant", "reflect"):
        yield case(f"Pad-{mode}", 17, f'(float[3,4] x) => (float[] y) {{ p = Constant<value=int64[4] {{1,0,2,3}}>() y = Pad<mode="{mode}">(x, p) }}')
    yield case("Pad-cut", 17, "(float[3,4] x, float v) => (float[] y) { p = Constant<value=int64[4] {-1,2,1,-1}>() y = Pad(x, p, v) }")
    for mode in ("DCR", "CRD"):
        yield case(f"DepthToSpace-{mode}", 17, f'(float[2,8,2,3] x) => (float[] y) {{ y = DepthToSpace<blocksize=2, mode="{mode}">(x) }}')
    for bounds in ("", "<start=1>", "<end=-1>", "<start=-2, end=5>"):
        yield case(f"Shape-{bounds}", 17, f"(float[2,3,4] x) => (int64[] y) {{ y = Shape{bounds}(x) }}")
    for a, b, k in ((0, 5, 1), (5, 0, -2), (1, 8, 3), (3, 3, 1)):
        yield case(f"Range-{a}-{b}-{k}", 17, f"() => (int64[] y) {{ a = Constant<value=int64 {{{a}}}>() b = Constant<value=int64 {{{b}}}>()"
                                             f"k = Constant<value=int64 {{{k}}}>() y = Range(a, b, k) }}")
    yield case("ConstantOfShape", 17, "() => (int64[] y) { n = Constant<value=int64[2] {2,3}>() y = ConstantOfShape<value=int64[1] {7}>(n) }")
    for a, b in (("float", "int64"), ("int64", "float"), ("float", "bool"), ("bool", "float"), ("float", "float16"), ("int32", "int64"), ("double", "float"), ("int64", "bool")):
        code = onnx.TensorProto.DataType.Value({"float": "FLOAT", "bool": "BOOL", "int64": "INT64", "float16": "FLOAT16"}[b])
        yield case(f"Cast-{a}-{b}", 17, f"({a}[3,4] x) => ({b}[] y) {{ y = Cast<to={code}>(x) }}")
    for op in ("And", "Or"):
        yield case(op, 17, f"(bool[4,4] a, bool[4] b) => (bool[] y) {{ y = {op}(a, b) }}")
    yield case("Not", 17, "(bool[4] a) => (bool[] y) { y = Not(a) }")
    yield case("Where", 17, "(bool[4,1] c, float[4] a, float[] b) => (float[] y) { y = Where(c, a, b) }")
    for branch in ("true", "false"):
        value = int(branch == "true")
        yield case(f"If-{branch}", 17, f"(float[3] x) => (float[] y) {{ c = Constant<value=bool {{{value}}}>() h = Neg(x)"
                                       "y = If(c) <then_branch = a () => (float[3] t) { t = Relu(h) }, else_branch = b () => (float[3] e) { s = Abs(x) e = Add(s, h) }> }")


@pytest.mark.parametrize("opset, text", list(cases()))
def test_computes_the_same(opset, text, tmp_path):
    model = helper.make_model(parser.parse_graph("g " + text), ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {x.name: random(x, i) for i, x in enumerate(model.graph.input)}
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert_same(evaluate(path, feeds, tmp_path), runtime.run(model, list(feeds.values())))


CODES = [("float", 17, "uint8", 7), ("float", 17, "int8", -5), ("float", 21, "uint16", 32768), ("float", 21, "int16", 3), ("float16", 21, "uint8", 200)]


@pytest.mark.parametrize("channels", [False, True], ids=["tensor", "channels"])
@pytest.mark.parametrize("elements, opset, codes, zero", CODES)
def test_codes_are_exact(elements, opset, codes, zero, channels, tmp_path):
    """QuantizeLinear and DequantizeLinear give the bits that ONNX Runtime does: ties, saturation, NaN and infinity."""
    dtype, limits = np.dtype({"float": "float32"}.get(elements, elements)), np.iinfo(codes)
    scales = np.array([0.5, 0.25, 0.0371], dtype) if channels else np.array(0.125, dtype)
    ends = np.array([limits.max - zero, limits.min - zero + 0.5])
    steps = np.concatenate([[0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, 1e5, -1e5], ends])
    spread = np.random.default_rng(1).uniform(-2, 2, (3, 5000)) * limits.max
    x = np.concatenate([np.tile(steps, (3, 1)), spread], 1) * np.reshape(scales, (-1, 1))
    x = np.stack([x, -x]).astype(dtype)
    if elements == "float":
        x[0, :, 0] = [np.nan, np.inf, -np.inf]
    zeros = np.broadcast_to(np.array(zero, codes), scales.shape)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=-2), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1)]
    types = {"x": x.dtype, "q": np.dtype(codes), "y": x.dtype}
    info = {n: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(t), x.shape) for n, t in types.items()}
    tensors = [numpy_helper.from_array(scales, "s"), numpy_helper.from_array(np.ascontiguousarray(zeros), "z")]
    model = helper.make_model(helper.make_graph(nodes, "g", [info["x"]], [info["q"], info["y"]], tensors), ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(model, tmp_path / "model.onnx")
    want = runtime.run(model, [x])
    for outputs in evaluate(tmp_path / "model.onnx", {"x": x}, tmp_path).values():
        for have, exact in zip(outputs, want, strict=True):
            np.testing.assert_array_equal(have, exact)


# gorgonnx leaves out zeros.
def test_zero_times_infinity(tmp_path):
    text = "g (float[3,4] a, float[4,5] b) => (float[] y) { n = Relu(a) z = Sub(b, b) i = Log(z) y = MatMul(n, i) }"
    model = helper.make_model(parser.parse_graph(text), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    feeds = {x.name: random(x, i) for i, x in enumerate(model.graph.input)}
    onnx.save(model, tmp_path / "model.onnx")
    engines = evaluate(tmp_path / "model.onnx", feeds, tmp_path)
    assert list(engines) == ["pure Go"]
    runtime.assert_same(engines["pure Go"], runtime.run(model, list(feeds.values())))


# What cannot be run right is refused by name.
@pytest.mark.parametrize("text, says", [
    ("(float[2,3] x) => (float[] y) { y = RandomNormalLike(x) }", "RandomNormalLike node"),
    ("(float[1,1,4,4] x) => (float[] y) { y = MaxPool<kernel_shape=[3,3], surprise=1, strides=[2,2]>(x) }", "surprise"),
    ("(float[1,1,4,4,4,4] x, float[1,1,2,2,2,2] w) => (float[] y) { y = Conv(x, w) }", "4 spatial dimensions"),
])
def test_refuses_what_is_beyond_it(text, says, tmp_path):
    model = helper.make_model(parser.parse_graph("g " + text), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(Beyond, match="not supported") as e:
        evaluate(tmp_path / "model.onnx", {x.name: random(x, 0) for x in model.graph.input}, tmp_path)
    assert says in str(e.value)


MODELS = {p.parent.name: p for p in [TINYGPT / "model.onnx", *sorted((SHARED / "models" / "real").glob("*/model.onnx"))]}
WITHIN = ["tinygpt", "dtln_model_2", "mnist8", "mujoco_apollo_policy", pytest.param("super_resolution", marks=pytest.mark.long), "vespa_bert_mlm_random"]


@pytest.mark.parametrize("name", WITHIN)
def test_real_models(name, tmp_path):
    if name not in MODELS:
        pytest.skip("the model does not lie beside the project")
    names = [i.name for i in runtime.session(MODELS[name]).get_inputs()]
    feeds = runtime.random_feeds(MODELS[name])
    assert_same(evaluate(MODELS[name], dict(zip(names, feeds)), tmp_path), runtime.run(MODELS[name], feeds))


def test_mnist_gives_the_stored_outputs(tmp_path):
    if "mnist8" not in MODELS:
        pytest.skip("the model does not lie beside the project")
    for folder in sorted(MODELS["mnist8"].parent.glob("test_data_set_*")):
        def stored(kind):
            t = onnx.TensorProto()
            t.ParseFromString((folder / f"{kind}_0.pb").read_bytes())
            return numpy_helper.to_array(t)
        for got, in evaluate(MODELS["mnist8"], {"Input3": stored("input")}, tmp_path).values():
            np.testing.assert_allclose(got, stored("output"), rtol=1e-4, atol=1e-3)
