"""float16 weights in bodies of If, Loop and Scan, and in functions called from these: ONNX Runtime 1.31 fuses
their DequantizeLinear, and then computes zeros."""
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from command import onnxquant

K, N, ROWS = 64, 32, 3
BODIES = ["If", "Loop", "Scan", "function in If", "function"]


def run(path, x):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].reshape(ROWS, N).astype(np.float32)


def value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model(where, weight, kind):
    """x MatMul weight in a body of a node, or in a function."""
    stored = [numpy_helper.from_array(weight, "w")]
    product, result = helper.make_node("MatMul", ["x", "w"], ["r"]), value("r", kind, ROWS, N)
    inputs, imports, functions = [value("x", kind, ROWS, K)], [helper.make_opsetid("", 21)], []
    constants = [numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.array(1), "once"), numpy_helper.from_array(np.array([0]), "first")]
    nodes = []
    if where.startswith("function"):
        holder = helper.make_node("Constant", [], ["w"], value=stored.pop())
        functions.append(helper.make_function("of.model", "Product", ["x"], ["r"], [holder, product], imports[:]))
        imports.append(helper.make_opsetid("of.model", 1))
        product = helper.make_node("Product", ["x"], ["r"], domain="of.model")
    if where.endswith("If"):
        nodes = [helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0), helper.make_node("Cast", ["m"], ["c"], to=T.BOOL),
                 helper.make_node("If", ["c"], ["y"], then_branch=helper.make_graph([product], "t", [], [result], stored),
                                  else_branch=helper.make_graph([helper.make_node("Slice", ["x", "first", "n", "one"], ["e"])], "e", [], [value("e", kind, ROWS, N)]))]
        constants += [numpy_helper.from_array(np.array([N]), "n"), numpy_helper.from_array(np.array([1]), "one")]
    elif where == "Loop":
        body = helper.make_graph([helper.make_node("Identity", ["go"], ["on"]), product], "b", [value("i", T.INT64), value("go", T.BOOL)], [value("on", T.BOOL), result], stored)
        nodes = [helper.make_node("Loop", ["once", "yes"], ["y"], body=body)]
    elif where == "Scan":
        product.input[0] = "row"
        body = helper.make_graph([product], "b", [value("row", kind, ROWS, K)], [result], stored)
        nodes = [helper.make_node("Unsqueeze", ["x", "first"], ["rows"]), helper.make_node("Scan", ["rows"], ["y"], num_scan_inputs=1, body=body)]
    else:
        product.output[0] = "y"
        nodes = [product]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", kind, None)], constants)
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


def hazards(path):
    return [h["check"] for h in json.loads(onnxquant("inspect", "--json", path).stdout)["hazards"]]


@pytest.fixture(params=BODIES)
def case(request, tmp_path):
    rng = np.random.default_rng(0)
    weight, x = rng.standard_normal((K, N)).astype(np.float16), rng.standard_normal((ROWS, K)).astype(np.float16)
    path = tmp_path / "in.onnx"
    onnx.save(model(request.param, weight, T.FLOAT16), path)
    return path, x, x.astype(np.float32) @ weight.astype(np.float32)


def check(path, x, want):
    limit = 0.12  # relative: codes of 4 bits
    got = run(path, x)
    assert np.linalg.norm(got - want) < limit * np.linalg.norm(want)
    assert "ort-nested-half" not in hazards(path)


@pytest.mark.parametrize("settings", [["-bits", "8"], ["-bits", "4", "-block", "32", "-z"], ["-bits", "8", "-block", "-1", "--style", "qdq"], ["-bits", "4", "-block", "32", "--target", "ort"],
                                      ["-bits", "4", "-block", "32", "--style", "nbits"]], ids=" ".join)
def test_conversion(case, settings, tmp_path):
    source, x, want = case
    out = tmp_path / "out.onnx"
    result = onnxquant(*settings, source, out)
    assert result.status == 0, result.stderr
    check(out, x, want)


def test_restyle(case, tmp_path):
    source, x, want = case
    there, back = tmp_path / "nbits.onnx", tmp_path / "dq.onnx"
    assert onnxquant("-bits", "4", "-block", "32", "--style", "nbits", source, there).status == 0
    assert onnxquant("restyle", "--style", "dq", there, back).status == 0
    check(back, x, want)


@pytest.mark.parametrize("kind", [T.FLOAT16, T.FLOAT], ids=T.DataType.Name)
@pytest.mark.parametrize("where", BODIES)
@pytest.mark.parametrize("outside", [False, True], ids=["codes inside", "codes outside"])
def test_inspect(where, kind, outside, tmp_path):
    """What inspect says of a fused DequantizeLinear in a body is what ONNX Runtime does."""
    if outside and where.startswith("function"):
        pytest.skip("a function sees nothing outside")
    rng = np.random.default_rng(0)
    floats = helper.tensor_dtype_to_np_dtype(kind)
    x, codes, scales = rng.standard_normal((ROWS, K)).astype(floats), rng.integers(-127, 128, (K, N)).astype(np.int8), (rng.random(N) / 64 + .01).astype(floats)
    m = model(where, (codes * scales).astype(floats), kind)
    stored = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]

    def decode(nodes, initializers):
        n = next((n for n in nodes if n.op_type == "MatMul"), None)
        if n is None:
            return
        n.input[1] = "decoded"
        at = list(nodes).index(n)
        added = [helper.make_node("DequantizeLinear", ["codes", "scales"], ["decoded"], axis=1)]
        if initializers is None:
            added = [helper.make_node("Constant", [], [t.name], value=t) for t in stored] + added
        else:
            del initializers[:]
            (m.graph.initializer if outside else initializers).extend(stored)
        rest = list(nodes)
        del nodes[:]
        nodes.extend([o for o in rest[:at] if o.op_type != "Constant"] + added + rest[at:])

    for f in m.functions:
        decode(f.node, None)
    for n in m.graph.node:
        for a in n.attribute:
            if a.g.node:
                decode(a.g.node, a.g.initializer)
    path = tmp_path / "model.onnx"
    onnx.save(m, path)
    found = hazards(path)
    try:
        got = run(path, x)
    except ort.capi.onnxruntime_pybind11_state.Fail:
        assert "ort-outer-weight" in found
        return
    assert "ort-outer-weight" not in found
    assert ("ort-nested-half" in found) == (not got.any())
