"""Which quantized weights does ONNX Runtime fuse, and which does it decode at every run?

fusion.txt has the answers for chains of three layers: each product x what stands behind it
x the form of its weight. `make fusion` measures all of them again.

ONNX Runtime saves the model as it has optimized it. A weight is fused if no
DequantizeLinear there reads its codes.
"""
import itertools
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import graphs
from command import onnxquant

TABLE = pathlib.Path(__file__).with_name("fusion.txt")
LAYERS = 3
WIDTH = 128


class Chains:
    """A model of many chains. A weight is called product/behind/layer."""

    def __init__(self, dtype, shared, chains):
        self.nodes, self.initializers, self.dtype, self.shared = [], [], helper.tensor_dtype_to_np_dtype(dtype), shared
        self.outputs, self.masks, self.names = [], [], itertools.count()
        for product, behind in chains:
            self.add(product, behind)
        inputs = [("x2", ["b", WIDTH]), ("x3", ["b", "s", WIDTH]), ("image", ["b", WIDTH, "s"]), ("matrix", ["b", WIDTH]),
                  ("column", ["b", 1]), ("vector", [WIDTH]), ("unknown", None)]
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs],
            [helper.make_tensor_value_info(o, dtype, None) for o in self.outputs]
            + [helper.make_tensor_value_info(o, T.BOOL, None) for o in self.masks], self.initializers)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def node(self, op, *inputs, **attributes):
        out = f"t{next(self.names)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def store(self, values, name=None):
        name = name or f"c{next(self.names)}"
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, *shape, value=0.1):
        return self.store(np.full(shape, value, self.dtype))

    def add(self, product, behind):
        self.rank = 3 if product in ("MatMul, 3 axes", "Conv") else 2
        x = {"MatMul, 3 axes": "x3", "Conv": "image"}.get(product, "x2")
        x = self.node("Add", x, self.constant(value=1 + len(self.outputs)))  # its own, or the chains would share nodes
        for layer in range(LAYERS):
            shape = (WIDTH, WIDTH, 1) if product == "Conv" else (WIDTH, WIDTH)
            w = self.store(np.resize(np.linspace(-1, 1, 999, dtype=self.dtype), shape), f"{product}/{behind}/{layer}")
            made = PRODUCTS[product](self, x, w)
            if self.shared:
                made = self.node("Max", made, PRODUCTS[product](self, x, w))
            x = BEHIND[behind](self, made, x)
        self.outputs.append(x)


def gemm(c=None, **attributes):
    def make(m, x, w):
        return m.node("Gemm", x, w, *([] if c is None else [c if isinstance(c, str) else m.constant(*c)]), **attributes)
    return make


def matmul(m, x, w):
    return m.node("MatMul", x, w)


def turned(m, x):
    return m.node("Transpose", x, perm=[1, 0] if m.rank == 2 else [0, 2, 1])


def of_turned(product):
    """Its first factor comes from a Transpose, which a Reshape holds in place."""
    return lambda m, x, w: product(m, turned(m, m.node("Reshape", x, m.store(np.array([WIDTH, -1])))), w)


PRODUCTS = {
    "MatMul": matmul,
    "MatMul, 3 axes": matmul,
    "MatMul, x transposed": of_turned(matmul),
    "MatMul, W transposed": lambda m, x, w: m.node("MatMul", x, turned(m, w)),
    "Gemm": gemm(),
    "Gemm, x transposed": of_turned(gemm()),
    "Gemm, C [N]": gemm((WIDTH,)),
    "Gemm, C [N] computed": gemm("vector"),
    "Gemm, C [1,N]": gemm((1, WIDTH)),
    "Gemm, C [1]": gemm((1,)),
    "Gemm, C [M,N]": gemm("matrix"),
    "Gemm, transB": gemm(transB=1),
    "Gemm, transB, C [N]": gemm((WIDTH,), transB=1),
    "Gemm, alpha": gemm((WIDTH,), alpha=2.0),
    "Gemm, beta": gemm((WIDTH,), beta=2.0),
    "Gemm, transA": lambda m, x, w: m.node("Gemm", m.node("Reshape", x, m.store(np.array([WIDTH, -1]))), w, transA=1),
    "Conv": lambda m, x, w: m.node("Conv", x, w),
    "Gather": lambda m, x, w: m.node("Add", x, m.node("Gather", w, m.store(np.arange(1)))),
}


