"""Models at old opsets compute the same in ONNX Runtime after internal/opset raised them.

Each case is a graph that needs an adapter. It is raised as it stands, in the
branches of an If, and as the body of a function.
"""
import copy
import functools
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import opsets

F32, F16, I64 = np.float32, np.float16, np.int64
RNG = np.random.default_rng(3)

TARGETS = (13, 16, 21, 25, opsets.RUNNABLE)
TOLERANCE = {"float32": 1e-6, "float64": 1e-12, "float16": 1e-3}


@dataclass
class Case:
    opset: int
    text: str                                    # (inputs) => (outputs) { nodes }
    feeds: dict = field(default_factory=dict)    # inputs that may not be any numbers
    stored: dict = field(default_factory=dict)   # initializers
    converter: str = ""                          # why onnx's own converter is not compared with
    same: object = None                          # what of the outputs is compared: {output: slice}
    least: int = 0                               # the lowest target that can be reached
    most: int = opsets.RUNNABLE                  # the highest that ONNX Runtime has kernels for

    def __post_init__(self):
        self.parsed = parser.parse_graph("g " + self.text)
        for name, value in self.stored.items():
            self.parsed.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        for i in self.parsed.input:
            if i.name not in self.feeds:
                t = i.type.tensor_type
                shape = [d.dim_value for d in t.shape.dim]
                self.feeds[i.name] = RNG.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(t.elem_type))

    @functools.cached_property
    def graph(self):
        """The graph, its outputs declared with the shapes that they turn out to have."""
        g = copy.deepcopy(self.parsed)
        for o, value in zip(g.output, self.want):
            o.CopyFrom(helper.make_tensor_value_info(o.name, o.type.tensor_type.elem_type, value.shape))
        return g

    @functools.cached_property
    def want(self):
        return run(helper.make_model(self.parsed, ir_version=8, opset_imports=self.imports()), self.feeds)

    def imports(self):
        return [helper.make_opsetid("", self.opset)]

    def plain(self):
        return helper.make_model(self.graph, ir_version=8, opset_imports=self.imports())

    def in_branches(self):
        """Both branches do what the graph does; c tells which does it."""
        g = self.graph
        branches = []
        for suffix in ("_then", "_else"):
            nodes = renamed(g.node, suffix)
            outputs = [helper.make_value_info(o.name + suffix, o.type) for o in g.output]
            branches.append(helper.make_graph(nodes, "branch" + suffix, [], outputs))
        choice = helper.make_node("If", ["c"], [o.name for o in g.output], then_branch=branches[0], else_branch=branches[1])
        condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
        outer = helper.make_graph([choice], "g", [condition, *g.input], g.output, g.initializer)
        return helper.make_model(outer, ir_version=8, opset_imports=self.imports())

    def as_function(self):
        g = self.graph
        names = [v.name for v in (*g.input, *g.initializer)]
        outputs = [o.name for o in g.output]
        function = helper.make_function("local", "f", names, outputs, g.node, self.imports())
        call = helper.make_node("f", names, outputs, domain="local")
        outer = helper.make_graph([call], "g", g.input, g.output, g.initializer)
        imports = [*self.imports(), helper.make_opsetid("local", 1)]
        return helper.make_model(outer, ir_version=8, opset_imports=imports, functions=[function])


def renamed(nodes, suffix):
    """The nodes, with a suffix on every value that they make."""
    nodes = [copy.deepcopy(n) for n in nodes]
    made = {o for n in nodes for o in n.output if o}
    for n in nodes:
        n.input[:] = [i + suffix if i in made else i for i in n.input]
        n.output[:] = [o + suffix if o else o for o in n.output]
    return nodes


