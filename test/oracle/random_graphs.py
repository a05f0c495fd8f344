"""Random graphs of layers that networks have: products, convolutions, attention, normalizations, tables, branches, bodies."""
import random

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

value = helper.make_tensor_value_info
WEIGHTS = ["normal", "outliers", "heavy", "few", "shifted", "small", "sparse", "low rank"]
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "Erf", "Softplus", "HardSwish", "Elu", "LeakyRelu", "Softsign"]


class Network:
    """Grows by layers; what a layer returns is the name and the width of [n, width]."""

    def __init__(self, seed):
        self.rng, self.np = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.tensors, self.inputs, self.count = [], [], [], 0

    def name(self, kind):
        self.count += 1
        return f"{kind}_{self.count}"

    def add(self, op, *inputs, **attrs):
        out = self.name(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def stored(self, v, kind="w"):
        name = self.name(kind)
        self.tensors.append(numpy_helper.from_array(v, name))
        return name

    def weight(self, *shape, fan=None):
        kind, v = self.rng.choice(WEIGHTS), self.np.standard_normal(shape)
        if kind == "outliers":
            v.flat[self.np.integers(v.size, size=max(v.size // 200, 1))] *= 20
        elif kind == "heavy":
            v = self.np.standard_t(3, shape)
        elif kind == "few":
            v = self.np.integers(-2, 3, shape).astype(float)
        elif kind == "shifted":
            v += 2
        elif kind == "small":
            v *= 1e-4
        elif kind == "sparse":
            v *= self.np.random(shape) < 0.2
        elif kind == "low rank" and len(shape) == 2:
            v = np.outer(v[:, 0], v[0])
        return self.stored((v / np.sqrt(fan or shape[0])).astype(np.float32))

    def vector(self, n, mean=0.0):
        return self.stored((self.np.standard_normal(n) * 0.1 + mean).astype(np.float32), "b")

    def layer(self, x, width):
        kind = self.rng.choice(["product", "gemm", "activation", "norm", "residual", "gate", "attention", "split", "convolution", "body", "softmax", "transposed"])
        new = self.rng.choice([16, 24, 32, 64, 96])
        if kind == "product":
            x = self.add("MatMul", x, self.weight(width, new))
            return (self.add("Add", x, self.vector(new)) if self.rng.random() < 0.5 else x), new
        if kind == "gemm":
            turned = self.rng.randrange(2)
            w = self.weight(*((new, width) if turned else (width, new)), fan=width)
            return self.add("Gemm", x, w, self.vector(new), transB=turned, alpha=self.rng.choice([1.0, 1.0, 0.5])), new
        if kind == "activation":
            return self.add(self.rng.choice(ACTIVATIONS), x), width
        if kind == "norm":
            return self.add("LayerNormalization", x, self.vector(width, 1.0), self.vector(width), axis=-1), width
        if kind == "residual":
            return self.add("Add", x, self.add("MatMul", self.add("Relu", x), self.weight(width, width))), width
        if kind == "gate":
            a, b = (self.add("MatMul", x, self.weight(width, new)) for _ in range(2))
            return self.add("Mul", self.add("Sigmoid", a), b), new
        if kind == "attention":
            q, k, v = (self.add("MatMul", x, self.weight(width, width)) for _ in range(3))
            scores = self.add("Mul", self.add("MatMul", q, self.add("Transpose", k, perm=[1, 0])), self.stored(np.float32(width ** -0.5), "s"))
            return self.add("MatMul", self.add("Softmax", scores, axis=-1), v), width
        if kind == "split":
            parts = [self.name("part"), self.name("part")]
            self.nodes.append(helper.make_node("Split", [self.add("MatMul", x, self.weight(width, 2 * new))], parts, axis=1, num_outputs=2))
            return self.add("Concat", self.add("Tanh", parts[0]), parts[1], axis=1), 2 * new
        if kind == "convolution":
            image = self.add("Reshape", x, self.stored(np.array([0, 1, -1, 8], np.int64), "shape"))
            c = self.rng.choice([4, 8])
            image = self.add("Relu", self.add("Conv", image, self.weight(c, 1, 3, 3, fan=9), self.vector(c), pads=[1, 1, 1, 1]))
            image = self.add("Conv", image, self.weight(1, c, 3, 3, fan=9 * c), pads=[1, 1, 1, 1])
            return self.add("Reshape", image, self.stored(np.array([0, -1], np.int64), "shape")), width
        if kind == "body":
            inner, w = self.name("inner"), self.weight(width, width)
            branch = [helper.make_graph([helper.make_node(op, [x, *extra], [f"{inner}_{op}"])], op, [], [value(f"{inner}_{op}", T.FLOAT, None)])
                      for op, extra in (("MatMul", [w]), ("Neg", []))]
            return self.add("If", self.stored(np.array(True), "c"), then_branch=branch[0], else_branch=branch[1]), width
        if kind == "softmax":
            return self.add("MatMul", self.add("Softmax", x, axis=-1), self.weight(width, new, fan=1)), new
        w = self.add("Transpose", self.weight(new, width, fan=width), perm=[1, 0])
        return self.add("MatMul", x, w), new


def network(seed):
    """A model, and feeds for it: [rows, width] or ids of a table."""
    net = Network(seed)
    rows, width = 24, net.rng.choice([16, 32, 64])
    if net.rng.random() < 0.25:
        size = net.rng.choice([50, 300])
        x = net.add("Gather", net.weight(size, width, fan=1), "ids")
        inputs, feeds = [value("ids", T.INT64, ["n"])], {"ids": net.np.integers(size, size=rows)}
    else:
        x, inputs, feeds = "x", [value("x", T.FLOAT, ["n", width])], {"x": net.np.standard_normal((rows, width)).astype(np.float32)}
    outputs = []
    for _ in range(net.rng.randint(2, 8)):
        x, width = net.layer(x, width)
        if net.rng.random() < 0.15:
            outputs.append(value(x, T.FLOAT, ["n", width]))
    x = net.add("MatMul", x, net.weight(width, 10))
    if net.rng.random() < 0.3:
        x = net.add("Softmax", x, axis=-1)
    outputs.append(value(x, T.FLOAT, ["n", 10]))
    graph = helper.make_graph(net.nodes, "g", inputs, outputs, net.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), feeds
