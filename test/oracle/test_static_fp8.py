"""--target tensorrt with FP8: the values of codes, and what the pairs compute in ONNX Runtime. TensorRT itself is not here."""
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import static
from command import onnxquant

E4M3 = ml_dtypes.float8_e4m3fn


def drawn(*shape, seed=5):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(np.float32)


def model():
    """Two convolutions, of which one has few channels, a sum behind a product, a Gemm."""
    w = {"w0": drawn(32, 3, 3, 3), "w1": drawn(48, 32, 3, 3, seed=6) / 8, "b1": drawn(48), "w2": drawn(48, 24, seed=7), "w3": drawn(10, 24, seed=8), "b3": drawn(10)}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Conv", ["r", "w1", "b1"], ["c"], pads=[1] * 4),
             helper.make_node("GlobalAveragePool", ["c"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("MatMul", ["f", "w2"], ["m"]),
             helper.make_node("Gemm", ["m", "w3", "b3"], ["y"], transB=1)]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2, 3, 8, 8])], [helper.make_tensor_value_info("y", 1, [2, 10])], [numpy_helper.from_array(v, k) for k, v in w.items()])
    return onnx.shape_inference.infer_shapes(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)), w


def rounded(v, scale):
    return np.clip(v / scale, -448, 448).astype(E4M3)


@pytest.mark.parametrize("block", ["-1", "-2"])
def test_fp8(block, tmp_path):
    plain, ours = tmp_path / "plain.onnx", tmp_path / "ours.onnx"
    m, weights = model()
    onnx.save(m, plain)
    feed = {"x": drawn(2, 3, 8, 8, seed=1)}
    ranges, cache = static.calibrate(str(plain), [feed], tmp_path)
    done = onnxquant("--quiet", "--activations", "static", "--ranges", ranges, "--target", "tensorrt", "--format", "fp8-e4m3", "--block", block, plain, ours)
    assert done.status == 0, done.stderr
    made = onnx.load(ours)
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == 19
    stored = {t.name: t for t in made.graph.initializer}
    reads = {n.output[0]: n for n in made.graph.node}
    found = {}
    for n in made.graph.node:
        if n.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        zero = stored[n.input[2]]
        assert zero.data_type == TensorProto.FLOAT8E4M3FN and not any(numpy_helper.to_array(zero).astype(np.float32).ravel())
        if n.op_type == "DequantizeLinear" and n.input[0] in stored:
            found[n.output[0]] = [numpy_helper.to_array(stored[i]) for i in n.input[:2]]
    assert sorted(found) == ["w1", "w2", "w3"]  # a Conv of 3 channels has no kernel in FP8
    for name, axis in ("w1", 0), ("w2", 1), ("w3", 0):
        codes, scale = found[name]
        w = weights[name]
        others = tuple(i for i in range(w.ndim) if i != axis) if block == "-1" else None
        want = (np.abs(w).max(axis=others).astype(np.float64) / 448).astype(np.float32)
        assert np.array_equal(scale, want)
        if block == "-1":
            scale = scale.reshape([-1 if i == axis else 1 for i in range(w.ndim)])
        assert np.array_equal(codes.view(np.uint8), rounded(w, scale).view(np.uint8))
    # Inputs of the quantized products alone have pairs, of scale amax / 448.
    ranged = json.loads(ranges.read_text())["tensors"]
    pairs = {n.input[0]: float(numpy_helper.to_array(stored[n.input[1]])) for n in made.graph.node if n.op_type == "QuantizeLinear"}
    assert sorted(pairs) == ["c", "f", "m", "r"]
    for name, scale in pairs.items():
        assert scale == np.float32(max(abs(ranged[name]["min"]), abs(ranged[name]["max"])) / 448), name
    # ONNX Runtime computes the pairs as they are written. Its optimizations make operators of FP8 codes that it has not.
    def pair(v, name):
        return rounded(v, np.float32(pairs[name])).astype(np.float32) * np.float32(pairs[name])
    decoded = {k: codes.astype(np.float32) * (scale.reshape([-1 if i == (k == "w2") else 1 for i in range(codes.ndim)]) if scale.ndim else scale) for k, (codes, scale) in found.items()}
    got = static.run(ours, feed, optimized=False)[0]
    head = onnx.utils.Extractor(m).extract_model(["x"], ["r"])
    onnx.save(head, tmp_path / "head.onnx")
    r = pair(static.run(tmp_path / "head.onnx", feed)[0], "r")
    padded = np.pad(r, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    c = np.einsum("nchwij,ocij->nohw", windows, decoded["w1"]) + weights["b1"].reshape(1, -1, 1, 1)
    f = pair(pair(c, "c").mean(axis=(2, 3)), "f")
    y = pair(f @ decoded["w2"], "m") @ decoded["w3"].T + weights["b3"]
    assert np.linalg.norm(got - y) <= 0.02 * np.linalg.norm(y)  # a sum of another order may have the next code
    want = static.run(plain, feed)[0]
    assert np.linalg.norm(got - want) <= 0.1 * np.linalg.norm(want)
    assert onnxquant("verify", "--engine", "go", "--inputs", save(tmp_path, feed), plain, ours).status == 0


def save(folder, feed):
    np.savez(folder / "x.npz", **feed)
    return folder / "x.npz"
