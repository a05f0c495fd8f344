"""restyle and dequantize: models in ONNX Runtime's own forms compute what they did, in any form.

The models are made by ONNX Runtime's quantizer, or node by node for what it does
not write. Products are computed in float (see runtime.session).
"""
import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

import graphs
import runtime
from command import CORPUS, onnxquant

logging.disable(logging.INFO)

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
FUNCTIONS = ["function_const_op12", "function_const_op17_if", "function_const_weight", "function_returns_weight"]
COMMANDS = {"dequantize": ["dequantize"], "dq": ["restyle", "--style", "dq"]}


def product(w):
    """y = x·w."""
    k, n = w.shape
    dtype = helper.np_dtype_to_tensor_dtype(w.dtype)
    return model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], [numpy_helper.from_array(w, "w")],
                 [("x", dtype, ["batch", k])], [("y", dtype, ["batch", n])])


def model(nodes, tensors, inputs, outputs, opset=21):
    values = lambda ends: [helper.make_tensor_value_info(*v) for v in ends]
    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs), tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def packed(codes, bits):
    """Codes along the last axis in bytes, the first in the lowest bits."""
    per = 8 // bits
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % per)])
    codes = codes.reshape(*codes.shape[:-1], -1, per).astype(np.uint32) << (bits * np.arange(per, dtype=np.uint32))
    return codes.sum(axis=-1).astype(np.uint8)


class Matrix:
    """A random [n, k] matrix of codes, as MatMulNBits reads it."""

    def __init__(self, n, k, bits, block, zeros=None, dtype=np.float32, seed=0):
        rng = np.random.default_rng(seed)
        blocks = -(-k // block)
        self.n, self.k, self.bits, self.block, self.dtype = n, k, bits, block, dtype
        self.codes = rng.integers(0, 2 ** bits, (n, k))
        self.scales = rng.normal(0, 0.1, (n, blocks)).astype(dtype)
        self.zeros = None
        if zeros == "codes":
            self.zeros = rng.integers(0, 2 ** bits, (n, blocks))
        elif zeros == "float":
            self.zeros = rng.uniform(0, 2 ** bits, (n, blocks)).astype(dtype)

    def values(self):
        """What the operator multiplies by, rounded to the type of the scales."""
        zeros = 2 ** (self.bits - 1) if self.zeros is None else np.repeat(self.zeros, self.block, axis=1)[:, :self.k]
        scales = np.repeat(self.scales, self.block, axis=1)[:, :self.k]
        return ((self.codes - zeros).astype(np.float32) * scales.astype(np.float32)).astype(self.dtype)

    def tensors(self, padded=True):
        codes = self.codes
        if padded:
            codes = np.pad(codes, [(0, 0), (0, -self.k % self.block)]).reshape(self.n, -1, self.block)
        found = {"codes": packed(codes, self.bits), "scales": self.scales}
        if self.zeros is not None:
            found["zeros"] = self.zeros if self.zeros.dtype == self.dtype else packed(self.zeros, self.bits)
        return [numpy_helper.from_array(t, name) for name, t in found.items()]

    def product(self, x, y, bias="", codes="codes", groups=""):
        zeros = "" if self.zeros is None else "zeros"
        return helper.make_node("MatMulNBits", [x, codes, "scales", zeros, groups, bias], [y], f"{y}_node", domain="com.microsoft",
                                K=self.k, N=self.n, bits=self.bits, block_size=self.block)

    def gather(self, i, y, codes="codes"):
        inputs = [codes, i, "scales"] + ([] if self.zeros is None else ["zeros"])
        return helper.make_node("GatherBlockQuantized", inputs, [y], f"{y}_node", domain="com.microsoft",
                                gather_axis=0, quantize_axis=1, bits=self.bits, block_size=self.block)


def rewritten(path, command, folder, warns=False):
    out = folder / "out.onnx"
    r = onnxquant(*COMMANDS.get(command, [command]), "--quiet", path, out)
    assert r.status == 0 and bool(r.stderr) == warns, r.stderr
    onnx.checker.check_model(out, full_check=True)
    return onnx.load(out)


def check_same(before, folder, feeds, command):
    """A model computes what it did once its weights are in another form."""
    path = folder / "in.onnx"
    onnx.save(before, path)
    after = rewritten(path, command, folder)
    assert not [n for n in after.graph.node if n.domain], "operators of ONNX Runtime are left"
    assert [o.domain for o in after.opset_import] == [""], "so is their import"
    runtime.assert_same(runtime.run(after, feeds), runtime.run(before, feeds))
    read = {i for n in after.graph.node for i in n.input}
    assert {t.name for t in after.graph.initializer} <= read, "tensors that nothing reads are left"
    if command == "dequantize":
        assert not {"DequantizeLinear", "Cast"} & {n.op_type for n in after.graph.node}
    return after


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("k, n", [(64, 24), (100, 33), (17, 5)])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantizer_of_onnxruntime(tmp_path, bits, symmetric, block, k, n, command):
    rng = np.random.default_rng(k)
    config = DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, bits=bits, accuracy_level=0,
                                          quant_format=QuantFormat.QOperator, op_types_to_quantize=("MatMul",))
    q = MatMulNBitsQuantizer(product(rng.standard_normal((k, n)).astype(np.float32)), algo_config=config)
    q.process()
    before = q.model.model
    assert [n.op_type for n in before.graph.node] == ["MatMulNBits"]
    check_same(before, tmp_path, [rng.standard_normal((3, k)).astype(np.float32)], command)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zeros", [None, "codes"])
