"""Makes a model like Llama with random weights and outlier channels, and token ids for it: no text is learned.

    .venv/bin/python test/bench/llama.py FOLDER                    4 layers of 2048, 5632 in the MLP: 286 million weights
    .venv/bin/python test/bench/llama.py FOLDER LAYERS WIDTH MLP WORDS SAMPLES LENGTH

FOLDER gets model.onnx, with model.onnx.data, and ids.npz. docs/calibration.md has what calibration of this model takes.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD = 64
RNG = np.random.default_rng(7)


class Graph:
    """Nodes and stored tensors, in the order in which they are added."""

    def __init__(self):
        self.nodes, self.stored = [], []

    def __call__(self, operator, inputs, name, **attributes):
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def tensor(self, name, array):
        self.stored.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, name, rows, columns):
        return self.tensor(name, RNG.standard_normal((rows, columns), dtype=np.float32) / np.float32(rows**0.5))


def gains(width):
    """Gains of a normalization: one channel in a hundred is 10 to 20 times as large as the others."""
    all_of_them = 1 + RNG.standard_normal(width, dtype=np.float32) / 10
    few = RNG.choice(width, max(width // 100, 1), replace=False)
    all_of_them[few] *= RNG.uniform(10, 20, len(few)).astype(np.float32)
    return all_of_them


def rms(g, x, name, width):
    squares = g("Mul", [x, x], name + ".squares")
    mean = g("ReduceMean", [squares], name + ".mean", axes=[-1], keepdims=1)
    root = g("Sqrt", [g("Add", [mean, "epsilon"], name + ".shifted")], name + ".root")
    return g("Mul", [g("Div", [x, root], name + ".normal"), g.tensor(name + ".gain", gains(width))], name)


def turned(g, x, name):
    """Rotary positions."""
    first, second = (g("Slice", [x, a, b, "last"], name + end) for a, b, end in (("zero", "middle", ".a"), ("middle", "whole", ".b")))
    around = g("Concat", [g("Neg", [second], name + ".minus"), first], name + ".around", axis=-1)
    return g("Add", [g("Mul", [x, "cosines"], name + ".x"), g("Mul", [around, "sines"], name + ".y")], name + ".turned")


def attention(g, x, name, width, length):
    heads = width // HEAD
    q, k, v = (g("MatMul", [x, g.weight(f"{name}.{end}.weight", width, width)], f"{name}.{end}") for end in "qkv")
    q, k, v = (g("Transpose", [g("Reshape", [y, "heads"], y + ".split")], y + ".heads", perm=[0, 2, 1, 3]) for y in (q, k, v))
    q, k = turned(g, q, q), turned(g, k, k)
    products = g("MatMul", [q, g("Transpose", [k], k + ".across", perm=[0, 1, 3, 2])], name + ".products")
    scores = g("Add", [g("Mul", [products, "scale"], name + ".scaled"), "mask"], name + ".scores")
    mixed = g("MatMul", [g("Softmax", [scores], name + ".probabilities", axis=-1), v], name + ".mixed")
    joined = g("Reshape", [g("Transpose", [mixed], name + ".order", perm=[0, 2, 1, 3]), "joined"], name + ".joined")
    assert heads * HEAD == width and length
    return g("MatMul", [joined, g.weight(name + ".o.weight", width, width)], name + ".o")


def mlp(g, x, name, width, inner):
    gate, up = (g("MatMul", [x, g.weight(f"{name}.{end}.weight", width, inner)], f"{name}.{end}") for end in ("gate", "up"))
    active = g("Mul", [gate, g("Sigmoid", [gate], name + ".sigmoid")], name + ".silu")
    return g("MatMul", [g("Mul", [active, up], name + ".product"), g.weight(name + ".down.weight", inner, width)], name + ".down")


def model(layers, width, inner, words, length):
    g = Graph()
    for name, number in (("zero", 0), ("middle", HEAD // 2), ("whole", HEAD), ("last", 3)):
        g.tensor(name, np.array([number], np.int64))
    g.tensor("heads", np.array([-1, length, width // HEAD, HEAD], np.int64))
    g.tensor("joined", np.array([-1, length, width], np.int64))
    g.tensor("epsilon", np.float32(1e-5))
    g.tensor("scale", np.float32(HEAD**-0.5))
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    for name, function in (("cosines", np.cos), ("sines", np.sin)):
        g.tensor(name, np.tile(function(angles), 2).astype(np.float32))
    g.tensor("mask", np.triu(np.full((length, length), -1e9, np.float32), 1))
    embedding = RNG.standard_normal((words, width), dtype=np.float32)
    embedding[:, RNG.choice(width, 4, replace=False)] *= 30  # as in trained models
    x = g("Gather", [g.tensor("embedding", embedding), "ids"], "embedded")
    for i in range(layers):
        x = g("Add", [x, attention(g, rms(g, x, f"{i}.norm1", width), f"{i}.attention", width, length)], f"{i}.middle")
        x = g("Add", [x, mlp(g, rms(g, x, f"{i}.norm2", width), f"{i}.mlp", width, inner)], f"{i}.out")
    g("MatMul", [rms(g, x, "norm", width), g.weight("head.weight", width, words)], "logits")
    graph = helper.make_graph(
        g.nodes, "llama", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", length])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", length, words])], g.stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made, sum(t.dims[0] * t.dims[1] for t in g.stored if t.name.endswith("weight") or t.name == "embedding")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    layers, width, inner, words, samples, length = map(int, sys.argv[2:] or (4, 2048, 5632, 19648, 32, 512))
    made, weights = model(layers, width, inner, words, length)
    (folder / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(made, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    frequent = 1 / np.arange(1, words + 1)
    np.savez(folder / "ids.npz", ids=RNG.choice(words, (samples, length), p=frequent / frequent.sum()).astype(np.int64))
    print(f"{weights / 1e6:.0f} million weights, {samples} x {length} ids in {folder}")


if __name__ == "__main__":
    main()
