"""verify: forms of our own outputs that look different from the float model, and the same with an error."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import static
from command import onnxquant

r = np.random.RandomState(4)


def model(text, opset, **tensors):
    m = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items())
    return m


def f(*shape):
    return (r.randn(*shape) / 4).astype(np.float32)


IMAGE = "(float[1,8,6,6] x) => (float[1,8,6,6] y)"
STATIC = ["--activations", "static"]


def cases():
    conv = dict(w=f(8, 8, 1, 1), b=f(8))
    shape = np.array([1, -1, 1, 1])
    yield "bias behind a Conv", model(f"{IMAGE} {{ rb = Reshape(b, s) c = Conv(x, w) y = Add(c, rb) }}", 13, s=shape, **conv), \
        ["--activations", "dynamic", "--ops", "all"], ("init", "b", 1.1)
    inputs = model(f"{IMAGE} {{ c = Conv(x, w, b) y = Relu(c) }}", 13, **conv)
    inputs.graph.input.append(helper.make_tensor_value_info("b", 1, [8]))
    yield "bias that is an input", inputs, ["--activations", "dynamic", "--ops", "Conv"], ("init", "b", 1.1)
    norm = dict(s=f(8), t=np.full(8, 1e-8, np.float32), mu=f(8), va=np.ones(8, np.float32))
    yield "tiny bias", model(f"{IMAGE} {{ c = Conv(x, w) y = BatchNormalization(c, s, t, mu, va) }}", 13, w=conv["w"], **norm), \
        STATIC, ("init", "t_quantized_scale", 1e8)
    yield "bias", model(f"{IMAGE} {{ y = Conv(x, w, b) }}", 13, **conv), STATIC, ("init", "b_quantized_scale", 0.5)
    yield "parts", model("(float[2,4,16] x) => (float[2,4,16] y) { w = Concat<axis=0>(u, v) y = Einsum<equation=\"bsk,kn->bsn\">(x, w) }", 19, u=f(4, 16), v=f(12, 16)), \
        STATIC, ("init", "u_scale", 2)
    yield "cut", model("(float[3,32] x, int64[1,4] i) => (float[1,4,33] y) { a, b = Split<axis=1>(w, parts) g = Gather(b, i) y = MatMul(g, k) }",
                       20, w=f(7, 64), parts=np.array([32, 32]), k=f(32, 33)), [*STATIC, "--activation-type", "int16", "--block", "-1"], ("init", "w_scale", 2)
    yield "Identity before an output", model("(float[2,16] x) => (float[2,16] y) { m = MatMul(x, w) n = Sigmoid(m) y = Identity(n) }", 13, w=f(16, 16)), \
        [*STATIC, "--activation-type", "uint16"], ("op", "Sigmoid", "Tanh")
    yield "Softmax of a raised model", model("(int64[1,4] i) => (float[1,4,48] y) { g = Gather(t, i) s = Softmax<axis=2>(g) y = MatMul(s, w) }", 7, t=f(40, 32), w=f(32, 48)), \
        ["--bits", "8", "--style", "qdq", "--ops", "all", "--block", "16"], ("attribute", "Softmax", "axis", 1)
    yield "Softmax behind codes", model("(float[2,3,16] x) => (float[2,3,16] y) { m = MatMul(x, w) s = Softmax<axis=2>(m) y = MatMul(s, w) }", 11, w=f(16, 16)), \
        [*STATIC, "--activation-type", "uint16"], ("attribute", "Softmax", "axis", 1)
    yield "Transpose that keeps the order", model("(float[1,6,12] x) => (float[1,6,3] y) { t = Transpose<perm=[0,1]>(w) y = MatMul(x, t) }", 7, w=f(12, 3)), \
        ["--bits", "8", "--block", "32", "--style", "nbits"], ("init", "w_scale", 2)


def edit(m, what):
    match what:
        case "init", name, factor:
            t = next(t for t in m.graph.initializer if t.name == name)
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * np.float32(factor), name))
        case "op", op, other:
            next(n for n in m.graph.node if n.op_type == op).op_type = other
        case "attribute", op, name, value:
            n = next(n for n in m.graph.node if n.op_type == op)
            del n.attribute[:]
            n.attribute.append(helper.make_attribute(name, value))


CASES = list(cases())


@pytest.mark.parametrize("name", [c[0] for c in CASES])
def test_form(name, tmp_path):
    _, m, args, what = next(c for c in CASES if c[0] == name)
    src, out, ranges = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "ranges.json"
    onnx.save(m, src)
    if "static" in args:
        names = {name for n in m.graph.node for name in [*n.input, *n.output]}
        static.write(src, {name: (np.float32(-4), np.float32(4)) for name in names}, tmp_path)
        args = [*args, "--ranges", ranges]
    made = onnxquant("-q", *args, src, out)
    assert made.status == 0, made.stderr
    onnx.checker.check_model(str(out), full_check=True)

    def failures():
        return json.loads(onnxquant("verify", "--engine", "none", "--json", src, out).stdout)["failures"]
    assert failures() == []
    changed = onnx.load(out)
    edit(changed, what)
    onnx.save(changed, out)
    assert failures() != []
