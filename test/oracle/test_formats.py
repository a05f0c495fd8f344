"""Every number format in both its forms: the standard's own types, and what ONNX Runtime runs.

What decodes the weights is cut out of the converted models and evaluated
apart: the portable form by the evaluator of the onnx package, the other by
ONNX Runtime. Both have to give the same bits, with the errors that the report
tells. Then whole models run, and compute what the float model does once these
values are put into it.
"""
import copy
import json
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphs
import grid
import runtime
from command import CORPUS, SHARED, TINYGPT, onnxquant
from test_real import FEEDS


class Format(NamedTuple):
    args: str
    codes: int
    scale: int | None  # the weight's type where it is None
    opset: int  # the least one for weights of 32 bits
    opset_ort: int
    tables: bool = False  # whether no standard has the format, and the portable form a table as well
    stored: frozenset = frozenset()  # all types that both forms store, in the encodings of ggml


T = TensorProto
FORMATS = {
    "int2": Format("--format int2 --block 16", T.INT2, None, 25, 25),
    "uint2": Format("--format uint2 --block 16", T.UINT2, None, 25, 25),
    "int4": Format("--format int4 --block 32", T.INT4, None, 21, 21),
    "uint4": Format("--format uint4 --block 32", T.UINT4, None, 21, 21),
    "int8": Format("--format int8 --block 64", T.INT8, None, 21, 21),
    "uint8": Format("--format uint8 --block 64", T.UINT8, None, 21, 21),
    "fp8-e4m3": Format("--format fp8-e4m3 --block -1", T.FLOAT8E4M3FN, None, 19, 19),
    "fp8-e5m2": Format("--format fp8-e5m2 --block 32", T.FLOAT8E5M2, None, 21, 21),
    "nvfp4": Format("--format nvfp4", T.FLOAT4E2M1, T.FLOAT8E4M3FN, 23, 21),
    "mxfp4": Format("--format mxfp4", T.FLOAT4E2M1, T.FLOAT8E8M0, 24, 24),
    "mxfp8": Format("--format mxfp8", T.FLOAT8E4M3FN, T.FLOAT8E8M0, 24, 24),
    "mxfp8-e5m2": Format("--format mxfp8-e5m2", T.FLOAT8E5M2, T.FLOAT8E8M0, 24, 24),
    "nf4": Format("--format nf4", T.UINT4, None, 21, 21, tables=True),
    "fp4": Format("--format fp4", T.UINT4, None, 21, 21, tables=True),
}

# Other settings, for the larger models.
MORE = {
    "int4-zero-point": FORMATS["int4"]._replace(args="--format int4 --block 64 --zero-point"),
    "int8-channel": FORMATS["int8"]._replace(args="--format int8 --block -1", opset=13, opset_ort=13),
    "fp8-e4m3-blocks": FORMATS["fp8-e4m3"]._replace(args="--format fp8-e4m3 --block 128", opset=21, opset_ort=21),
    "nvfp4-32": FORMATS["nvfp4"]._replace(args="--format nvfp4 --block 32"),
    "mxfp4-ceil": FORMATS["mxfp4"]._replace(args="--format mxfp4 --scale-rule ceil"),
    "mxfp8-ocp": FORMATS["mxfp8"]._replace(args="--format mxfp8 --scale-rule ocp"),
}


SETTINGS = tempfile.TemporaryDirectory()


def encoding(name, codes, *more):
    """An encoding of ggml, whose scales are float16, and which stores other types as well. It is asked for weight
    by weight: with --format, small ones get int8."""
    opset = 25 if codes == T.UINT2 else 21
    settings = pathlib.Path(SETTINGS.name, f"{name}.json")
    settings.write_text(json.dumps({"*": {"format": name}}))
    return Format(f"--precision-info {settings}", codes, T.FLOAT16, opset, opset, stored=frozenset({codes, T.FLOAT16, *more}))


MINS = (T.INT32,)  # the numbers of blocks, by which mins are spread
ENCODINGS = {
    "q4_0": encoding("q4_0", T.INT4),
    "q4_1": encoding("q4_1", T.UINT4, *MINS),
    "q5_0": encoding("q5_0", T.INT8),
    "q5_1": encoding("q5_1", T.UINT8, *MINS),
    "q8_0": encoding("q8_0", T.INT8),
    "iq4_nl": encoding("iq4_nl", T.UINT4, T.FLOAT, T.INT32),
    "q2_k": encoding("q2_k", T.UINT2, T.UINT8, *MINS),
    "q3_k": encoding("q3_k", T.INT4, T.INT8),
    "q4_k": encoding("q4_k", T.UINT4, T.UINT8, *MINS),
    "q5_k": encoding("q5_k", T.UINT8, *MINS),
    "q6_k": encoding("q6_k", T.INT8),
}

