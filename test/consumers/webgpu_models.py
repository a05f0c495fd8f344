"""Writes small models of one operator each to a folder, and cases.json with their inputs' shapes and right outputs."""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

rng = np.random.default_rng(0)
folder, cases = pathlib.Path(sys.argv[1]), {}


def inputs(rows, length):
    return np.sin(np.arange(rows * length)).reshape(rows, length).astype(np.float32)


def put(name, nodes, stored, rows, length, shape, want=None):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, [rows, length])], [helper.make_tensor_value_info("y", T.FLOAT, shape)], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    onnx.save(model, folder / f"{name}.onnx")
    if want is None:
        want = ReferenceEvaluator(model).run(None, {"x": inputs(rows, length)})[0]
    cases[name] = {"rows": rows, "length": length, "want": np.asarray(want, np.float64).reshape(-1).tolist()}


def unpacked(codes, bits, shape):
    return np.unpackbits(codes[..., None], axis=-1, bitorder="little").reshape(*shape, -1, bits) @ (1 << np.arange(bits))


def nbits(name, bits, block, k=256, n=32, rows=2, zero_points=False, bias=False, level=4):
    blocks = -(-k // block)
    codes = rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    scales = (rng.random((n, blocks)) * .01 + .001).astype(np.float32)
    zeros = rng.integers(0, 256, (n, (blocks * bits + 7) // 8), dtype=np.uint8)
    names, stored = ["x", "codes", "scales"], [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    middle = np.full((n, blocks), 1 << (bits - 1))
    if zero_points:
        names, middle = names + ["zeros"], unpacked(zeros, bits, (n,))[:, :blocks]
        stored.append(numpy_helper.from_array(zeros, "zeros"))
    added = np.linspace(-1, 1, n, dtype=np.float32)
    if bias:
        names += [""] * (5 - len(names)) + ["bias"]
        stored.append(numpy_helper.from_array(added, "bias"))
    w = ((unpacked(codes, bits, (n, blocks)) - middle[..., None]) * scales[..., None]).reshape(n, -1)[:, :k]
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block, accuracy_level=level)
    put(name, [node], stored, rows, k, [rows, n], inputs(rows, k) @ w.T + bias * added)


def decoded(name, kind, low, high, block=0, zero_points=False, single=False):
    k, n = 128, 30
    shape = () if single else (k // block, n) if block else (n,)
    stored = [helper.make_tensor("codes", kind, (k, n), rng.integers(low, high + 1, k * n).tolist()),
              numpy_helper.from_array(np.asarray(rng.random(shape) * .01 + .001, np.float32), "scales")]
    if zero_points:
        stored.append(helper.make_tensor("zeros", kind, shape, rng.integers(1, 7, int(np.prod(shape))).tolist()))
    attributes = {"axis": 0, "block_size": block} if block else {} if single else {"axis": 1}
    put(name, [helper.make_node("DequantizeLinear", [t.name for t in stored], ["w"], **attributes), helper.make_node("MatMul", ["x", "w"], ["y"])], stored, 4, k, [4, n])


for bits in 2, 4, 8:
    for block in 16, 32, 64, 128, 256:
        nbits(f"nbits{bits}_block{block}", bits, block)
    for rows in 1, 40:
        nbits(f"nbits{bits}_rows{rows}", bits, 32, rows=rows)
        nbits(f"nbits{bits}_rows{rows}_zeros", bits, 32, rows=rows, zero_points=True)
        nbits(f"nbits{bits}_rows{rows}_bias", bits, 32, rows=rows, bias=True)
        nbits(f"nbits{bits}_rows{rows}_short", bits, 32, k=80, rows=rows)
    nbits(f"nbits{bits}_zeros_bias", bits, 32, zero_points=True, bias=True)
    nbits(f"nbits{bits}_short_zeros", bits, 32, k=80, zero_points=True)
    nbits(f"nbits{bits}_columns33", bits, 32, k=128, n=33, rows=40)
    nbits(f"nbits{bits}_level0", bits, 32, rows=40, level=0)
for name, kind, low, high in ("int8", T.INT8, -127, 127), ("uint8", T.UINT8, 0, 255), ("int4", T.INT4, -8, 7), ("uint4", T.UINT4, 0, 15):
    for zero_points in False, True:
        decoded(f"{name}_channel{'_zeros' * zero_points}", kind, low, high, zero_points=zero_points)
        decoded(f"{name}_block{'_zeros' * zero_points}", kind, low, high, 32, zero_points)
        decoded(f"{name}_single{'_zeros' * zero_points}", kind, low, high, 0, zero_points, True)
(folder / "cases.json").write_text(json.dumps(cases))
