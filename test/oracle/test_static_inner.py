"""Normalizations, Gelu and HardSwish that an exporter wrote as single operators: they stay in float, and the outputs near the float model's."""
import json

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant
from runtime import REDUCED
from test_verify import library, with_runtime

WIDTH = 32


def model(path, rng):
    """A written-out LayerNormalization with an outlier in its scale, a product, a written-out Gelu, a product."""
    gain = rng.uniform(0.5, 1.5, WIDTH)
    gain[3] = 12
    arrays = {**{f"w{i}": rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for i in (1, 2)}, "gain": gain, "bias": rng.normal(size=WIDTH),
              "epsilon": 1e-5, "two": 2, "root": np.sqrt(2), "one": 1, "half": 0.5}
    lines = """ReduceMean x m
        Sub x m d
        Pow d two q
        ReduceMean q v
        Add v epsilon e
        Sqrt e s
        Div d s n
        Mul n gain k
        Add k bias l
        MatMul l w1 a
        Div a root b
        Erf b c
        Add c one g
        Mul a g t
        Mul t half u
        MatMul u w2 y""".splitlines()
    nodes = [helper.make_node(op, names, [out], **({"axes": [-1]} if op == "ReduceMean" else {})) for op, *names, out in map(str.split, lines)]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [tensor("x", TensorProto.FLOAT, [8, WIDTH])], [tensor("y", TensorProto.FLOAT, [8, WIDTH])],
                              [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in arrays.items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(m)
    onnx.save(m, path)


def rows(rng, n):
    """Rows of very different sizes: so are their variances."""
    return (rng.normal(size=(n, 8, WIDTH)) * np.exp(rng.uniform(-3, 3, (n, 8, 1)))).astype(np.float32)


def run(path, x, optimized):
    o = ort.SessionOptions()
    o.optimized_model_filepath = str(optimized)
    s = ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])
    return np.concatenate([s.run(None, {"x": i})[0] for i in x])


def test_inner_values_stay_in_float(tmp_path):
    rng = np.random.default_rng(5)
    path, data = tmp_path / "in.onnx", tmp_path / "x.npz"
    model(path, rng)
    np.savez(data, x=rows(rng, 32))
    new = rows(rng, 64)
    want, errors, found = run(path, new, tmp_path / "o.onnx"), [], []
    for args in ([], ["--coarse-activations"]):  # that has codes for all activations
        out, optimized = tmp_path / "out.onnx", tmp_path / "optimized.onnx"
        r = onnxquant("--json", "--activations", "static", "--calib", data, "--no-balance", "--min-sqnr", 0, "--ort-lib", library(), *REDUCED, *args, path, out,
                      binary=with_runtime())
        assert r.status == 0, r.stderr
        errors.append(np.square(run(out, new, optimized) - want).sum() / np.square(want).sum())
        found.append(json.loads(r.stdout)["plan"]["static_activations"])
        operators = [n.op_type for n in onnx.load(optimized).graph.node]
        assert operators.count("LayerNormalization") == (not args), operators
        assert onnxquant("verify", "--inputs", data, path, out, "--ort-lib", library(), binary=with_runtime()).status == 0
    inner = set(found[0].get("inner", []))  # none, if codes go into products alone
    assert bool(inner) != ("loss_float_products" in found[0]) and inner <= set("mdqvesnkbcgt") and "inner" not in found[1], found
    assert errors[0] < 0.1 * errors[1], errors


def test_hard_swish(tmp_path):
    """Convolutions with a HardSwish behind each, in four operators."""
    rng, channels, x = np.random.default_rng(7), 8, "x"
    nodes, arrays = [], {"zero": 0, "three": 3, "six": 6}
    for i in range(4):
        arrays[f"w{i}"] = rng.normal(size=(channels, channels, 3, 3)) / np.sqrt(4 * channels)
        for op, *names, out in (("Conv", x, f"w{i}", f"c{i}"), ("Add", f"c{i}", "three", f"a{i}"), ("Clip", f"a{i}", "zero", "six", f"k{i}"),
                                ("Mul", f"c{i}", f"k{i}", f"p{i}"), ("Div", f"p{i}", "six", f"h{i}")):
            nodes.append(helper.make_node(op, names, [out], **({"pads": [1] * 4} if op == "Conv" else {})))
        x = f"h{i}"
    shape = [1, channels, 12, 12]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in arrays.items()])
    path, data = tmp_path / "in.onnx", tmp_path / "x.npz"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    np.savez(data, x=rng.normal(size=(32, *shape)).astype(np.float32))
    new = rng.normal(size=(16, *shape)).astype(np.float32)
    want, errors = run(path, new, tmp_path / "o.onnx"), []
    for args in ([], ["--coarse-activations"]):
        out = tmp_path / "out.onnx"
        r = onnxquant("--json", "--activations", "static", "--calib", data, "--min-sqnr", 0, "--ort-lib", library(), *REDUCED, *args, path, out, binary=with_runtime())
        assert r.status == 0, r.stderr
        errors.append(np.square(run(out, new, tmp_path / "o.onnx") - want).sum() / np.square(want).sum())
        assert bool(json.loads(r.stdout)["plan"]["static_activations"].get("inner")) == (not args)
    assert errors[0] < errors[1], errors
    assert onnxquant("verify", "--inputs", data, path, out, "--ort-lib", library(), binary=with_runtime()).status == 0
