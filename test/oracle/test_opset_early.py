"""Models at opsets 1 to 6 compute what their definitions say, after internal/opset raised them.

No runtime has kernels for all of these, so numpy states what each operator meant. Each case
stands for a change up to opset 7; the operators that only lost consumed_inputs are compared
with themselves at opset 7.
"""
import functools
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import defs, helper

import opsets
from command import onnxquant
from test_opset_adapters import F16, F32, I64, RNG, Case, assert_equal, check_branches, check_graph, run, targets


@dataclass
class Early(Case):
    """A case whose outputs numpy tells."""
    meaning: object = None  # of the inputs by their names: a list of outputs

    @functools.cached_property
    def want(self):
        with np.errstate(all="ignore"):
            outputs = self.meaning(**{**self.feeds, **self.stored})
        return [np.asarray(o) for o in (outputs if isinstance(outputs, list) else [outputs])]


A = "float[2,3,4,5] a"


def aligned(b, axis, rank=4):
    return b.reshape(b.shape + (1,) * (rank - axis - b.ndim))


def pooled(x, power):
    """2 by 2, without overlap."""
    n, c, h, w = x.shape
    return (np.abs(x).reshape(n, c, h // 2, 2, w // 2, 2) ** power).sum((3, 5)) ** (1 / power)


def averaged(x):
    """Windows of 3, padded by 1; the padding does not count."""
    padded, ones = (np.pad(v, ((0, 0), (0, 0), (1, 1), (1, 1))) for v in (x, np.ones_like(x)))
    def sums(v):
        return sum(v[:, :, i:i + x.shape[2], j:j + x.shape[3]] for i in range(3) for j in range(3))
    return sums(padded) / sums(ones)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent(x, w, r):
    """RNN without biases: [time, batch, input] to [time, 1, batch, hidden]."""
    h, steps = np.zeros((x.shape[1], r.shape[1]), F32), []
    for t in x:
        h = np.tanh(t @ w[0].T + h @ r[0].T)
        steps.append(h[None])
    return [np.stack(steps), steps[-1]]


def gated(x, w, r):
    """GRU without biases, linear_before_reset 0: gates z, r, h."""
    hidden = r.shape[2]
    (wz, wr, wh), (rz, rr, rh) = (np.split(v[0], 3) for v in (w, r))
    h, steps = np.zeros((x.shape[1], hidden), F32), []
    for t in x:
        z, reset = sigmoid(t @ wz.T + h @ rz.T), sigmoid(t @ wr.T + h @ rr.T)
        h = (1 - z) * np.tanh(t @ wh.T + (reset * h) @ rh.T) + z * h
        steps.append(h[None])
    return [np.stack(steps), steps[-1]]


def long_short(x, w, r):
    """LSTM without biases: gates i, o, f, c."""
    (wi, wo, wf, wc), (ri, ro, rf, rc) = (np.split(v[0], 4) for v in (w, r))
    h = c = np.zeros((x.shape[1], r.shape[2]), F32)
    steps = []
    for t in x:
        i, o, f = (sigmoid(t @ wg.T + h @ rg.T) for wg, rg in ((wi, ri), (wo, ro), (wf, rf)))
        c = f * c + i * np.tanh(t @ wc.T + h @ rc.T)
        h = o * np.tanh(c)
        steps.append(h[None])
    return [np.stack(steps), steps[-1]]


def normalized(x, s, b, m, v):
    s, b, m, v = (t[:, None] for t in (s, b, m, v))
    return (x - m) / np.sqrt(v + F32(1e-5)) * s + b


def trained(x, s, b, m, v):
    mean, var = x.mean((0, 2)), x.var((0, 2))
    return [normalized(x, s, b, mean, var), m * F32(.9) + mean * F32(.1), v * F32(.9) + var * F32(.1)]


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": lambda a, b: np.power(np.abs(a), b)}
COMPARISONS = {"Less": np.less, "Greater": np.greater, "Equal": np.equal}
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}

CASES = {
    "prelu_channels": Early(6, f"({A}, float[3] s) => (float[] y) {{ y = PRelu(a, s) }}", meaning=lambda a, s: np.where(a < 0, a * aligned(s, 1), a)),
    "prelu_one": Early(1, f"({A}, float[1] s) => (float[] y) {{ y = PRelu<consumed_inputs=[0,0]>(a, s) }}", meaning=lambda a, s: np.where(a < 0, a * s, a)),
    "prelu_unknown_rank": Early(6, f"({A}, float[3] s, int64[4] n) => (float[] y) {{ h = Reshape(a, n)\n y = PRelu(h, s) }}", {"n": np.array([2, 3, 4, 5], I64)},
                                meaning=lambda a, s, n: np.where(a < 0, a * aligned(s, 1), a)),
    "averagepool": Early(1, f"({A}) => (float[] y) {{ y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a) }}", meaning=lambda a: averaged(a)),
    "lppool": Early(1, "(float[1,2,4,6] x) => (float[] y) { y = LpPool<kernel_shape=[2,2], strides=[2,2], p=3.0>(x) }", meaning=lambda x: pooled(x, 3)),
    "lppool_default": Early(1, "(float[1,2,4,6] x) => (float[] y) { y = LpPool<kernel_shape=[2,2], strides=[2,2]>(x) }", meaning=lambda x: pooled(x, 2)),
    "globallppool": Early(1, "(float[1,2,4,6] x) => (float[] y) { y = GlobalLpPool<p=1.0>(x) }", meaning=lambda x: np.abs(x).sum((2, 3), keepdims=True), most=21),

    **{f"batchnorm_{opset}_{name}": Early(
        opset, f"(float[2,3,2] x, float[3] s, float[3] b, float[3] m) => (float[] y) {{ {outputs} = BatchNormalization{attributes}(x, s, b, m, v) }}",
        stored={"v": np.array([1, 2, .5], F32)}, meaning=lambda x, s, b, m, v: normalized(x, s, b, m, v))
       for opset, consumed in ((1, "consumed_inputs=[0,0,0,1,1], "), (6, ""))
       for name, outputs, attributes in (("testing", "y", f"<{consumed}is_test=1>"), ("testing_idle", "y, rm, rv, sm, sv", f"<{consumed}is_test=1>"), ("one_output", "y", f"<{consumed}is_test=0>"))},
    "batchnorm_training": Early(6, "(float[4,3,2] x, float[3] s, float[3] b, float[3] m) => (float[] y, float[] rm, float[] rv) { y, rm, rv, sm, sv = BatchNormalization(x, s, b, m, v) }",
                                stored={"v": np.array([1, 2, .5], F32)}, meaning=lambda x, s, b, m, v: trained(x, s, b, m, v), least=16),
    "batchnorm_elements": Early(6, "(float[2,3,2] x, float[3,2] s, float[3,2] b, float[3,2] m) => (float[] y) { y = BatchNormalization<is_test=1, spatial=0>(x, s, b, m, v) }",
                                stored={"v": np.array([[1, 2], [.5, 3], [4, 1]], F32)}, meaning=lambda x, s, b, m, v: (x - m) / np.sqrt(v + F32(1e-5)) * s + b),
    "dropout": Early(1, f"({A}) => (float[] y) {{ y, m = Dropout<is_test=1, ratio=0.3, consumed_inputs=[0]>(a) }}", meaning=lambda a: a),

    "gemm_rows": Early(1, "(float[2,3] a, float[4,3] b, float[4] d) => (float[] y) { y = Gemm<broadcast=1, transB=1, alpha=0.5, beta=2.0>(a, b, d) }",
                       meaning=lambda a, b, d: a @ b.T / 2 + 2 * d),
    "gemm_one": Early(6, "(float[2,3] a, float[3,4] b, float[1] d) => (float[] y) { y = Gemm<broadcast=1>(a, b, d) }", meaning=lambda a, b, d: a @ b + d),
    "gemm_whole": Early(6, "(float[2,3] a, float[3,4] b, float[2,4] d) => (float[] y) { y = Gemm(a, b, d) }", meaning=lambda a, b, d: a @ b + d),

    **{f"cast_{name}": Early(1, f"({A}) => ({kind}[] y) {{ y = Cast<to=\"{name}\">(a) }}", meaning=lambda a, t=t: a.astype(t))
       for name, kind, t in (("FLOAT16", "float16", F16), ("DOUBLE", "double", np.float64), ("INT32", "int32", np.int32), ("BOOL", "bool", bool))},
    "cast_name_at_7": Early(7, f"({A}) => (double[] y) {{ y = Cast<to=\"DOUBLE\">(a) }}", meaning=lambda a: a.astype(np.float64)),
    "concat_default_axis": Early(1, "(float[2,3,4] a, float[2,1,4] b) => (float[] y) { y = Concat(a, b) }", meaning=lambda a, b: np.concatenate([a, b], 1)),
    "aligned_joined": Early(6, "(float[3,8] a, float[3] b) => (float[] y) { h = Add<broadcast=1, axis=0>(a, b)\n y = Concat<axis=1>(h, a) }",
                            meaning=lambda a, b: np.concatenate([a + b[:, None], a], 1)),
    "pad": Early(1, "(float[2,3] x) => (float[] y) { y = Pad<mode=\"constant\", paddings=[0,1,0,2], value=1.5>(x) }", meaning=lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=1.5)),
    "pad_edge": Early(1, "(float[2,3] x) => (float[] y) { y = Pad<mode=\"edge\", paddings=[1,0,1,2]>(x) }", meaning=lambda x: np.pad(x, ((1, 1), (0, 2)), "edge")),
    "reshape": Early(1, f"({A}) => (float[] y) {{ y = Reshape<shape=[0,-1,5], consumed_inputs=[0]>(a) }}", meaning=lambda a: a.reshape(2, -1, 5)),
    "selu": Early(1, f"({A}) => (float[] y) {{ y = Selu(a) }}", meaning=lambda a: F32(1.0507) * np.where(a > 0, a, F32(1.6732) * (np.exp(a) - 1))),
    "selu_6": Early(6, f"({A}) => (float[] y) {{ y = Selu(a) }}", meaning=lambda a: F32(1.0507010221481323) * np.where(a > 0, a, F32(1.6732631921768188) * (np.exp(a) - 1))),
    "split": Early(1, f"({A}) => (float[] y, float[] z) {{ y, z = Split<axis=2, split=[3,1]>(a) }}", meaning=lambda a: [a[:, :, :3], a[:, :, 3:]]),
    "split_input": Early(1, f"({A}, float[2] s) => (float[] y, float[] z) {{ y, z = Split<axis=2>(a, s) }}", {"s": np.array([1, 3], F32)}, meaning=lambda a, s: [a[:, :, :1], a[:, :, 1:]]),
    **{f"tile_{axis}": Early(1, "(float[2,3] x, float[1] n, float[1] a) => (float[] y) { y = Tile(x, n, a) }", {"n": np.array([3], F32), "a": np.array([axis], F32)},
                             meaning=lambda x, n, a, axis=axis: np.concatenate([x] * 3, axis)) for axis in (0, 1)},
    "tile_scalars": Early(1, "(float[2,3] x) => (float[] y) { y = Tile(x, n, a) }", stored={"n": np.array(2, F32), "a": np.array(1, F32)}, meaning=lambda x, n, a: np.concatenate([x, x], 1)),
    "upsample": Early(1, "(float[1,2,3,3] x) => (float[] y) { y = Upsample<height_scale=2.0, width_scale=3.0>(x) }", meaning=lambda x: x.repeat(2, 2).repeat(3, 3)),
    "clip": Early(1, f"({A}) => (float[] y) {{ y = Clip<min=-0.5, max=0.25>(a) }}", meaning=lambda a: a.clip(-.5, .25)),
    "clip_above": Early(1, f"({A}) => (float[] y) {{ y = Clip<max=0.25, consumed_inputs=[0]>(a) }}", meaning=lambda a: np.minimum(a, F32(.25))),

    "rnn": Early(1, "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[] y, float[] h) { y, h = RNN<hidden_size=5, output_sequence=1, activations=[\"tanh\"]>(x, w, r) }", meaning=recurrent),
    "gru": Early(1, "(float[3,2,4] x, float[1,15,4] w, float[1,15,5] r) => (float[] y, float[] h) { y, h = GRU<hidden_size=5, direction=\"foward\", output_sequence=1>(x, w, r) }", meaning=gated),
    "gru_3": Early(3, "(float[3,2,4] x, float[1,15,4] w, float[1,15,5] r) => (float[] y, float[] h) { y, h = GRU<hidden_size=5, output_sequence=1>(x, w, r) }", meaning=gated),
    "lstm": Early(1, "(float[3,2,4] x, float[1,20,4] w, float[1,20,5] r) => (float[] y, float[] h) { y, h = LSTM<hidden_size=5, output_sequence=1>(x, w, r) }", meaning=long_short),

    "constant_fill": Early(6, "(int64[2] n) => (float[] y) { y = ConstantFill<input_as_shape=1, extra_shape=[4], value=0.5>(n) }", {"n": np.array([2, 3], I64)}, meaning=lambda n: np.full((2, 3, 4), .5, F32)),
    "constant_fill_like": Early(6, f"({A}) => (int64[] y) {{ y = ConstantFill<dtype=7, value=3.0>(a) }}", meaning=lambda a: np.full(a.shape, 3, I64)),
    "constant_fill_shape": Early(6, "(int64[2] n) => (float[] y, int64[] z) { y = ConstantFill<shape=[2,3]>()\n z = Shape(n) }", {"n": np.array([2, 3], I64)}, meaning=lambda n: [np.zeros((2, 3), F32), np.array([2], I64)]),
}