def unary(op, **attributes):
    return lambda m, v, x: m.node(op, v, **attributes)


def plus(shape, op="Add"):
    return lambda m, v, x: m.node(op, v, shape if isinstance(shape, str) else m.constant(*shape))


def then(*steps):
    def make(m, v, x):
        for s in steps:
            v = s(m, v, x)
        return v
    return make


def both(first, second):
    """Two operators read the result."""
    return lambda m, v, x: m.node("Mul", first(m, v, x), second(m, v, x))


def residual(m, v, x):
    return m.node("Add", v, x)


def norm(m, v, x):
    return m.node("LayerNormalization", v, m.constant(WIDTH), m.constant(WIDTH))


def reshape(m, v, x):
    return m.node("Reshape", v, m.store(np.array([-1, WIDTH] if m.rank == 2 else [0, -1, WIDTH])))


def double(m, v, x):
    to = helper.np_dtype_to_tensor_dtype(m.dtype)
    return m.node("Cast", m.node("Neg", m.node("Cast", v, to=T.DOUBLE)), to=to)


def turn(m, v, x):
    return turned(m, v)


def axes(op):
    """Squeeze or Unsqueeze, of an axis in front."""
    return lambda m, v, x: m.node(op, v, m.store(np.array([0])))


def masked(m, v, x):
    out = m.node("Dropout", v)
    m.masks.append(f"{out}_mask")
    m.nodes[-1].output.append(m.masks[-1])
    return out


def clip(m, v, x):
    return m.node("Clip", v, m.constant(value=-1), m.constant(value=1))


def same(m, v, x):
    return m.node("Cast", v, to=helper.np_dtype_to_tensor_dtype(m.dtype))


def neutral(op, value, *shape, first=False):
    """A constant that changes nothing."""
    def make(m, v, x):
        c = m.constant(*shape, value=value)
        return m.node(op, *((c, v) if first else (v, c)))
    return make


RELU, NEG, BIAS = unary("Relu"), unary("Neg"), plus((WIDTH,))
TURN = then(turn, NEG, turn, NEG)
UNARY = ("Relu", "LeakyRelu", "Elu", "Gelu", "Sigmoid", "Tanh", "Softplus", "HardSigmoid", "HardSwish", "Erf", "Softmax", "Identity")