X = "float[2,3,4] x"
CASES = {
    "squeeze": Case(11, "(float[1,3,1] x) => (float[] y) { y = Squeeze<axes=[0,-1]>(x) }"),
    "squeeze_all": Case(7, "(float[1,3,1] x) => (float[] y) { y = Squeeze(x) }"),
    "unsqueeze": Case(11, f"({X}) => (float[] y) {{ y = Unsqueeze<axes=[-1,0]>(x) }}"),
    "split_sizes": Case(11, f"({X}) => (float[] y, float[] z) {{ y, z = Split<axis=-1, split=[3,1]>(x) }}"),
    "split_equally": Case(7, f"({X}) => (float[] y, float[] z) {{ y, z = Split<axis=2>(x) }}"),
    "split_equally_13": Case(13, f"({X}) => (float[] y, float[] z) {{ y, z = Split<axis=2>(x) }}"),
    "slice": Case(9, f"({X}) => (float[] y) {{ y = Slice<axes=[2,0], starts=[1,0], ends=[-1,1]>(x) }}"),
    "slice_all_axes": Case(7, f"({X}) => (float[] y) {{ y = Slice<starts=[0,-2,1], ends=[1,9,-1]>(x) }}"),
    "topk": Case(9, f"({X}) => (float[] y, int64[] i) {{ y, i = TopK<axis=1, k=2>(x) }}"),
    "topk_10": Case(10, f"({X}) => (float[] y, int64[] i) {{ y, i = TopK(x, k) }}", stored={"k": np.array([3], I64)}),
    "scatter": Case(9, "(float[3,4] x, int64[1,4] i, float[1,4] u) => (float[] y) { y = Scatter<axis=0>(x, i, u) }",
                    {"i": np.array([[2, 0, 1, 1]], I64)}),

    "clip": Case(7, f"({X}) => (float[] y) {{ y = Clip<min=-0.5, max=0.25>(x) }}"),
    "clip_below": Case(7, f"({X}) => (float[] y) {{ y = Clip<min=-0.5>(x) }}"),
    "clip_above": Case(7, f"({X}) => (float[] y) {{ y = Clip<max=0.25>(x) }}"),
    "clip_nothing": Case(7, "(float[4] x) => (float[] y) { y = Clip(x) }", {"x": np.array([np.inf, -np.inf, 3.4e38, 1], F32)},
                         same={0: slice(2, None)}),
    "clip_computed": Case(10, f"({X}) => (float[] y) {{ h = MatMul(x, w)\n k = Relu(h)\n y = Clip<max=0.25>(k) }}", stored={"w": np.eye(4, dtype=F32)}),
    "clip_float16": Case(7, "(float16[8] x) => (float16[] y) { h = Abs(x)\n y = Clip<min=0.3, max=0.7>(h) }",
                         converter="makes a float32 bound for float16"),
    "clip_unknown_type": Case(9, "(int64[1] n) => (float16[] y) { h = ConstantOfShape<value=float16[1] {14336}>(n)\n y = Clip<min=0.7>(h) }",
                              {"n": np.array([3], I64)}, least=15, converter="makes a float32 bound for float16"),

    "pad": Case(10, f"({X}) => (float[] y) {{ y = Pad<pads=[0,1,0,0,0,2], value=1.5>(x) }}"),
    "pad_zeros": Case(7, f"({X}) => (float[] y) {{ y = Pad<mode=\"constant\", pads=[0,1,0,0,-1,2]>(x) }}"),
    "pad_edge": Case(10, f"({X}) => (float[] y) {{ y = Pad<mode=\"edge\", value=3.5, pads=[0,1,0,0,0,2]>(x) }}", converter="leaves the value behind"),
    "pad_double": Case(10, "(double[2,3] x) => (double[] y) { y = Pad<pads=[0,1,0,2], value=0.1>(x) }", converter="makes a float32 value for double"),
    "pad_float16": Case(10, "(float16[2,3] x) => (float16[] y) { y = Pad<pads=[0,1,0,2], value=0.1>(x) }", converter="makes a float32 value for float16"),
    "pad_reflect": Case(10, f"({X}) => (float[] y) {{ y = Pad<mode=\"reflect\", pads=[0,1,0,0,0,2]>(x) }}"),

    "dropout_7": Case(7, f"({X}) => (float[] y) {{ y = Dropout<ratio=0.3>(x) }}"),
    "dropout_7_idle_mask": Case(7, f"({X}) => (float[] y) {{ h, m = Dropout(x)\n y = Relu(h) }}"),
    "dropout_10_idle_mask": Case(10, f"({X}) => (float[] y) {{ h, m = Dropout<ratio=0.9>(x)\n y = Relu(h) }}"),

    "upsample_7_nearest": Case(7, "(float[1,2,3,3] x) => (float[] y) { y = Upsample<mode=\"nearest\", scales=[1.0,1.0,2.0,3.0]>(x) }"),
    "upsample_7_linear": Case(7, "(float[1,2,3,3] x) => (float[] y) { y = Upsample<mode=\"linear\", scales=[1.0,1.0,2.0,1.5]>(x) }",
                              converter="leaves out the coordinates"),
    "upsample_9": Case(9, "(float[1,2,3,3] x) => (float[] y) { y = Upsample(x, s) }", stored={"s": np.array([1, 1, 1.5, 2.7], F32)},
                       converter="leaves out the coordinates"),
    "upsample_9_given_scales": Case(9, "(float[1,2,3,3] x, float[4] s) => (float[] y) { y = Upsample<mode=\"linear\">(x, s) }",
                                    {"s": np.array([1, 1, 2, 2], F32)}, converter="leaves out the coordinates"),
    **{f"resize_10_{mode}_{name}{given}": Case(
        10, f"(float[1,2,5,7] x{given and ', float[4] s'}) => (float[] y) {{ y = Resize<mode=\"{mode}\">(x, s) }}",
        **{"feeds" if given else "stored": {"s": np.array(scales, F32)}}, converter="leaves out the coordinates" if name != "none" else "")
       for mode in ("nearest", "linear") for given in ("", "_given")
       for name, scales in {"up": [1, 1, 2, 1.7], "down": [1, 1, 0.6, 0.35], "both": [1, 1, 0.35, 1.7], "none": [1, 1, 1, 1]}.items()},
    "resize_11_sizes": Case(11, "(float[1,1,4,4] x) => (float[] y) { y = Resize<mode=\"cubic\">(x, r, none, n) }",
                            stored={"r": np.zeros(0, F32), "none": np.zeros(0, F32), "n": np.array([1, 1, 7, 3], I64)}),
    "resize_11_crop": Case(11, "(float[1,1,4,4] x) => (float[] y) { y = Resize<coordinate_transformation_mode=\"tf_crop_and_resize\", mode=\"linear\">(x, r, none, n) }",
                           stored={"r": np.array([0, 0, .2, .1, 1, 1, .9, .8], F32), "none": np.zeros(0, F32), "n": np.array([1, 1, 7, 3], I64)}),
    "resize_11_scales": Case(11, "(float[1,1,4,4] x) => (float[] y) { y = Resize<mode=\"linear\">(x, r, s) }",
                             stored={"r": np.zeros(0, F32), "s": np.array([1, 1, 1.5, .7], F32)}),
    **{f"resize_11_half_pixel_for_nn_{rounding}": Case(
        11, "(float[1,1,7,9] x) => (float[] y) { y = Resize<coordinate_transformation_mode=\"tf_half_pixel_for_nn\", nearest_mode=\"" + rounding + "\">(x, r, s) }",
        stored={"r": np.zeros(0, F32), "s": np.array([1, 1, 2.3, .4], F32)})
       for rounding in ("floor", "round_prefer_floor")},

    "batchnorm_7": Case(7, "(float[2,3,2] x, float[3] s, float[3] b, float[3] m) => (float[] y) { y = BatchNormalization<epsilon=0.01, spatial=1>(x, s, b, m, v) }",
                        stored={"v": np.array([1, 2, .5], F32)}),
    "batchnorm_7_elements": Case(7, "(float[2,3,2] x, float[3,2] s, float[3,2] b, float[3,2] m) => (float[] y) { y = BatchNormalization<epsilon=0.01, spatial=0>(x, s, b, m, v) }",
                                 stored={"v": np.array([[1, 2], [.5, 3], [4, 1]], F32)}, converter="refuses spatial=0"),
    **{f"batchnorm_{opset}_training": Case(
        opset, "(float[4,3,2] x, float[3] s, float[3] b, float[3] m) => (float[] y, float[] rm, float[] rv) { y, rm, rv, sm, sv = BatchNormalization<momentum=0.8>(x, s, b, m, v) }",
        stored={"v": np.array([1, 2, .5], F32)}, converter="refuses training") for opset in (7, 9)},
    "groupnorm": Case(18, "(float[2,4,3,2] x, float[2] s, float[2] b) => (float[] y) { y = GroupNormalization<num_groups=2, epsilon=0.01>(x, s, b) }",
                      converter="makes a graph that does not load"),

    "scan": Case(8, """(float[2,2] s, float[2,3,4] x) => (float[] y, float[] ys)
        { y, ys = Scan("", s, x) <num_scan_inputs=1, body = b (float[2] t, float[4] e) => (float[2] u, float[2] v)
          { h = Slice<starts=[1], ends=[3]>(e) u = Add(h, t) v = Mul(u, u) }> }""", converter="drops the batch axis"),
    "scan_directions": Case(8, """(float[2,2] s, float[2,3,2] x, float[2,3,2] z) => (float[] y, float[] ys)
        { y, ys = Scan("", s, x, z) <num_scan_inputs=2, directions=[0,1], body = b (float[2] t, float[2] e, float[2] f) => (float[2] u, float[2] v)
          { h = Sub(e, f) u = Add(h, t) v = Mul(u, f) }> }""", converter="drops the batch axis"),
    "scan_lengths": Case(8, """(int64[3] l, float[3,2] s, float[3,4,2] x, float[3,4,2] z) => (float[] y, float[] ys)
        { y, ys = Scan(l, s, x, z) <num_scan_inputs=2, directions=[0,1], body = b (float[2] t, float[2] e, float[2] f) => (float[2] u, float[2] v)
          { h = Sub(e, f) u = Add(h, t) v = Mul(u, f) }> }""", {"l": np.array([2, 4, 1], I64)}, converter="refuses lengths",
        same={1: (np.array([0, 0, 1, 1, 1, 1, 2]), np.array([0, 1, 0, 1, 2, 3, 0]))}),
    "scan_stateless": Case(8, """(float[2,3,2] x) => (float[] ys)
        { ys = Scan("", x) <num_scan_inputs=1, body = b (float[2] e) => (float[2] v) { v = Relu(e) }> }""", converter="drops the batch axis"),

    "roialign": Case(10, "(float[1,1,6,6] x) => (float[] y) { y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, b) }",
                     stored={"r": np.array([[0.4, 0.6, 4.2, 5.3]], F32), "b": np.array([0], I64)}, most=21),
    **{f"gridsample_{mode or 'default'}": Case(
        16, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[] y) { y = GridSample" + (mode and f"<mode=\"{mode}\">") + "(x, g) }",
        {"g": RNG.uniform(-1.2, 1.2, (1, 3, 3, 2)).astype(F32)}) for mode in ("", "bilinear", "bicubic", "nearest")},
    "dft": Case(17, "(float[2,5,3,2] x) => (float[] y) { y = DFT(x) }"),
    "dft_axis": Case(17, "(float[2,5,3,1] x) => (float[] y) { y = DFT<axis=2, onesided=1>(x) }"),
    "dft_length": Case(17, "(float[2,5,3,2] x) => (float[] y) { y = DFT<inverse=1>(x, n) }", stored={"n": np.array(4, I64)}),
    "erf": Case(9, f"({X}) => (float[] y) {{ y = Erf(x) }}"),

    # Experimental operators, which ONNX Runtime runs up to opset 9.
    **{name: Case(7, "(float[2,3,5,6] x) => (float[] y) { y = " + node + " }", converter="does not know the operator") for name, node in {
        "affine": "Affine<alpha=2.5, beta=0.5>(x)",
        "affine_nothing": "Affine(x)",
        "scale": "Scale<scale=2.5>(x)",
        "scaled_tanh": "ScaledTanh<alpha=2.5, beta=0.5>(x)",
        "parametric_softplus": "ParametricSoftplus<alpha=2.5, beta=0.5>(x)",
        "image_scaler": "ImageScaler<scale=2.5, bias=[0.1,0.2,0.3]>(x)",
        "crop": "Crop<border=[1,2,0,1]>(x)",
        "crop_to_size": "Crop<border=[1,2,0,1], scale=[2,3]>(x)",
        "mean_variance": "MeanVarianceNormalization(x)",
        "mean_variance_channels": "MeanVarianceNormalization<across_channels=1>(x)",
        "mean_variance_mean": "MeanVarianceNormalization<normalize_variance=0>(x)",
    }.items()},
    "thresholded_relu": Case(7, f"({X}) => (float[] y) {{ y = ThresholdedRelu<alpha=0.3>(x) }}", converter="does not know the operator"),
    "dynamic_slice": Case(7, f"({X}) => (float[] y) {{ y = DynamicSlice(x, s, e, a) }}", converter="does not know the operator",
                          stored={"s": np.array([1, 0], I64), "e": np.array([-1, 1], I64), "a": np.array([2, 0], I64)}),
    "layer_normalization": Case(16, f"({X}, float[4] s, float[4] b) => (float[] y) {{ y = LayerNormalization<epsilon=0.01>(x, s, b) }}",
                                converter="does not know the operator"),
}