for op, compute in {**ARITHMETIC, **COMPARISONS, **LOGIC}.items():
    was = "bool" if op in LOGIC else "int32" if op == "Equal" else "float"
    result = "float" if op in ARITHMETIC else "bool"
    for b, axis in (("", 2), ("1", 1), ("1,1", None), ("4,5", None), ("5", -1), ("3,4", 1), ("2", 0), ("3", -3), ("2,3,4,5", None), ("3,4", "unknown")):
        opset = 1 if op not in ARITHMETIC or b == "2" else 6
        kind = helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, was.upper()))
        inputs, first, stored = f"{was}[2,3,4,5] a, {was}[{b}] b", "a", {}
        if not b:  # the parser knows no scalars
            inputs, stored = f"{was}[2,3,4,5] a", {"b": np.ones((), kind)}
        attributes = "" if b == "2,3,4,5" else "<broadcast=1>" if axis is None else f"<broadcast=1, axis={1 if axis == 'unknown' else axis}>"
        feeds = {name: RNG.integers(0, 2, [int(d) for d in dims.split(",") if d]).astype(kind)
                 for name, dims in (("a", "2,3,4,5"), ("b", b)) if dims} if was != "float" else {}
        nodes = ""
        if op == "Pow":
            nodes, first = "p = Abs(a)\n ", "p"
        if axis == "unknown":
            inputs, nodes, feeds["n"] = inputs + ", int64[4] n", nodes + f"h = Reshape({first}, n)\n ", np.array([2, 3, 4, 5], I64)
            first, opset = "h", max(opset, 5)
        CASES[f"{op}_{b or 'scalar'}_at_{axis}"] = Early(
            opset, f"({inputs}) => ({result}[] y) {{ {nodes}y = {op}{attributes}({first}, b) }}", feeds, stored,
            meaning=lambda a, b, n=None, at=1 if axis == "unknown" else axis, f=compute: f(a, aligned(b, at % 4) if at is not None and b.size > 1 else b))