# The types of codes that ONNX Runtime has no operators for.
LACKING = {T.FLOAT4E2M1}

REAL = {name: SHARED / "models" / "real" / name / "model.onnx" for name in ("magika_v1", "tashkeel_fp32")}
MODELS = {"tinygpt": TINYGPT / "model.onnx"} | {name: path for name, path in REAL.items() if path.exists()}

STRUCTURES = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((STRUCTURES / "INDEX.json").read_text())
         if {"MatMul:1", "Gemm:1"} & {u.removeprefix("ai.onnx.") for w in c["weights"] for u in w["consumers"]}}


NAMELESS = {"sparse_constant"}
# ONNX Runtime has no Swish of opset 25, which 2 bits need: --target ort keeps the weight.
KEPT = {("opset24", "int2"), ("opset24", "uint2")}


class Weight(NamedTuple):
    path: str  # its name, the attributes that lead there in front
    name: str
    original: onnx.TensorProto
    where: tuple  # the path of its graph, as graphs.scopes has it
    scope: graphs.Scope  # that graph in the converted model


class Form:
    """One form of a model, and the values of its weights as a runtime decodes them."""

    def __init__(self, original, source, path, args, runner):
        self.path = path
        r = onnxquant("--json", *args, source, path)
        assert r.status == 0, r.stderr
        self.errors = {t["name"]: (t["max_error"], t["mse"]) for t in json.loads(r.stdout)["quantized"]}
        self.model = graphs.load(path)
        self.weights = list(quantized(original, self.model))
        self.parts = [decoding(self.model, scope, [w for w in self.weights if w.scope is scope])
                      for scope in {id(w.scope): w.scope for w in self.weights}.values()]
        self.values = [np.asarray(v) for part in self.parts for v in runtime.run(part, [], runner, fused=False)]

    def check_errors(self):
        """The report tells of every weight, and how far its values are off: in float32, as it measures."""
        assert sorted(self.errors) == sorted(w.path for w in self.weights)
        for w, y in zip(self.weights, self.values):
            x = numpy_helper.to_array(w.original)
            assert y.shape == x.shape and y.dtype == x.dtype, f"{w.path!r}: {y.dtype}{y.shape}"
            off = np.abs(x.astype(np.float32) - y.astype(np.float32)).astype(np.float64)
            assert self.errors[w.path] == (off.max(), pytest.approx(np.mean(off * off), rel=1e-12)), w.path

    def stored(self):
        """The types of what is stored to decode the weights."""
        return {t.data_type for part in self.parts for t in part.graph.initializer}

    def operators(self):
        return {n.op_type for part in self.parts for n in part.graph.node}


def quantized(original, converted):
    """The weights that nodes make in the converted model."""
    after = graphs.scopes(converted)
    for path, scope in graphs.scopes(original).items():
        for name, tensor in scope.stored.items():
            if path in after and name in after[path].made and name not in after[path].stored:
                yield Weight("/".join([*(step[1] for step in path), name]), name, tensor, path, after[path])


def decoding(model, scope, weights):
    """A model of only that which decodes the weights of one graph."""
    nodes, stored = {}, {}

    def need(name):
        tensor = scope.tensor(name)
        if tensor is not None:
            stored[name] = tensor
        elif name not in nodes:
            node = copy.deepcopy(scope.home(name).made[name])
            node.domain = graphs.domain(node.domain)
            for i in node.input:
                need(i)
            nodes[name] = node

    for w in weights:
        need(w.name)
    outputs = [helper.make_tensor_value_info(w.name, w.original.data_type, w.original.dims) for w in weights]
    graph = helper.make_graph(list(nodes.values()), "decoding", [], outputs, list(stored.values()))
    # The evaluator has no DequantizeLinear below 19, where it says the same.
    opset = helper.make_opsetid("", max(19, graphs.opset(model)))
    return helper.make_model(graph, opset_imports=[opset], ir_version=max(9, model.ir_version))


def stored(folder, kind):
    """The stored inputs or outputs of a structure."""
    files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(p)) for p in files]