for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"):
    for opset, attributes in (7, ""), (7, "<axes=[0,2], keepdims=0>"), (11, "<axes=[-1]>"), (13, "<axes=[1], keepdims=0>"):
        if not (op == "ReduceSum" and opset == 13):
            CASES[f"{op}_{opset}_{'axes' if attributes else 'all'}"] = Case(opset, f"({X}) => (float[] y) {{ p = Exp(x)\n y = {op}{attributes}(p) }}")

for op in ("Softmax", "LogSoftmax", "Hardmax"):
    for opset, axes in (7, ("", 0, 1, 2)), (11, (-1, -2, 2)):
        for axis in axes:
            attributes = "" if axis == "" else f"<axis={axis}>"
            CASES[f"{op}_{opset}_axis{axis}"] = Case(opset, f"({X}) => (float[] y) {{ y = {op}{attributes}(x) }}",
                                                     converter="declares no change" if op == "Hardmax" and axis not in (-1, 2) else "")
    CASES[f"{op}_unknown_rank"] = Case(11, f"({X}, int64[3] n) => (float[] y) {{ h = Expand(x, n)\n y = {op}<axis=1>(h) }}", {"n": np.array([2, 3, 4], I64)},
                                       converter="declares no change" if op == "Hardmax" else "")
    CASES[f"{op}_no_elements"] = Case(11, f"(float[2,3,0] x) => (float[] y) {{ y = {op}<axis=1>(x) }}", least=14,
                                      converter="copies a dimension of 0" if op != "Hardmax" else "")