def text_of(schema):
    """A graph with one node of an operator that had the attribute consumed_inputs."""
    value = "float[2,3,4,5] x"
    if schema.name == "InstanceNormalization":
        return f"({value}, float[3] s, float[3] b) => (float[] y) {{ y = InstanceNormalization%s(x, s, b) }}"
    if schema.name in ("Max", "Min", "Mean", "Sum"):
        return f"({value}, float[2,3,4,5] z) => (float[] y) {{ y = {schema.name}%s(x, z) }}"
    return f"({value}) => (float[] y) {{ h = Abs(x)\n y = {schema.name}%s(h) }}" if schema.name in ("Log", "Sqrt", "Reciprocal") else f"({value}) => (float[] y) {{ y = {schema.name}%s(x) }}"


# Those that changed in another way too have a case above.
for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.name):
    if schema.domain == "" and schema.since_version == 1 and "consumed_inputs" in schema.attributes and \
            schema.name not in ("Add", "Sub", "Mul", "Div", "BatchNormalization", "Clip", "Dropout", "PRelu", "Reshape", "Selu"):
        text, now = text_of(schema) % "<consumed_inputs=[0]>", text_of(schema) % ""
        CASES[schema.name] = Early(1, text, meaning=lambda now=now, **feeds: run(Case(7, now, feeds).plain(), feeds))