class Forms:
    """A model in both forms."""

    def __init__(self, source, fmt, folder, runner="onnxruntime"):
        self.fmt, self.runner = fmt, runner
        self.original = graphs.load(source)
        args = fmt.args.split()
        self.portable = Form(self.original, source, folder / "portable.onnx", args, "onnx-reference")
        self.ort = Form(self.original, source, folder / "ort.onnx", [*args, "--target", "ort", "--style", "dq"], runner)

    def check_valid(self, full=True):
        """The checker passes, and the versions are raised as far as needed."""
        for form, needed in (self.portable, self.fmt.opset), (self.ort, self.fmt.opset_ort):
            onnx.checker.check_model(form.path, full_check=full)
            before, after = graphs.opset(self.original), graphs.opset(form.model)
            assert after == max(before, self.needed(form, needed)), f"opset {before} became {after}"
            least = helper.OP_SET_ID_VERSION_MAP["ai.onnx", after] if form.weights else 0
            assert form.model.ir_version == max(self.original.ir_version, least)

    def needed(self, form, opset):
        """The least opset for the format, given that it is opset for weights of 32 bits."""
        if not form.weights:
            return 0
        narrow = any(w.original.data_type in (T.FLOAT16, T.BFLOAT16) for w in form.weights)
        blocks = any(a.name == "block_size" for part in form.parts for n in part.graph.node for a in n.attribute)
        return max(opset, 19 if narrow else 0, 21 if blocks else 0)

    def check_types(self):
        """The portable form has the format's own types, the other none that the runtime lacks."""
        types = {w.original.data_type for w in self.portable.weights}
        if not types:
            return
        if self.fmt.stored:
            # Weights of a single block need no numbers of blocks, those of another type the type of a shape.
            for form in self.portable, self.ort:
                assert self.fmt.stored - {T.INT32} <= form.stored() <= self.fmt.stored | {T.INT64}
            return
        scales = {T.FLOAT if t == T.DOUBLE else t for t in types} if self.fmt.scale is None else {self.fmt.scale}
        if self.fmt.scale == T.FLOAT8E4M3FN:
            scales |= {T.FLOAT}  # of the whole tensor
        tabled = {T.UINT4, T.FLOAT} | scales
        if self.fmt.tables:
            assert self.portable.stored() - {T.INT32} == tabled
        else:
            assert self.portable.stored() - self.apart({T.INT64}) == {self.fmt.codes} | scales
            assert self.portable.operators() - ({"Cast"} if T.DOUBLE in types else set()) - self.apart({"Reshape"}) == {"DequantizeLinear"}
        if self.fmt.tables or self.fmt.codes in LACKING:
            assert self.ort.stored() - {T.INT32} == tabled
        else:
            assert self.ort.stored() - self.apart({T.INT64}) == {self.fmt.codes} | scales

    def apart(self, what):
        """What two bits need besides if a number of columns is no multiple of 4: codes get a third axis, lest ONNX Runtime fuses them."""
        odd = any(d % 4 for w in self.portable.weights for d in w.original.dims)
        return what if odd and self.fmt.codes in (T.INT2, T.UINT2) else set()

    def check_values(self):
        """Both forms decode to the same bits, and to what the report says."""
        self.portable.check_errors()
        self.ort.check_errors()
        assert [w.path for w in self.portable.weights] == [w.path for w in self.ort.weights]
        for w, a, b in zip(self.portable.weights, self.portable.values, self.ort.values):
            same = a.tobytes() == b.tobytes()  # a variable: pytest would compare the bytes for minutes
            assert same, f"{w.path!r} has other values in the form for ONNX Runtime"

    def check_runs(self, feeds, portable=True, fused=True):
        """Both forms compute what the float model does with the decoded weights in place of its own."""
        if self.fmt.codes in (T.INT2, T.UINT2):
            fused = False  # ONNX Runtime 1.31 computes garbage from some of them that it fuses
        got, want = (runtime.run(m, feeds, self.runner, fused, packed=False) for m in (self.ort.path, self.put_back()))
        runtime.assert_same(got, want)
        if portable:
            runtime.assert_same(runtime.run(self.portable.path, feeds, "onnx-reference"), got)

    def put_back(self):
        """The float model with the decoded weights."""
        model = copy.deepcopy(self.original)
        scopes = graphs.scopes(model)
        for w, value in zip(self.portable.weights, self.portable.values):
            scopes[w.where].stored[w.name].CopyFrom(numpy_helper.from_array(value, w.original.name))
        return model


# For all structures, one of each form: those left out have other numbers in the same nodes. Of
# encodings that is one without parts and mins, with mins, with parts, and with both.
STRUCTURED = FORMATS | {name: ENCODINGS[name] for name in ("q4_0", "q5_1", "q6_k", "q4_k", "iq4_nl")}
del STRUCTURED["mxfp8-e5m2"], STRUCTURED["fp4"]