def assert_equal(got, want, same):
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.dtype == w.dtype and g.shape == w.shape, f"output {i}: {g.dtype}{g.shape}, want {w.dtype}{w.shape}"
        part = (same or {}).get(i, ...)
        g, w = g[part], w[part]
        if w.dtype.kind == "f":
            scale = np.abs(w[np.isfinite(w)]).max(initial=0).astype(np.float64)
            np.testing.assert_allclose(g, w, rtol=0, atol=TOLERANCE[w.dtype.name] * scale)
        else:
            np.testing.assert_array_equal(g, w)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


def targets(case, least=0):
    return [t for t in TARGETS if t > case.opset and max(case.least, least) <= t <= case.most]


def check_graph(case):
    for to in targets(case):
        model = opsets.raised(case.plain(), to)
        onnx.checker.check_model(model, full_check=True)
        assert opsets.opset_of(model.opset_import) == to
        assert_equal(run(model, case.feeds), case.want, case.same)


def check_branches(case, to):
    model = opsets.raised(case.in_branches(), to)
    onnx.checker.check_model(model, full_check=True)
    for choice in (True, False):
        assert_equal(run(model, {"c": np.array(choice), **case.feeds}), case.want, case.same)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_graph(name):
    check_graph(CASES[name])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_branches(name):
    for to in targets(CASES[name]):
        check_branches(CASES[name], to)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_function(name):
    """Below 15 a function's body could not follow the type of its arguments."""
    case = CASES[name]
    for to in targets(case, least=15):
        model = opsets.raised(case.as_function(), to)
        onnx.checker.check_model(model, full_check=True)
        assert_equal(run(model, case.feeds), case.want, case.same)