CHANGED = {name for name, in {(s.name,) for s in defs.get_all_schemas_with_history() if s.domain == "" and 2 <= s.since_version <= 7}
           if len({s.since_version for s in defs.get_all_schemas_with_history() if s.domain == "" and s.name == name and s.since_version <= 7}) > 1}


def test_every_early_change_has_a_case():
    assert CHANGED <= {n.op_type for c in CASES.values() for n in c.parsed.node}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_graph(name):
    check_graph(CASES[name])


@pytest.mark.parametrize("name", [n for n in CASES if "_at_" not in n or n.startswith("Add")])
def test_branches(name):
    check_branches(CASES[name], 21)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("Add", "aligned", "tile"))])
def test_function(name):
    """The function does not know the ranks, but ONNX Runtime does when it inlines it."""
    case = CASES[name]
    model = opsets.raised(case.as_function(), 21)
    onnx.checker.check_model(model, full_check=True)
    assert_equal(run(model, case.feeds), case.want, case.same)


def test_a_model_without_imports_is_of_opset_1():
    """Models of the first IR versions have none."""
    case = CASES["concat_default_axis"]
    model = case.plain()
    del model.opset_import[:]
    model.ir_version = 2
    raised = opsets.raised(model, 21)
    assert_equal(run(raised, case.feeds), case.want, case.same)