BEHIND = {
    "nothing": lambda m, v, x: v,
    **{op: unary(op) for op in UNARY},
    "Clip": clip,
    "Max": plus((), "Max"),
    "Identity, Relu": then(unary("Identity"), RELU),
    "Relu, Identity": then(RELU, unary("Identity")),
    "Relu, two readers": then(RELU, both(NEG, unary("Abs"))),
    "Relu and Neg": both(RELU, NEG),
    "times its Sigmoid": both(lambda m, v, x: v, unary("Sigmoid")),
    "LayerNormalization": norm,
    "Add of x, LayerNormalization": then(residual, norm),
    "Add []": plus(()),
    "Add [1]": plus((1,)),
    "Add [N]": BIAS,
    "Add [N] computed": plus("vector"),
    "Add [1,N]": plus((1, WIDTH)),
    "Add [M,1]": plus("column"),
    "Add of x": residual,
    "Add to x": lambda m, v, x: m.node("Add", x, v),
    "Add of x and Neg": both(residual, NEG),
    "Add of an unknown shape": plus("unknown"),
    "Cast to its type, Add of x": then(same, residual),
    "Add of 0, Add of x": then(neutral("Add", 0, first=True), residual),
    "Sub of 0, Add of x": then(neutral("Sub", 0, 1), residual),
    "Mul by 1, Add of x": then(neutral("Mul", 1, 1, 1), residual),
    "Div by 1, Relu": then(neutral("Div", 1), RELU),
    "1 by it, Add of x": then(neutral("Div", 1, first=True), residual),
    "Expand, Add of x": then(lambda m, v, x: m.node("Expand", v, m.store(np.array([1, 1]))), residual),
    "Slice, Add of x": then(lambda m, v, x: m.node("Slice", v, m.store(np.array([0])), m.store(np.array([2**63 - 1])), m.store(np.array([-1]))), residual),
    "Slice to 2^31, Add of x": then(lambda m, v, x: m.node("Slice", v, m.store(np.array([0])), m.store(np.array([2**31 - 1])), m.store(np.array([-1]))), residual),
    "Expand to its shape, Add of x": then(lambda m, v, x: m.node("Expand", v, m.store(np.array([1, WIDTH]))), residual),
    "Dropout, Add of x": then(unary("Dropout"), residual),
    "Dropout with mask, Add of x": then(masked, residual),
    "Identity twice, Add [N]": then(unary("Identity"), unary("Identity"), BIAS),
    "Reshape, Add of x": then(reshape, residual),
    "Unsqueeze, Squeeze, Add of x": then(axes("Unsqueeze"), axes("Squeeze"), residual),
    "Cast and back, Add of x": then(unary("Cast", to=T.DOUBLE), same, residual),
    "Concat of it, Add of x": then(unary("Concat", axis=0), residual),
    "Pad of 0, Add of x": then(lambda m, v, x: m.node("Pad", v, m.store(np.zeros(2 * m.rank, np.int64))), residual),
    "Pow 1, Add of x": then(neutral("Pow", 1), residual),
    "Transpose twice, Add of x": then(turn, turn, residual),
    "Transpose twice, Add [N]": then(turn, turn, BIAS),
    "Transpose twice, Relu": then(turn, turn, RELU),
    "Add [N], Transpose twice, Relu": then(BIAS, turn, turn, RELU),
    "No perm twice, Add of x": then(unary("Transpose"), unary("Transpose"), residual),
    "Transpose by nothing, Add of x": then(lambda m, v, x: m.node("Transpose", v, perm=[*range(m.rank)]), residual),
    "Transpose, Relu, Transpose": then(turn, RELU, turn),
    "Relu, Neg within Transposes": then(turn, RELU, NEG, turn, NEG),
    "Neg, Relu within Transposes": then(turn, NEG, RELU, turn, NEG),
    "Add of x within Transposes": lambda m, v, x: turned(m, m.node("Add", turned(m, v), turned(m, x))),
    "Add [N,1] within Transposes": then(turn, plus((WIDTH, 1)), turn, NEG),
    "Add of x, twice the same": both(then(residual, NEG), then(residual, unary("Abs"))),
    "Relu, Neg, twice the same": both(then(RELU, NEG), then(RELU, NEG)),
    "Clip, Neg, twice the same": both(then(clip, NEG), then(clip, NEG)),
    "Relu, Clip": then(RELU, clip),
    "Add [N], Relu": then(BIAS, RELU),
    "Add [N], Gelu": then(BIAS, unary("Gelu")),
    "Add [N], Add of x": then(BIAS, residual),
    "Add [N], Transpose": then(BIAS, TURN),
    "Sum [N]": plus((WIDTH,), "Sum"),
    "Sum of x": lambda m, v, x: m.node("Sum", v, x),
    "Mul [N]": plus((WIDTH,), "Mul"),
    "Mul []": plus((), "Mul"),
    "Div []": plus((), "Div"),
    "Sub [N]": plus((WIDTH,), "Sub"),
    "Transpose": TURN,
    "Reshape": reshape,
    "Cast": double,
}
CHAINS = [(p, b) for p in PRODUCTS for b in BEHIND if p not in ("Conv", "Gather") or b in ("nothing", "Relu")]

FORMATS = {"int4": "--bits 4", "uint4": "--bits 4 --zero-point", "int8": "--bits 8", "uint8": "--bits 8 --zero-point", "int2": "--bits 2", "fp8": "--format fp8-e4m3"}
TYPES = {"float32": T.FLOAT, "float16": T.FLOAT16}


FIRST = ("dq", "int4", 32, "float32", False)  # of this form all chains are measured, of others only FEW
FEW = [(p, b) for p, b in CHAINS if b in ("nothing", "Relu", "Softmax", "Add [N]", "Add of x", "Transpose")]


