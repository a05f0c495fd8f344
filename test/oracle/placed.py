"""Random models around what runtimes compute wrongly: products of every kind whose weights are stored in the main graph, in
bodies of If, Loop and Scan, in functions, shared or captured, between activations, with outputs in the middle.

A model is a chain of layers on values [4, 64]. A part of the chain is in a body or function, which may read values and weights
from outside. Everything follows from the seed.

    python test/oracle/placed.py SEED OUT
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

ROWS, WIDTH = 4, 64
PLACES = ("main", "if", "loop", "scan", "function", "if in function", "function in if", "if in loop")  # functions need opset 17 here
value = helper.make_tensor_value_info


class Scope:
    """Nodes and stored tensors of a graph or function that is being made."""

    def __init__(self, model, outer=None, function=False):
        self.model, self.outer, self.function = model, outer, function
        self.nodes, self.tensors, self.shared = [], [], {}

    def name(self):
        self.model.count += 1
        return f"v{self.model.count}"

    def node(self, op, inputs, **attributes):
        out = self.name()
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def store(self, array, weight=False):
        """A stored tensor. Weights are in Constant nodes at times, or in a graph around this one."""
        name, rng = self.name(), self.model.rng
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if self.function or weight and rng.rand() < 0.15:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        elif weight and self.outer and not self.outer.function and rng.rand() < 0.4:
            self.outer.tensors.append(tensor)
        else:
            self.tensors.append(tensor)
        return name

    def floats(self, *shape, scale=None, weight=False):
        scale = scale or 1 / np.sqrt(shape[-2] if len(shape) > 1 else 16)
        return self.store((self.model.rng.randn(*shape) * scale).astype(np.float32), weight)

    def ints(self, *values):
        return self.store(np.array(values, np.int64))


class Model:
    def __init__(self, seed):
        self.rng, self.count = np.random.RandomState(seed), 0
        self.opset = int(self.rng.choice([9, 11, 13, 17, 17, 21]))
        self.place = str(self.rng.choice(PLACES if self.opset >= 17 else PLACES[:4] if self.opset > 9 else PLACES[:3]))
        self.functions = []

    def weight(self, s, *shape):
        """A weight, at times one that another layer of this scope reads."""
        known = s.shared.setdefault(shape, [])
        if known and self.rng.rand() < 0.3:
            return known[self.rng.randint(len(known))]
        known.append(s.floats(*shape, weight=True))
        return known[-1]

    # Layers: each takes and returns a value [ROWS, WIDTH].

    def matmul(self, s, x):
        return s.node("MatMul", [x, self.weight(s, WIDTH, WIDTH)])

    def transposed(self, s, x):
        return s.node("MatMul", [x, s.node("Transpose", [self.weight(s, WIDTH, WIDTH)], perm=[1, 0])])

    def left(self, s, x):
        turned = s.node("Transpose", [x], perm=[1, 0])
        return s.node("Transpose", [s.node("MatMul", [self.weight(s, WIDTH, WIDTH), turned])], perm=[1, 0])

    def gemm(self, s, x):
        attributes = {"transB": int(self.rng.randint(2)), "beta": float(self.rng.choice([1, 0.5])), "alpha": float(self.rng.choice([1, 0.5]))}
        bias = s.floats(WIDTH, scale=0.1) if self.rng.rand() < 0.7 or self.opset < 11 else None
        return s.node("Gemm", [x, self.weight(s, WIDTH, WIDTH), *([bias] if bias else [])], **attributes)

    def stack(self, s, x):
        """A weight of three axes."""
        n = int(self.rng.choice([1, 2]))
        h = s.node("MatMul", [s.node("Reshape", [x, s.ints(n, ROWS // n, WIDTH)]), self.weight(s, n, WIDTH, WIDTH)])
        return s.node("Reshape", [h, s.ints(ROWS, WIDTH)])

    def turned(self, s, x):
        """A Transpose that moves the first axis behind others, in front of a product."""
        perm = [[1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1]][self.rng.randint(4)]
        shape = [2, ROWS // 2, WIDTH]
        h = s.node("Transpose", [s.node("Reshape", [x, s.ints(*shape)])], perm=perm)
        if self.rng.rand() < 0.3:
            h = s.node("Identity", [h])
        rows = [shape[p] for p in perm]
        h = s.node("MatMul", [h, self.weight(s, rows[-1], rows[-1])])
        return s.node("Reshape", [s.node("Transpose", [h], perm=list(np.argsort(perm))), s.ints(ROWS, WIDTH)])

    def conv(self, s, x):
        h = s.node("Reshape", [x, s.ints(ROWS, WIDTH, 1, 1)])
        op = "Conv" if self.rng.rand() < 0.8 else "ConvTranspose"
        weight = s.floats(WIDTH, WIDTH, 1, 1, scale=0.125, weight=True)
        h = s.node(op, [h, weight, *([s.floats(WIDTH, scale=0.1)] if self.rng.rand() < 0.5 else [])])
        return s.node("Reshape", [h, s.ints(ROWS, WIDTH)])

    def gather(self, s, x):
        rows = s.node("Gather", [s.floats(16, WIDTH, scale=0.5, weight=True), s.ints(*self.rng.randint(0, 16, ROWS))])
        return s.node("Add", [x, rows])

    def biased(self, s, x):
        return s.node("Add", [self.matmul(s, x), s.floats(WIDTH, scale=0.1)])

    def activation(self, s, x):
        op = str(self.rng.choice(["Relu", "Clip", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "Softplus"]))
        low, high = [(0.0, 1.0), (-1.0, 1.0), (0.0, 6.0), (-0.5, 2.0)][self.rng.randint(4)]
        if op != "Clip":
            return s.node(op, [x])
        if self.opset < 11:
            return s.node("Clip", [x], min=low, max=high)
        return s.node("Clip", [x, s.store(np.float32(low)), s.store(np.float32(high))])

    def mixed(self, s, x):
        return s.node(str(self.rng.choice(["Add", "Mul", "Sub"])), [x, self.earlier])

    def split(self, s, x):
        parts = [s.node("Slice", [x, s.ints(a), s.ints(b), s.ints(1)]) if self.opset > 9 else
                 s.node("Slice", [x], starts=[a], ends=[b], axes=[1]) for a, b in ((0, 32), (32, 64))]
        return s.node("Concat", parts[::-1], axis=1)

    LAYERS = ("matmul", "matmul", "biased", "transposed", "left", "gemm", "stack", "turned", "conv", "gather", "activation", "activation", "mixed", "split")

    def layers(self, s, x, n):
        """A chain; self.earlier is a value that layers may read, too."""
        made = []
        for _ in range(n):
            x = getattr(self, str(self.rng.choice(self.LAYERS)))(s, x)
            made.append(x)
        return x, made

    # Places: each runs a part of the chain on a value of the scope.

    def body(self, s, x, outer):
        s.outer = outer
        return self.layers(s, x, self.rng.randint(1, 4))[0]

    def placed(self, place, s, x):
        if place == "main":
            return self.body(s, x, s.outer)
        if place.startswith("if"):
            then, other = Scope(self, s), Scope(self, s)
            out = self.body(then, x, s)
            graphs = [self.graph(then, [], [out]), self.graph(other, [], [other.node("Neg", [x])])]
            return s.node("If", ["c"], then_branch=graphs[0], else_branch=graphs[1])
        if place.startswith("loop"):
            inside = Scope(self, s)
            out = self.placed("if", inside, "carried") if place == "loop with if" else self.body(inside, x if self.rng.rand() < 0.5 else "carried", s)
            more = inside.node("Identity", ["go"])
            body = self.graph(inside, [value("i", T.INT64, []), value("go", T.BOOL, []), value("carried", T.FLOAT, [ROWS, WIDTH])], [more, out])
            return s.node("Loop", [s.store(np.array(2, np.int64)), "c", x], body=body)
        inside = Scope(self, s)
        row = inside.node("Reshape", ["row", inside.ints(1, WIDTH)])
        out = self.body(inside, inside.node("Add", [x, row]), s)
        body = self.graph(inside, [value("row", T.FLOAT, [WIDTH])], [out])
        stacked = s.node("Scan", [s.floats(2, WIDTH, scale=0.3)], body=body, num_scan_inputs=1)
        axes = {"axes": [0]} if self.opset < 13 else {}
        return s.node("ReduceSum", [stacked, *([] if axes else [s.ints(0)])], keepdims=0, **axes)

    def graph(self, s, inputs, outs):
        types = [value(o, T.BOOL, []) if len(outs) > 1 and o == outs[0] else value(o, T.FLOAT, [ROWS, WIDTH]) for o in outs]
        return helper.make_graph(s.nodes, s.name(), inputs, types, s.tensors)

    def call(self, s, x, inside):
        """A function that runs the place inside."""
        f = Scope(self, function=True)
        self.earlier, kept = "fx", self.earlier
        out = self.placed(inside, f, "fx")
        self.earlier = kept
        name = f"f{len(self.functions)}"
        self.functions.append(helper.make_function("local", name, ["fx", "c"], [out], f.nodes, [helper.make_opsetid("", self.opset)]))
        return s.node(name, [x, "c"], domain="local")

    def make(self):
        s = Scope(self)
        self.earlier = "x"
        x, before = self.layers(s, "x", self.rng.randint(1, 4))
        self.earlier = before[self.rng.randint(len(before))]
        if "function" not in self.place:
            h = self.placed({"if in loop": "loop with if"}.get(self.place, self.place), s, x)
        elif self.place == "function in if":
            then, other = Scope(self, s), Scope(self, s)
            out = self.call(then, x, "main")
            h = s.node("If", ["c"], then_branch=self.graph(then, [], [out]), else_branch=self.graph(other, [], [other.node("Neg", [x])]))
        else:
            h = self.call(s, x, "if" if self.place == "if in function" else "main")
        y, after = self.layers(s, h, self.rng.randint(1, 4))
        names = [y] + [n for n in dict.fromkeys([*before, h, *after]) if n != y and self.rng.rand() < 0.3]
        graph = helper.make_graph(s.nodes, "g", [value("x", T.FLOAT, [ROWS, WIDTH]), value("c", T.BOOL, [])], [value(n, T.FLOAT, [ROWS, WIDTH]) for n in names], s.tensors)
        imports = [helper.make_opsetid("", self.opset), *([helper.make_opsetid("local", 1)] if self.functions else [])]
        return helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=10 if self.opset > 17 else 8)


if __name__ == "__main__":
    onnx.save(Model(int(sys.argv[1])).make(), sys.argv[2])
