"""Random convolutional and attention graphs with outliers, quantized by `--activations static --calib` and by quantize_static.

    python test/oracle/random_static.py [COUNT [SEED]]    100 graphs from 0 on

Outliers are in channels of weights and activations, in gains of LayerNormalization, and single spikes in inputs. quantize_static
gets what quant_pre_process makes, and of its settings the one with the least error on held-out inputs.
"""
import pathlib
import random
import statistics
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import static_errors
from static_errors import SETTINGS

SAMPLES, HELD_OUT = 32, 8


class Net:
    def __init__(self, seed):
        self.rng, self.np = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.tensors = [], []

    def add(self, op, *inputs, **attributes):
        out = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], out, **attributes))
        return out

    def stored(self, values, dtype=np.float32):
        name = f"w{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def gains(self, n):
        """Factors of channels: most are 1, some are outliers."""
        f = np.ones(n)
        if self.rng.random() < 0.7:
            f[self.np.integers(n, size=max(n // 16, 1))] = self.np.uniform(8, 40)
        return f

    def weight(self, out, *rest):
        fan = int(np.prod(rest))
        w = self.np.standard_normal((out, *rest)) / np.sqrt(fan)
        if self.rng.random() < 0.3:
            w.flat[self.np.integers(w.size, size=max(w.size // 300, 1))] *= 10
        return w

    def bias(self, n):
        return self.np.standard_normal(n) * 0.1

    # Convolutions: y of one has outlier channels, the weights of the next undo them, as folded normalizations leave it.

    def conv(self, x, old, new, size, into, group=1):
        """A convolution that undoes the factors `into` of its input and makes others. Returns its output and these."""
        gains = self.gains(new)
        w = self.weight(new, old // group, size, size)
        w *= gains[:, None, None, None]
        w = w / into[:, None, None, None] if group > 1 else w / into[None, :, None, None]
        pads = [size // 2] * 4
        if self.rng.random() < 0.5:
            return self.add("Conv", x, self.stored(w), self.stored(self.bias(new) * gains), kernel_shape=[size, size], pads=pads, group=group), gains
        y = self.add("Conv", x, self.stored(w / gains[:, None, None, None]), kernel_shape=[size, size], pads=pads, group=group)
        norm = [gains * self.np.uniform(0.7, 1.4, new), self.bias(new) * gains, self.bias(new), self.np.uniform(0.5, 1.5, new)]
        return self.add("BatchNormalization", y, *map(self.stored, norm)), gains

    def activation(self, x):
        kind = self.rng.choice(["Relu", "Relu", "Clip", "LeakyRelu", "SiLU", "HardSwish"])
        if kind == "SiLU":
            return self.add("Mul", x, self.add("Sigmoid", x)), False
        if kind == "Clip":
            return self.add("Clip", x, self.stored(0), self.stored(6)), False
        return self.add(kind, x), kind in ("Relu", "LeakyRelu")

    def convolutional(self):
        x, width, into = "x", 3, np.ones(3)
        for i in range(self.rng.randint(3, 6)):
            new = self.rng.choice([16, 24, 32])
            kind = self.rng.choice(["plain", "separable", "residual", "gate"]) if i else "plain"
            if kind == "separable":
                x, into = self.conv(x, width, width, 3, into, group=width)
                x, linear = self.activation(x)
                x, into = self.conv(x, width, new, 1, into if linear else np.ones(width))
            elif kind == "residual":
                y, inner = self.conv(x, width, width, 3, into)
                y = self.add("Relu", y)
                y, _ = self.conv(y, width, width, 3, inner)
                x, into, new = self.add("Add", x, y), np.ones(width), width
            elif kind == "gate":
                pooled = self.add("GlobalAveragePool", x)
                y = self.add("Relu", self.conv(pooled, width, 8, 1, into)[0])
                y = self.add("HardSigmoid", self.add("Conv", y, self.stored(self.weight(width, 8, 1, 1))))
                x, new = self.add("Mul", x, y), width
            else:
                x, into = self.conv(x, width, new, self.rng.choice([1, 3]), into)
            x, linear = self.activation(x)
            into, width = into if linear else np.ones(new), new
            if self.rng.random() < 0.3:
                x = self.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.add("Gemm", x, self.stored(self.weight(10, width) / into), self.stored(self.bias(10)), transB=1), ["n", 3, 24, 24]

    # Attention: LayerNormalization makes outlier channels, the weights behind it undo them.

    def linear(self, x, old, new, into):
        y = self.add("MatMul", x, self.stored(self.weight(new, old).T / into[:, None]))
        return self.add("Add", y, self.stored(self.bias(new)))

    def norm(self, x, width):
        gains = self.gains(width)
        return self.add("LayerNormalization", x, self.stored(gains), self.stored(self.bias(width) * gains), axis=-1), gains

    def split(self, x, width, heads, perm):
        return self.add("Transpose", self.add("Reshape", x, self.stored([0, 0, heads, width // heads], np.int64)), perm=perm)

    def attention(self):
        width, heads, length = self.rng.choice([32, 64]), self.rng.choice([2, 4]), 16
        x, masked = "x", self.rng.random() < 0.4
        mask = self.stored(np.triu(np.full((length, length), self.rng.choice([-1e9, -1e4, -np.finfo(np.float32).max])), 1)) if masked else None
        for _ in range(self.rng.randint(1, 3)):
            y, gains = self.norm(x, width)
            q, k, v = (self.linear(y, width, width, gains) for _ in range(3))
            scores = self.add("MatMul", self.split(q, width, heads, [0, 2, 1, 3]), self.split(k, width, heads, [0, 2, 3, 1]))
            scores = self.add("Mul", scores, self.stored((width / heads) ** -0.5))
            scores = self.add("Softmax", self.add("Add", scores, mask) if masked else scores, axis=-1)
            y = self.add("Transpose", self.add("MatMul", scores, self.split(v, width, heads, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
            y = self.add("Reshape", y, self.stored([0, 0, width], np.int64))
            x = self.add("Add", x, self.linear(y, width, width, np.ones(width)))
            y, gains = self.norm(x, width)
            y = self.linear(y, width, 2 * width, gains)
            kind = self.rng.choice(["Relu", "Gelu", "SiLU"])
            if kind == "Gelu":
                e = self.add("Erf", self.add("Div", y, self.stored(2 ** 0.5)))
                y = self.add("Mul", self.add("Mul", y, self.add("Add", e, self.stored(1))), self.stored(0.5))
            else:
                y = self.add("Relu", y) if kind == "Relu" else self.add("Mul", y, self.add("Sigmoid", y))
            x = self.add("Add", x, self.linear(y, 2 * width, width, np.ones(2 * width)))
        y, gains = self.norm(x, width)
        return self.linear(y, width, 12, gains), ["n", length, width]


def network(seed):
    """A model, and a function that draws an input for it."""
    net = Net(seed)
    result, shape = (net.attention if seed % 2 else net.convolutional)()
    graph = helper.make_graph(net.nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, shape)],
                              [helper.make_tensor_value_info(result, T.FLOAT, None)], net.tensors)
    spikes = net.rng.random() < 0.5

    def draw(i):
        rng = np.random.default_rng((seed, i))
        x = rng.standard_normal([1, *shape[1:]])
        if spikes and i % 4 == 0:
            x.flat[rng.integers(x.size)] *= 20
        return {"x": x.astype(np.float32)}

    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), draw


def compare(seed, flags=()):
    """(kind of graph, error of ours, errors of quantize_static by setting)."""
    proto, draw = network(seed)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "m.onnx"
        onnx.save(proto, model)
        ours, theirs = static_errors.compare(model, [draw(i) for i in range(SAMPLES)], [draw(1000 + i) for i in range(HELD_OUT)], flags)
    return "attention" if seed % 2 else "convolutional", ours, theirs


def main(count=100, start=0):
    rows = []
    for seed in range(start, start + count):
        rows.append((seed, *compare(seed)))
        seed, kind, ours, theirs = rows[-1]
        best = min(theirs, key=theirs.get)
        print(f"{seed} {kind}: {ours:.4f}, quantize_static {theirs[best]:.4f} ({best})", flush=True)
    return summary(rows)


def summary(rows):
    best = [min(theirs.values()) for *_, theirs in rows]
    ours = [o for _, _, o, _ in rows]
    each = {s: statistics.median(r[3][s] for r in rows) for s in SETTINGS}
    worse = [f"{seed} ({kind[0]}: {o:.4f}, {b:.4f})" for (seed, kind, o, _), b in zip(rows, best) if o > b]
    print(f"{len(rows)} graphs: median error {statistics.median(ours):.4f}; quantize_static, best setting for each graph, {statistics.median(best):.4f}; "
          + ", ".join(f"{s} {v:.4f}" for s, v in each.items()))
    print(f"median of quotients {statistics.median(o / b for o, b in zip(ours, best)):.3f}; above quantize_static: {len(worse)} {' '.join(worse)}")
    return statistics.median(ours), statistics.median(best), worse


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