@pytest.mark.parametrize("opset, ir", [(6, 3), (1, 3), (1, 2)])
@pytest.mark.parametrize("style", ["dq", "nbits", "qdq"])
def test_conversion(opset, ir, style, tmp_path):
    """A model of IR version 3 lists its initializers as inputs. What was made of it has none, and verify takes it."""
    consumed = "consumed_inputs=[0,0], " if opset == 1 else ""
    reshape = "Reshape<shape=[-1,12]>(d)" if opset == 1 else "Reshape(d, n)"
    graph = onnx.parser.parse_graph(f"""g (float[2,3,4] x) => (float[2,5] y) {{
        c = PRelu(x, s)
        d = Add<{consumed}broadcast=1, axis=1>(c, b)
        e = {reshape}
        m = MatMul(e, w)
        k = Dropout<is_test=1>(m)
        y = Gemm<broadcast=1, transB=1>(k, v, t) }}""")
    s, b, w, v, t = (RNG.standard_normal(shape).astype(F32) for shape in ((3,), (3,), (12, 32), (5, 32), (5,)))
    for name, value in {"s": s, "b": b, "w": w, "v": v, "t": t, **({} if opset == 1 else {"n": np.array([-1, 12], I64)})}.items():
        graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    model = helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])
    if ir < 3:
        del model.opset_import[:]
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    result = onnxquant("-bits", "8", "--block", "16", "--style", style, source, out)
    assert result.status == 0, result.stderr
    result = onnxquant("verify", "--engine", "none", source, out)
    assert result.status == 0 and "2 compared" in result.stdout, result.stdout

    made = onnx.load(out)
    onnx.checker.check_model(made, full_check=True)
    assert [i.name for i in made.graph.input] == ["x"]
    x = RNG.standard_normal((2, 3, 4)).astype(F32)
    c = np.where(x < 0, x * s[:, None], x) + b[:, None]
    want = c.reshape(2, 12) @ w @ v.T + t
    if style == "nbits" and opsets.opset_of(made.opset_import) < 7:
        return  # ONNX Runtime has no kernels for the other operators
    got, = run(made, {"x": x})
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
