"""--fold: constants folded into weights and biases. Outputs in ONNX Runtime, without its optimizations, and verify."""
import json
import random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from command import onnxquant

TYPES = {np.float32: (T.FLOAT, 1e-5), np.float16: (T.FLOAT16, 1e-2)}


class Chains:
    """A random network of products, each with a random chain of nodes in front and behind."""

    def __init__(self, seed, kind=np.float32):
        self.rng, self.np, self.kind = random.Random(seed), np.random.default_rng(seed), kind
        self.nodes, self.tensors, self.wanted = [], [], 0
        self.opset = self.rng.choice([7, 8, 9, 11, 13, 14, 15, 17, 18, 21, 22])
        self.image = self.rng.random() < 0.7

    def add(self, op, *inputs, **attrs):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def stored(self, v):
        name = f"t{len(self.tensors)}"
        v = np.asarray(v, self.kind)
        if v.ndim > 0 and self.rng.random() < 0.2:
            out = f"v{len(self.nodes)}"
            self.nodes.append(helper.make_node("Constant", [], [out], value=numpy_helper.from_array(v, name)))
            return out
        self.tensors.append(numpy_helper.from_array(v, name))
        if self.rng.random() < 0.1:
            return self.add("Identity", name)
        return name

    def statistics(self, n):
        draw = self.np.uniform
        return [self.stored(v) for v in (draw(-2, 2, n), draw(-1, 1, n), draw(-1, 1, n), draw(0.3, 3, n))]

    def number(self, n, rank, axis):
        """A constant for channels, of one of the shapes that it can have, or of one that cannot be folded."""
        shape = [1] * rank
        shape[axis] = n
        kind = self.rng.random()
        if kind < 0.3:
            shape = self.rng.choice([[], [1], [1] * rank])
        elif kind < 0.6:
            shape = shape[axis:]
        v = self.np.uniform(0.5, 1.5, shape) * self.np.choice([-1, 1], shape)
        return self.stored(v)

    def behind(self, x, n, rank, axis):
        for _ in range(self.rng.randrange(4)):
            op = self.rng.choice(["BatchNormalization", "Mul", "Add", "Sub", "Div", "Identity", "Relu"])
            if op == "BatchNormalization":
                if axis != 1:
                    continue
                x = self.add(op, x, *self.statistics(n), epsilon=self.rng.choice([1e-5, 1e-3, 0.1]))
            elif op in ("Identity", "Relu"):
                x = self.add(op, x)
            else:
                inputs = [x, self.number(n, rank, axis)]
                if op != "Div" and self.rng.random() < 0.4:
                    inputs.reverse()
                x = self.add(op, *inputs)
        return x

    def convolution(self, x, n):
        m, groups = self.rng.choice([4, 6, 8]), 1
        if self.rng.random() < 0.4:
            groups = 2
            n, m = n, m
        kernel, turned = self.rng.choice([1, 2, 3]), self.rng.random() < 0.3
        if self.rng.random() < 0.4:
            x = self.add("BatchNormalization", x, *self.statistics(n))
        pads = [self.rng.choice([0, 0, 1]) for _ in range(4)]
        shape = [n, m // groups, kernel, kernel] if turned else [m, n // groups, kernel, kernel]
        inputs = [x, self.stored(self.np.standard_normal(shape) / np.sqrt(n * kernel * kernel))]
        if self.rng.random() < 0.5:
            inputs.append(self.stored(self.np.standard_normal(m) * 0.3))
        x = self.add("ConvTranspose" if turned else "Conv", *inputs, group=groups, pads=pads if not turned else [0] * 4)
        return self.behind(x, m, 4, 1), m

    def matrix(self, x, n, rank):
        m = self.rng.choice([4, 6, 8])
        if rank == 2 and self.rng.random() < 0.4:
            x = self.add("BatchNormalization", x, *self.statistics(n))
        w = self.np.standard_normal([n, m]) / np.sqrt(n)
        if rank == 2 and self.rng.random() < 0.5:
            attrs, bias = {}, self.stored(self.np.standard_normal(self.rng.choice([[m], [1, m], [1]])) * 0.3)
            if self.rng.random() < 0.5:
                w, attrs = w.T, {"transB": 1}
            if self.rng.random() < 0.3:
                attrs |= {"alpha": 0.5, "beta": 2.0}
            x = self.add("Gemm", x, self.stored(w), bias, **attrs)
        elif self.rng.random() < 0.2:
            x = self.add("MatMul", x, self.add("Transpose", self.stored(w.T), perm=[1, 0]))
        else:
            x = self.add("MatMul", x, self.stored(w))
        return self.behind(x, m, rank, rank - 1), m

    def model(self):
        x, n, rank = "x", 4, self.rng.choice([2, 3])
        shape = [2, 4, 12, 12] if self.image else [3, 4] if rank == 2 else [2, 3, 4]
        for _ in range(self.rng.randrange(1, 4)):
            x, n = self.convolution(x, n) if self.image else self.matrix(x, n, rank)
        kind = TYPES[self.kind][0]
        y = self.add("Identity", x)
        g = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info(y, kind, None)], self.tensors)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return m, {"x": self.np.standard_normal(shape).astype(self.kind)}


