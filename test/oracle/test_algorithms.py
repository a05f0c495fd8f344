"""Codes, scales and zero points of --algorithm against those of ONNX Runtime's own quantizers."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer, QuantFormat,
)
from onnxruntime.quantization.neural_compressor.weight_only import rtn_quantize

import graphs
import runtime
from command import onnxquant
from decode import codes

BLOCK = 32


def weights(k, n, dtype):
    """Random blocks, and some at the edges of the rules: zeros, one sign, equal extremes, ties, outliers, small numbers."""
    rng = np.random.default_rng(k + n)
    w = (rng.standard_normal((k, n)) * rng.uniform(0.01, 2, n)).astype(dtype)
    w[:BLOCK, 0] = 0
    w[:BLOCK, 1] = 0.75
    w[:, 2] = abs(w[:, 2])
    w[:, 3] = -abs(w[:, 3])
    w[3, 4], w[9, 4] = 7, -7
    w[:, 5] = rng.integers(-8, 8, k) / 4
    w[5, 6] = 1000
    w[:, 7] *= 1e-3
    w[:, 8] = 0.25
    return w


@pytest.fixture(scope="module", params=[(96, np.float32), (128, np.float32), (112, np.float32), (128, np.float16)], ids=str)
def model(request, tmp_path_factory):
    k, dtype = request.param
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g",
        [helper.make_tensor_value_info("x", elem, ["rows", k])], [helper.make_tensor_value_info("y", elem, ["rows", 40])],
        [numpy_helper.from_array(weights(k, 40, dtype), "w")])
    path = tmp_path_factory.mktemp("peer") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def nbits(model):
    """Codes, scales and zero points that a MatMulNBits reads, without what fills up the last block and the last byte."""
    node, = [n for n in model.graph.node if n.op_type == "MatMulNBits"]
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    k, n, bits = (a.i for name in ("K", "N", "bits") for a in node.attribute if a.name == name)
    blocks = -(-k // BLOCK)

    def unpack(name, count):
        packed = stored[name].reshape(n, -1)
        return (packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)).reshape(n, -1)[:, :count]

    values, scales, *zeros = node.input[1:]
    return [unpack(values, k), stored[scales].ravel(), *(unpack(z, blocks) for z in zeros)]


def convert(model, folder, *args):
    out = folder / "out.onnx"
    r = onnxquant("--block", BLOCK, *args, model, out)
    assert r.status == 0, r.stderr
    return out


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for what, a, b in zip(("codes", "scales", "zero points"), ours, theirs):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"{what}: {(a != b).sum()} of {a.size} differ"


def default(model, bits, symmetric, form=QuantFormat.QOperator):
    quantizer = MatMulNBitsQuantizer(onnx.load(model), algo_config=DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=symmetric, bits=bits, quant_format=form))
    quantizer.process()
    return quantizer.model.model


@pytest.mark.parametrize("zero_point", [[], ["--zero-point"]], ids=["symmetric", "zero-point"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_default_of_onnxruntime(model, bits, zero_point, tmp_path):
    out = convert(model, tmp_path, "--bits", bits, "--style", "nbits", "--algorithm", "rtn-ort", *zero_point)
    same(nbits(onnx.load(out)), nbits(default(model, bits, not zero_point)))


def test_default_of_onnxruntime_as_dequantize_linear(model, tmp_path):
    if graphs.load(model).graph.input[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        pytest.skip("the peer's two forms have different codes in float16; ours are those of MatMulNBits")
    out = convert(model, tmp_path, "--style", "dq", "--algorithm", "rtn-ort")
    theirs = default(model, 4, True, QuantFormat.QDQ)
    stored = {t.data_type == TensorProto.INT4: t for t in theirs.graph.initializer}
    weight, = graphs.Pair(graphs.load(model), graphs.load(out)).weights
    assert (weight.decoded.codes == codes(stored[True])).all()
    same([weight.decoded.scale], [numpy_helper.to_array(stored[False])])


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("bits", [4, 8])
def test_k_quant_of_onnxruntime(model, bits, tmp_path):
    args = "--bits", bits, "--zero-point", "--algorithm", "k_quant"
    out = convert(model, tmp_path, *args, "--style", "nbits")
    k = graphs.load(model).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    if bits == 4 and -(-k // BLOCK) % 2:
        pytest.skip("the peer packs odd numbers of zero points across columns")
    theirs = rtn_quantize(onnx.load(model), num_bits=bits, group_size=BLOCK, algorithm="k_quant")
    same(nbits(onnx.load(out)), nbits(theirs.model))


def half_quadratic(w, bits, rounded):
    """The codes, scales and zero points of HQQ as ONNX Runtime has it, which needs torch: columns of w, in blocks."""
    k, n = w.shape
    x = np.pad(w.astype(np.float32), ((0, -k % BLOCK), (0, 0))).T.reshape(-1, BLOCK)
    most, low, high = np.float32(2 ** bits - 1), x.min(1, keepdims=True), x.max(1, keepdims=True)
    if rounded:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    span = high - low
    inverse = most / np.where(span == 0, most, span)
    if not rounded:
        inverse = np.minimum(inverse, np.float32(2e4))
    zero, beta, least = np.rint(-low * inverse), 10.0, 1e4

    def encode():
        return np.clip(np.rint(x * inverse + zero), 0, most)
    for _ in range(20):
        off = x - (encode() - zero) / inverse
        outlier = np.sign(off) * np.maximum(abs(off) - np.float32(1 / beta) * (abs(off) + np.float32(1e-8)) ** np.float32(-0.3), 0)
        zero = (encode() - (x - outlier) * inverse).mean(1, keepdims=True)
        beta, error = beta * 1.01, abs(off).mean(dtype=np.float64)
        if not np.float32(error) < least:
            break
        least = np.float32(error)
    if rounded:
        zero = np.clip(np.rint(zero), 0, most)
    return encode().reshape(n, -1)[:, :k], (1 / inverse).astype(w.dtype).ravel(), zero.astype(w.dtype).ravel()


def near(ours, theirs):
    """A zero point may differ by rounding, and so a code that is a tie."""
    assert (ours[1] == theirs[1]).all()
    assert np.allclose(ours[2].astype(float), theirs[2].astype(float), rtol=2e-3, atol=1e-4)
    assert (ours[0] != theirs[0]).mean() < 1e-3 and abs(ours[0].astype(float) - theirs[0]).max() <= 1


@pytest.mark.parametrize("bits", [2, 4])
def test_half_quadratic(model, bits, tmp_path):
    out = convert(model, tmp_path, "--bits", bits, "--zero-point", "--algorithm", "hqq", "--style", "nbits")
    w, made = numpy_helper.to_array(graphs.load(model).graph.initializer[0]), onnx.load(out)
    stored = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    node, = made.graph.node
    codes, scales, zeros = [stored[name] for name in node.input[1:4]]
    assert zeros.dtype == scales.dtype == w.dtype
    codes = (codes.reshape(len(codes), -1, 1) >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)).reshape(len(codes), -1)
    near([codes[:, :len(w)], scales.ravel(), zeros.ravel()], half_quadratic(w, bits, False))
    # What ONNX Runtime makes of them is what dequantize does.
    r = onnxquant("dequantize", out, tmp_path / "float.onnx")
    assert r.status == 0, r.stderr
    x = [np.random.default_rng(1).standard_normal((3, len(w))).astype(w.dtype)]
    got, want = (runtime.run(path, x)[0].astype(float) for path in (out, tmp_path / "float.onnx"))
    assert abs(got - want).max() <= (2e-3 if w.dtype == np.float16 else 1e-5) * abs(want).max()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_half_quadratic_with_rounded_zero_points(model, bits, tmp_path):
    out = convert(model, tmp_path, "--bits", bits, "--zero-point", "--algorithm", "hqq", "--style", "dq")
    w = numpy_helper.to_array(graphs.load(model).graph.initializer[0])
    got, = graphs.Pair(graphs.load(model), graphs.load(out)).weights
    near([got.decoded.codes.T, got.decoded.scale.T.ravel(), got.decoded.zero_point.T.ravel()], half_quadratic(w, bits, True))


@pytest.mark.parametrize("args", ["rtn-ort", "rtn-ort --zero-point", "k_quant --zero-point", "mse", "mse --zero-point", "best", "best --zero-point",
                                  "rtn --format int4 --zero-point", "rtn --format int8 --zero-point", "mse --format int4 --zero-point"])
def test_both_styles_have_the_same_values(model, args, tmp_path):
    decoded = []
    for style in ("dq", "nbits"):
        (tmp_path / style).mkdir()
        out = convert(model, tmp_path / style, "--style", style, "--algorithm", *args.split())
        back = tmp_path / style / "float.onnx"
        r = onnxquant("dequantize", out, back)
        assert r.status == 0, r.stderr
        decoded += [sorted(numpy_helper.to_array(t).ravel().tolist() for t in onnx.load(back).graph.initializer if t.dims)]
    columns = [np.sort(np.array(d[0])) for d in decoded]
    assert (columns[0] == columns[1]).all()