@pytest.mark.parametrize("name", CASES)
def test_newest_is_valid(name):
    """ONNX Runtime does not run the newest opset yet."""
    model = opsets.raised(CASES[name].plain(), opsets.NEWEST)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("type", ["float", "double", "float16"])
@pytest.mark.parametrize("axis", [-1, 1, -3])
def test_root_mean_square(type, axis):
    """SimplifiedLayerNormalization, which only ONNX Runtime defines."""
    scale = ",".join("234"[axis:])
    case = Case(14, f"({type}[2,3,4] x, {type}[{scale}] s) => ({type}[] y) {{ y = SimplifiedLayerNormalization<axis={axis}, epsilon=0.01>(x, s) }}")
    for to in targets(case):
        model = opsets.raised(case.plain(), to)
        onnx.checker.check_model(model, full_check=True)
        assert_equal(run(model, case.feeds), case.want, None)


@pytest.mark.parametrize("name, nodes", {"up": 1, "down": 1, "both": 2, "up_given": 2}.items())
def test_scales_at_hand_need_one_resize(name, nodes):
    """What small initializers hold is known while raising."""
    model = opsets.raised(CASES["resize_10_nearest_" + name].plain(), 13)
    assert [n.op_type for n in model.graph.node].count("Resize") == nodes


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_converter_of_onnx(name):
    case = CASES[name]
    to = max(targets(case))
    try:
        converted = onnx.version_converter.convert_version(case.plain(), to)
        assert_equal(run(converted, case.feeds), case.want, case.same)
    except Exception:
        assert case.converter, "the converter fails, and no reason is on record"
        return
    assert not case.converter, "the converter does not fail as it is said to"