def run(path, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def fold(folder, *args):
    done = onnxquant(*args, "--fold", "--json", folder / "in.onnx", folder / "out.onnx")
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)["plan"]["folded"]


def verified(folder, *args):
    done = onnxquant("verify", "--json", "--engine", "go", *args, folder / "in.onnx", folder / "out.onnx")
    assert done.status in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", list(TYPES), ids=["float32", "float16"])
@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.long) for i in range(15, 300, 15))])
def test_random(tmp_path, first, kind):
    """The folded model computes the same. No BatchNormalization is left behind a product that nothing else reads."""
    folded = 0
    for seed in range(first, first + 15):
        model, feeds = Chains(seed, kind).model()
        onnx.save(model, tmp_path / "in.onnx")
        found = fold(tmp_path, "-x", "*")
        folded += sum(found["nodes"].values())
        want, got = run(tmp_path / "in.onnx", feeds)[0], run(tmp_path / "out.onnx", feeds)[0]
        assert got.shape == want.shape
        error = np.abs(got.astype(np.float64) - want).max() / np.abs(want.astype(np.float64)).max()
        assert error <= TYPES[kind][1], f"seed {seed}: {error}, {found}"
        if seed % 5 == 0:
            report = verified(tmp_path)
            assert report["passed"], f"seed {seed}: {report['failures']}"
    assert folded >= 15


def network(folder):
    """Convolutions, a Gemm and a MatMul, with what follows them in networks."""
    rng = np.random.default_rng(5)
    tensors, nodes = [], []

    def stored(name, v):
        tensors.append(numpy_helper.from_array(np.asarray(v, np.float32), name))
        return name

    def bn(x, n, y):
        nodes.append(helper.make_node("BatchNormalization", [x, stored(y + ".g", rng.uniform(0.5, 2, n)), stored(y + ".b", rng.normal(size=n)),
                                                             stored(y + ".m", rng.normal(size=n)), stored(y + ".v", rng.uniform(0.5, 2, n))], [y], name=y))
        return y

    nodes.append(helper.make_node("Conv", ["x", stored("c1.weight", rng.normal(size=(16, 3, 3, 3)) / 5)], ["c1"], name="c1", pads=[1] * 4))
    nodes.append(helper.make_node("Relu", [bn("c1", 16, "n1")], ["r1"]))
    nodes.append(helper.make_node("Conv", ["r1", stored("c2.weight", rng.normal(size=(32, 16, 3, 3)) / 12), stored("c2.bias", rng.normal(size=32))], ["c2"], name="c2"))
    nodes.append(helper.make_node("Relu", [bn("c2", 32, "n2")], ["r2"]))
    nodes.append(helper.make_node("GlobalAveragePool", ["r2"], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", stored("fc.weight", rng.normal(size=(32, 32)) / 6), stored("fc.bias", rng.normal(size=32))], ["g"], name="fc"))
    nodes.append(helper.make_node("MatMul", [bn("g", 32, "n3"), stored("head.weight", rng.normal(size=(32, 16)) / 6)], ["h"], name="head"))
    nodes.append(helper.make_node("Add", ["h", stored("head.bias", rng.normal(size=16))], ["a"]))
    nodes.append(helper.make_node("Mul", ["a", stored("scale", rng.uniform(0.5, 2, 16))], ["y"]))
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, ["n", 3, 16, 16])], [helper.make_tensor_value_info("y", T.FLOAT, ["n", 16])], tensors)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(m)
    onnx.save(m, folder / "in.onnx")
    np.savez(folder / "x.npz", x=rng.normal(size=(8, 3, 16, 16)).astype(np.float32))