def forms():
    """The forms of a weight: style, format, block, type, and whether it has two readers."""
    for fmt, block, dtype in itertools.product(FORMATS, (32, 128, -1), TYPES):
        yield "dq", fmt, block, dtype, False
    yield "dq", "int4", 48, "float32", False
    for fmt, block in itertools.product(("int4", "int8"), (32, -1)):
        yield "dq", fmt, block, "float32", True
        for style, dtype in itertools.product(("qdq", "nbits"), TYPES):
            yield style, fmt, block, dtype, False


def label(form):
    style, fmt, block, dtype, shared = form
    return f"{style} {fmt} {'channel' if block == -1 else block} {dtype}{' shared' if shared else ''}"


def optimized(path, folder):
    """A model as ONNX Runtime runs it."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def decoded(model):
    """The weights that the DequantizeLinear nodes of a model decode. Whatever ONNX Runtime does
    to codes and results, the scales keep their names."""
    return {n.input[1].removeprefix("FusedBack_").rpartition("_scale")[0] for scope in graphs.scopes(model).values()
            for n in scope.body.node if n.op_type == "DequantizeLinear"}


def portions(chains):
    """ONNX Runtime takes long for many chains at once."""
    return [chains[i:i + 20] for i in range(0, len(chains), 20)]


def convert(form, chains, folder, *args):
    """The path of a model of chains with weights of a form, and what the command says of it."""
    style, fmt, block, dtype, shared = form
    source, out = folder / "float.onnx", folder / "out.onnx"
    onnx.save(Chains(TYPES[dtype], shared, chains).model, source)
    r = onnxquant("--json", "--ops", "all", *FORMATS[fmt].split(), "--block", block, *(args or ("--style", style)), source, out)
    assert r.status == 0, r.stderr
    return out, json.loads(r.stdout)["plan"]


def measure(form, chains, folder):
    """What ONNX Runtime does with each chain: for each layer f (fused) or d (decoded)."""
    found = {}
    for some in portions(chains):
        path, _ = convert(form, some, folder)
        left = decoded(optimized(path, folder))
        for product, behind in some:
            found[product, behind] = "".join("d" if f"{product}/{behind}/{layer}" in left else "f" for layer in range(LAYERS))
    return found


def write(results):
    """The table as text. Forms with the same results share a part."""
    text = f"""\
# ONNX Runtime {ort.__version__} on a CPU, all optimizations. Made by test/oracle/fusion.py.
#
# Chains of {LAYERS} layers: each multiplies by a weight ({WIDTH} x {WIDTH}), and has behind the product
# what the row says. For each layer: f, the weight is fused, or d, decoded at every run.
#
# The form of the weight: style, format, block size, type; shared: two products read it.
#
# Products:
"""
    text += "".join(f"#   {i:2} {p}\n" for i, p in enumerate(PRODUCTS))
    groups = {}
    for form, found in results.items():
        groups.setdefault(tuple(found.items()), []).append(label(form))
    for found, labels in groups.items():
        found = dict(found)
        text += "\n" + "".join(f"= {line}\n" for line in labels)
        text += f"{'':30}" + "".join(f"{i:>4}" for i in range(len(PRODUCTS))) + "\n"
        for behind in BEHIND:
            row = [found.get((p, behind), "") for p in PRODUCTS]
            if any(row):
                text += (f"{behind:30}" + "".join(f"{x:>4}" for x in row)).rstrip() + "\n"
    return text


def read():
    """The table by the label of the form and the chain."""
    table, labels, new = {}, [], True
    for line in TABLE.read_text().splitlines():
        if line.startswith("= "):
            labels = [] if new else labels
            new = False
            labels.append(line[2:])
            table[line[2:]] = {}
        elif line.strip() and not line.startswith(("#", " ")):
            new = True
            behind, cells = line[:30].strip(), line[30:]
            for i, product in enumerate(PRODUCTS):
                if cell := cells[4 * i:4 * i + 4].strip():
                    for name in labels:
                        table[name][product, behind] = cell
    return table


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        results = {}
        for form in forms():
            print(label(form), file=sys.stderr)
            results[form] = measure(form, CHAINS if form == FIRST else FEW, folder)
    TABLE.write_text(write(results))
