"""Random graphs with outliers in channels, which factors of channels undo."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

SIZE, ROWS = 12, 8


class Graph:
    """Nodes and stored tensors of a graph under construction."""

    def __init__(self, rng):
        self.rng, self.nodes, self.stored = rng, [], {}

    def store(self, name, *shape, by=1.0):
        self.stored[name] = self.rng.normal(size=shape) * by
        return name

    def node(self, op, inputs, output, **attrs):
        self.nodes.append(helper.make_node(op, inputs.split(), [output], **attrs))
        return output

    def model(self, shape, made):
        tensors = [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in self.stored.items()]
        g = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", *made])], tensors)
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolutions(rng, blocks=3):
    """Convolutions with Relu and its kind between: a row of each weight is 50 times as large, the next column a 50th."""
    g, wide = Graph(rng), int(rng.choice([8, 12, 16]))
    g.store("w0", wide, 3, 3, 3, by=0.2), g.store("b0", wide, by=0.3)
    at, kinds = g.node("Conv", "x w0 b0", "a0", pads=[1] * 4), []
    for i in range(1, blocks + 1):
        kind, act = rng.choice(["full", "depthwise", "residual", "pool"]), rng.choice(["Relu", "LeakyRelu", "PRelu"])
        kinds.append(kind)
        if act == "PRelu":
            g.stored[f"s{i}"] = np.abs(rng.normal(size=(wide, 1, 1))) / 5
        at = g.node(act, f"{at} s{i}" if act == "PRelu" else at, f"r{i}")
        if kind == "pool":
            at = g.node("MaxPool", at, f"p{i}", kernel_shape=[2, 2], strides=[1, 1])
        depthwise, made = kind == "depthwise", f"q{i}" if kind == "residual" else f"a{i}"
        new = wide if kind in ("depthwise", "residual") else int(rng.choice([8, 12, 16]))
        g.store(f"w{i}", new, 1 if depthwise else wide, 3, 3, by=0.5 if depthwise else (9 * wide) ** -0.5), g.store(f"b{i}", new, by=0.3)
        g.node("Conv", f"{at} w{i} b{i}", made, pads=[1] * 4, group=wide if depthwise else 1)
        at, wide = g.node("Add", f"{at} {made}", f"a{i}") if kind == "residual" else made, new
    g.node("Relu", at, "last"), g.node("GlobalAveragePool", "last", "mean"), g.node("Flatten", "mean", "flat")
    g.store("gw", 10, wide, by=wide ** -0.5), g.store("gb", 10, by=0.3)
    g.node("Gemm", "flat gw gb", "y", transB=1)
    for i in range(blocks + 1):
        if "residual" in kinds[max(i - 1, 0):i + 1]:
            continue
        row, after = int(rng.integers(len(g.stored[f"b{i}"]))), g.stored[f"w{i + 1}" if i < blocks else "gw"]
        g.stored[f"w{i}"][row] *= 50
        g.stored[f"b{i}"][row] *= 50
        after[(row,) if after.shape[1] == 1 else (slice(None), row)] /= 50
    return g.model((3, SIZE, SIZE), (10,)), (3, SIZE, SIZE)


def attention(rng, blocks=2):
    """Blocks of a transformer whose LayerNormalizations have numbers 50 times as large, the rows behind a 50th."""
    g, wide, at = Graph(rng), int(rng.choice([16, 24, 32])), "x"

    def normalized(name, of, weights):
        g.stored[f"{name}g"] = 1 + rng.normal(size=wide) / 10
        large = rng.choice(wide, 2, replace=False)
        g.stored[f"{name}g"][large] *= 50
        for w in weights:
            g.stored[w][large] /= 50
        g.store(f"{name}b", wide, by=0.1)
        return g.node("LayerNormalization", f"{of} {name}g {name}b", name, axis=-1)

    for i in range(blocks):
        qkv = [g.store(f"{c}{i}", wide, wide, by=wide ** -0.5) for c in "qkv"]
        n = normalized(f"n{i}", at, qkv)
        for c in "qkv":
            g.node("MatMul", f"{n} {c}{i}", f"{c}{i}n")
        g.node("Transpose", f"k{i}n", f"t{i}", perm=[0, 2, 1])
        g.stored[f"scale{i}"] = np.float32(wide ** -0.5)
        g.node("MatMul", f"q{i}n t{i}", f"s{i}"), g.node("Mul", f"s{i} scale{i}", f"m{i}"), g.node("Softmax", f"m{i}", f"p{i}", axis=-1)
        g.node("MatMul", f"p{i} v{i}n", f"c{i}"), g.store(f"o{i}", wide, wide, by=wide ** -0.5), g.node("MatMul", f"c{i} o{i}", f"d{i}")
        g.node("Add", f"{at} d{i}", f"r{i}")
        u = g.store(f"u{i}", wide, 2 * wide, by=wide ** -0.5)
        n = normalized(f"h{i}", f"r{i}", [u])
        g.store(f"ub{i}", 2 * wide, by=0.1), g.store(f"e{i}", 2 * wide, wide, by=(2 * wide) ** -0.5)
        g.node("MatMul", f"{n} u{i}", f"um{i}"), g.node("Add", f"um{i} ub{i}", f"ua{i}"), g.node("Relu", f"ua{i}", f"ur{i}")
        g.node("MatMul", f"ur{i} e{i}", f"em{i}")
        at = g.node("Add", f"r{i} em{i}", f"x{i}")
    g.store("head", wide, 10, by=wide ** -0.5)
    g.node("MatMul", f"{at} head", "y")
    return g.model((ROWS, wide), (ROWS, 10)), (ROWS, wide)