SETTINGS = {
    "int8": ["-b", "8", "--ops", "all"],
    "channels": ["-b", "8", "-g", "-1", "--ops", "all"],
    "int4": ["-b", "4", "-g", "16", "--ops", "all", "--zero-point"],
    "float16": ["--float16"],
    "both": ["-b", "8", "--ops", "all", "--float16"],
    "dynamic": ["--activations", "dynamic", "--ops", "all"],
    "static": ["--activations", "static"],
    "tensorrt": ["--activations", "static", "--target", "tensorrt"],
    "openvino": ["--activations", "static", "--target", "openvino"],
    "qnn": ["--activations", "static", "--target", "qnn", "--activation-type", "uint16", "--fix-dim", "n=8"],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(tmp_path, setting):
    """Any conversion of a folded model is sound, with a record and without, and about as near to the float model as without
    folding. Ranges are those of the unfolded model."""
    network(tmp_path)
    flags = SETTINGS[setting]
    if "static" in flags:
        done = onnxquant("calibrate", "--data", tmp_path / "x.npz", "-o", tmp_path / "r.json", tmp_path / "in.onnx")
        assert done.status == 0, done.stderr
        flags = [*flags, "--ranges", tmp_path / "r.json"]
    sqnr = {}
    for more in ([], ["--fold"], ["--fold", "--no-provenance"]):
        done = onnxquant(*flags, *more, "--json", tmp_path / "in.onnx", tmp_path / "out.onnx")
        assert done.status == 0, done.stderr
        assert ("folded" in json.loads(done.stdout)["plan"]) == bool(more)
        report = verified(tmp_path, "--inputs", tmp_path / "x.npz")
        assert report["passed"], report["failures"]
        sqnr[len(more)] = report["execution"]["outputs"][0]["sqnr_db"]
        assert any("are folded" in n for n in report["structure"]["notes"]) == bool(more)
    assert sqnr[1] == sqnr[2] and sqnr[1] > sqnr[0] - (8 if setting == "qnn" else 3), sqnr  # one scale for a weight of QNN
    operators = {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node}
    assert "BatchNormalization" not in operators


def tensor(m, name):
    return next(t for t in m.graph.initializer if t.name == name)


def change(m, name, by):
    t = tensor(m, name)
    t.CopyFrom(numpy_helper.from_array(by(numpy_helper.to_array(t).copy()), name))


def scaled(v):
    v.reshape(-1)[0] *= 1.01
    return v


def added(v):
    v[1] += 0.01
    return v


def swapped(v):
    v[[0, 1]] = v[[1, 0]]
    return v


MUTATIONS = {
    "an element of a bias": (["-b", "8", "--ops", "all"], lambda m: change(m, "c1.bias", scaled)),
    "an offset of a bias": (["-b", "8", "--ops", "all"], lambda m: change(m, "fc.bias", added)),
    "no bias": (["-b", "8", "--ops", "all"], lambda m: change(m, "c2.bias", lambda v: v * 0)),
    "the bias of an Add": (["-b", "8", "--ops", "all"], lambda m: change(m, "head.bias", swapped)),
    "a weight in float": (["-b", "8", "--ops", "MatMul"], lambda m: change(m, "c2.weight", scaled)),
    "channels of a weight in float": (["-b", "8", "--ops", "MatMul"], lambda m: change(m, "c2.weight", swapped)),
    "a scale": (["-b", "8", "-g", "-1", "--ops", "all"], lambda m: change(m, "c2.weight_scale", lambda v: v * np.where(np.arange(v.size) == 3, 2, 1).astype(v.dtype))),
    "codes of other channels": (["-b", "8", "-g", "-1", "--ops", "all"], lambda m: change(m, "c2.weight_i8", swapped)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("recorded", [True, False])
def test_mutations(tmp_path, mutation, recorded):
    """What is not the folded weight or bias of the float model fails."""
    network(tmp_path)
    flags, mutate = MUTATIONS[mutation]
    fold(tmp_path, *flags)
    m = onnx.load(tmp_path / "out.onnx")
    if not recorded:
        del m.metadata_props[:]
    else:  # the record of what was written would find it alone
        kept = [p for p in m.metadata_props if p.key != "onnxquant.written"]
        del m.metadata_props[:]
        m.metadata_props.extend(kept)
    onnx.save(m, tmp_path / "out.onnx")
    assert verified(tmp_path)["passed"]
    mutate(m)
    onnx.save(m, tmp_path / "out.onnx")
    report = verified(tmp_path)
    assert not report["passed"] and report["failures"], mutation


def test_not_folded(tmp_path):
    """A BatchNormalization that is gone without being folded fails; so does one with another epsilon."""
    network(tmp_path)
    whole = onnx.load(tmp_path / "in.onnx")
    for gone in (True, False):
        m = onnx.ModelProto()
        m.CopyFrom(whole)
        n = next(n for n in m.graph.node if n.name == "n2")
        if gone:
            next(r for r in m.graph.node if n.output[0] in r.input).input[0] = n.input[0]
            m.graph.node.remove(n)
        else:
            n.attribute.append(helper.make_attribute("epsilon", 1e-2))
        onnx.save(m, tmp_path / "in.onnx")
        fold(tmp_path, "-b", "8", "--ops", "all")
        onnx.save(whole, tmp_path / "in.onnx")
        for name in ("onnxquant.written", "onnxquant.provenance"):
            assert not verified(tmp_path)["passed"], (gone, name)
            m = onnx.load(tmp_path / "out.onnx")
            kept = [p for p in m.metadata_props if p.key != name]
            del m.metadata_props[:]
            m.metadata_props.extend(kept)
            onnx.save(m, tmp_path / "out.onnx")