# What the runtime cannot run although it is right.
UNRUNNABLE = {("opset24", "int2"), ("opset24", "uint2")}  # it has Swish of opset 24, but not in a model of opset 25

# A hundred products in a row make more of the runtimes' different rounding than it was.
MAGNIFIES = {"deep_graph"}

# Where ONNX Runtime 1.31 fuses a product of two decoded weights into one of
# integers, which it then has not for their types.
FUSED_WRONGLY = {"matmul_w_w"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case, fmt", grid.pairs(CASES, [f for f in STRUCTURED if f in FORMATS], [f for f in STRUCTURED if f in ENCODINGS]))
def test_structure(case, fmt, tmp_path):
    index, folder = CASES[case], STRUCTURES / case
    runner = index["runner"]
    if case in NAMELESS and fmt in ENCODINGS:
        pytest.skip("encodings are asked for by name, and the weight has none")
    forms = Forms(folder / "model.onnx", STRUCTURED[fmt], tmp_path, "onnxruntime" if runner == "none" else runner)
    if (case, fmt) in KEPT:
        assert not forms.ort.weights
        return
    forms.check_types()
    forms.check_values()
    if index["checked"] != "none":
        forms.check_valid(full=index["checked"] == "full")
    if forms.ort.weights and runner != "none" and (case, fmt) not in UNRUNNABLE:
        evaluated = index.get("reference_agrees", False) and case not in MAGNIFIES
        forms.check_runs(stored(folder, "input"), portable=evaluated, fused=case not in FUSED_WRONGLY)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("fmt", FORMATS | MORE | ENCODINGS)
@pytest.mark.parametrize("name", MODELS)
def test_model(name, fmt, tmp_path):
    forms = Forms(MODELS[name], (FORMATS | MORE | ENCODINGS)[fmt], tmp_path)
    assert forms.portable.weights
    forms.check_types()
    forms.check_values()
    forms.check_valid()
    forms.check_runs(runtime.random_feeds(MODELS[name], **FEEDS.get(name, {})), portable=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case, fmt", grid.pairs([c for c in CASES if CASES[c]["runner"] == "onnxruntime"], ["q4_0", "q8_0"]))
def test_nbits(case, fmt, tmp_path):
    """Blocks that are integers with a scale have the same values in what ONNX Runtime's operators read."""
    if case in NAMELESS:
        pytest.skip("encodings are asked for by name, and the weight has none")
    source, out = STRUCTURES / case / "model.onnx", tmp_path / "out.onnx"
    r = onnxquant("--format", fmt, "--style", "nbits", source, out)
    assert r.status == 0, r.stderr
    forms = Forms(source, ENCODINGS[fmt], tmp_path)
    feeds = stored(STRUCTURES / case, "input")
    runtime.assert_same(runtime.run(out, feeds, packed=False), runtime.run(forms.put_back(), feeds, packed=False))


def test_mixed(tmp_path):
    """Each weight in a format of its own: the values are those that it has where all have that format."""
    formats = ["q4_0", "q6_k", "int4", "q2_k", "iq4_nl", "nvfp4", "q4_k"]
    source, out, mix = TINYGPT / "model.onnx", tmp_path / "out.onnx", tmp_path / "mix.json"
    r = onnxquant("--dry-run", "--json", source)
    names = [t["name"] for t in json.loads(r.stdout)["tensors"] if t["decision"] == "quantize"]
    mixed = {name: formats[i % len(formats)] for i, name in enumerate(names)}
    mix.write_text(json.dumps({name: {"format": fmt} for name, fmt in mixed.items()}))
    original = graphs.load(source)
    got = Form(original, source, out, ["--precision-info", mix, "--target", "ort", "--style", "dq"], "onnxruntime")
    onnx.checker.check_model(out, full_check=True)
    values = {w.name: v for w, v in zip(got.weights, got.values)}
    assert values.keys() == mixed.keys()
    for fmt in formats:
        args = ["--format", fmt, "--target", "ort", "--style", "dq"]
        alone = Form(original, source, tmp_path / "alone.onnx", args, "onnxruntime")
        for w, v in zip(alone.weights, alone.values):
            assert mixed[w.name] != fmt or values[w.name].tobytes() == v.tobytes(), f"{w.name!r} in {fmt}"
    for w in got.weights:
        next(t for t in original.graph.initializer if t.name == w.name).CopyFrom(numpy_helper.from_array(values[w.name], w.name))
    feeds = runtime.random_feeds(source)
    want = runtime.run(original, feeds, fused=False, packed=False)
    runtime.assert_same(runtime.run(out, feeds, fused=False, packed=False), want)