@pytest.mark.parametrize("k, n", [(96, 8), (50, 7)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products(tmp_path, bits, k, n, zeros, dtype, command):
    """All that MatMulNBits can be, a bias too, and values that are exactly those of its formula."""
    m = Matrix(n, k, bits, 32, zeros, dtype)
    rng = np.random.default_rng(1)
    tensors = m.tensors() + [numpy_helper.from_array(rng.standard_normal(n).astype(dtype), "bias")]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    before = model([m.product("x", "y", "bias")], tensors, [("x", kind, ["batch", k])], [("y", kind, ["batch", n])])
    after = check_same(before, tmp_path, [rng.standard_normal((3, k)).astype(dtype)], command)
    if command == "dequantize":
        w = next(t for t in after.graph.initializer if t.name != "bias")
        assert (numpy_helper.to_array(w) == m.values().T).all()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("zeros", [None, "codes"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_tables(tmp_path, bits, zeros, command):
    """GatherBlockQuantized, alone and tied to a head: the codes are stored once."""
    m = Matrix(40, 64, bits, 16, zeros)
    i = np.array([[0, 3, 39], [7, -1, 3]])
    before = model([m.gather("i", "y")], m.tensors(padded=False), [("i", TensorProto.INT64, i.shape)], [("y", FLOAT, [2, 3, 64])])
    check_same(before, tmp_path, [i], command)

    shape = numpy_helper.from_array(np.array([40, 64 * bits // 8]), "shape")
    tied = model([helper.make_node("Reshape", ["codes", "shape"], ["table"]), m.gather("i", "h", "table"), m.product("h", "y")],
                 m.tensors() + [shape], [("i", TensorProto.INT64, i.shape)], [("y", FLOAT, [2, 3, 40])])
    after = check_same(tied, tmp_path, [i], command)
    large = [t for t in after.graph.initializer if np.prod(t.dims) == 40 * 64]
    assert len(large) == 1, "the weight is stored twice"


@pytest.mark.parametrize("data", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("command", COMMANDS)
def test_tables_of_four_bits(tmp_path, command, axis, data):
    """Codes of their own type, in blocks along either axis."""
    rng = np.random.default_rng(3)
    low = -8 if data == TensorProto.INT4 else 0
    shape = [40, 2] if axis else [3, 32]
    tensors = [helper.make_tensor("codes", data, [40, 32], rng.integers(low, low + 16, 40 * 32)),
               numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), "scales"),
               helper.make_tensor("zeros", data, shape, rng.integers(low, low + 16, np.prod(shape)))]
    i = np.array([5, 0, 39])
    node = helper.make_node("GatherBlockQuantized", ["codes", "i", "scales", "zeros"], ["y"], domain="com.microsoft",
                            gather_axis=0, quantize_axis=axis, block_size=16)
    check_same(model([node], tensors, [("i", TensorProto.INT64, [3])], [("y", FLOAT, [3, 32])]), tmp_path, [i], command)


def test_float_zero_points(tmp_path):
    """They fold to exactly what the operator's formula says, and have no DequantizeLinear."""
    m = Matrix(8, 50, 4, 16, "float")
    before = model([m.product("x", "y")], m.tensors(), [("x", FLOAT, ["batch", 50])], [("y", FLOAT, ["batch", 8])])
    x = [np.random.default_rng(1).standard_normal((3, 50)).astype(np.float32)]
    after = check_same(before, tmp_path, x, "dequantize")
    assert (numpy_helper.to_array(after.graph.initializer[0]) == m.values().T).all()
    left = rewritten(tmp_path / "in.onnx", "dq", tmp_path, warns=True)
    assert [n.op_type for n in left.graph.node] == ["MatMulNBits"]


@pytest.mark.parametrize("trivial", [True, False])
def test_groups(tmp_path, trivial):
    """g_idx is taken where it says what no g_idx says, and else the weight is left."""
    m = Matrix(8, 64, 4, 16)
    index = np.arange(64, dtype=np.int32) // 16
    tensors = m.tensors() + [numpy_helper.from_array(index if trivial else index[::-1].copy(), "groups")]
    before = model([m.product("x", "y", groups="groups")], tensors, [("x", FLOAT, ["batch", 64])], [("y", FLOAT, ["batch", 8])])
    onnx.save(before, tmp_path / "in.onnx")
    after = rewritten(tmp_path / "in.onnx", "dequantize", tmp_path, warns=not trivial)
    assert [n.op_type for n in after.graph.node] == (["MatMul"] if trivial else ["MatMulNBits"])


@pytest.mark.parametrize("zeros", [[], ["--zero-point"]])
@pytest.mark.parametrize("bits", ["2", "4", "8"])
@pytest.mark.parametrize("k, n", [(64, 24), (50, 7)])
def test_there_and_back(tmp_path, k, n, bits, zeros):
    """DequantizeLinear to MatMulNBits and back: the same outputs, and the same tensors."""
    rng = np.random.default_rng(5)
    paths = [tmp_path / f"{step}.onnx" for step in ("float", "dq", "nbits", "back")]
    onnx.save(product(rng.standard_normal((k, n)).astype(np.float32)), paths[0])
    for args in (["--bits", bits, "--block", 16, *zeros, paths[0], paths[1]],
                 ["restyle", "--style", "nbits", paths[1], paths[2]],
                 ["restyle", "--style", "dq", paths[2], paths[3]]):
        r = onnxquant(*args)
        assert r.status == 0, r.stderr
    x = [rng.standard_normal((3, k)).astype(np.float32)]
    dq, nbits, back = map(onnx.load, paths[1:])
    assert [n.op_type for n in nbits.graph.node] == ["MatMulNBits"]
    # What ONNX Runtime fuses of 2-bit codes it may compute wrongly.
    want = runtime.run(dq, x, fused=False)
    runtime.assert_same(runtime.run(nbits, x), want)
    runtime.assert_same(runtime.run(back, x, fused=False), want)
    if bits != "2" or n % 4 == 0:
        stored = lambda m: {t.name: (t.data_type, list(t.dims), t.raw_data) for t in m.graph.initializer}
        assert stored(back) == stored(dq)
        assert runtime.run(back, x)[0].shape == want[0].shape
    runtime.assert_same(runtime.run(back, x), want)


CODES = [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32, TensorProto.INT4,
         TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ]


@pytest.mark.parametrize("granularity", ["tensor", "axis", "blocks"])
@pytest.mark.parametrize("codes", CODES, ids=TensorProto.DataType.Name)
def test_dequantize_linear_of_any_type(tmp_path, codes, granularity):
    """Whatever the codes are, what is folded is bit for bit what ONNX Runtime decodes."""
    rng = np.random.default_rng(9)
    shape, attributes = {"tensor": ([], {}), "axis": ([40], {"axis": 0}), "blocks": ([40, 4], {"axis": 1, "block_size": 16})}[granularity]
    kind = helper.tensor_dtype_to_np_dtype(codes)
    plain = codes not in (TensorProto.INT32,) and "FLOAT" not in TensorProto.DataType.Name(codes)
    stored = rng.integers(0, 100, (40, 50)).astype(np.int8).astype(kind) if plain else rng.normal(0, 20, (40, 50)).astype(kind)
    tensors = [numpy_helper.from_array(stored, "codes"), numpy_helper.from_array(rng.normal(0, 1, shape).astype(np.float32), "scale")]
    if plain:
        tensors.append(numpy_helper.from_array(rng.integers(0, 7, shape).astype(np.int8).astype(kind), "zero"))
    node = helper.make_node("DequantizeLinear", [t.name for t in tensors], ["w"], **attributes)
    before = model([node, helper.make_node("Add", ["x", "w"], ["y"])], tensors, [("x", FLOAT, [40, 50])], [("y", FLOAT, [40, 50])])
    before.opset_import.pop()
    after = check_same(before, tmp_path, [np.zeros((40, 50), np.float32)], "dequantize")
    decoded = runtime.run(before, [np.zeros((40, 50), np.float32)], fused=False)[0]
    assert (numpy_helper.to_array(after.graph.initializer[0]) == decoded).all()


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_dequantize_linear_of_onnxruntime(tmp_path, axis):
    """com.microsoft's operator: without an axis, one scale for all."""
    rng = np.random.default_rng(9)
    shape, attributes = ([], {}) if axis is None else ([[40, 50][axis]], {"axis": axis})
    tensors = [numpy_helper.from_array(rng.integers(0, 65536, (40, 50)).astype(np.uint16), "codes"),
               numpy_helper.from_array(rng.normal(0, 1, shape).astype(np.float32), "scale"),
               numpy_helper.from_array(rng.integers(0, 65536, shape).astype(np.uint16), "zero")]
    node = helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["w"], domain="com.microsoft", **attributes)
    before = model([node, helper.make_node("Add", ["x", "w"], ["y"])], tensors, [("x", FLOAT, [40, 50])], [("y", FLOAT, [40, 50])])
    after = check_same(before, tmp_path, [np.zeros((40, 50), np.float32)], "dequantize")
    decoded = runtime.run(before, [np.zeros((40, 50), np.float32)], fused=False)[0]
    assert (numpy_helper.to_array(after.graph.initializer[0]) == decoded).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, tmp_path):
    """Weights of functions are unfolded in there."""
    folder = CORPUS / "structures" / name
    quantized, back = tmp_path / "q.onnx", tmp_path / "back.onnx"
    for args in ["--bits", "4", "--block", "32", folder / "model.onnx", quantized], ["dequantize", quantized, back]:
        r = onnxquant(*args)
        assert r.status == 0, r.stderr
    held = [{n.op_type for s in graphs.scopes(onnx.load(p)).values() for n in s.body.node} for p in (quantized, back)]
    assert "DequantizeLinear" in held[0] and "DequantizeLinear" not in held[1]
    feeds = [numpy_helper.to_array(onnx.load_tensor(p)) for p in sorted((folder / "test_data_set_0").glob("input_*.pb"))]
    runtime.assert_same(runtime.run(back, feeds, fused=False), runtime.run(quantized, feeds, fused=False))
    assert onnxquant("verify", "--engine", "none", folder / "model.onnx", quantized).status == 0
