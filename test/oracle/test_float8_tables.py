"""Tables of float8 and float4 codes as GatherBlockQuantized: ONNX Runtime against our decoder."""
import numpy as np
import onnx
import pytest
from command import onnxquant
from onnx import TensorProto, helper, numpy_helper
from test_moe import run

ROWS = np.array([[3, 1], [63, 0]])


def table(path, columns, dtype, opset, ir):
    w = np.random.default_rng(0).normal(size=(64, columns)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(w.dtype)
    info = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Gather", ["w", "i"], ["y"])], "g", [info("i", TensorProto.INT64, [2, 2])],
                              [info("y", kind, [2, 2, columns])], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), path)


@pytest.mark.parametrize("target", ["portable", "ort"])
@pytest.mark.parametrize("form", ["fp8-e4m3", "fp8-e5m2"])
@pytest.mark.parametrize("columns, block, dtype, opset, ir", [(128, 32, np.float32, 21, 10), (100, 16, np.float32, 11, 6), (96, -1, np.float16, 17, 8)])
def test_float8_table(columns, block, dtype, opset, ir, form, target, tmp_path):
    """The values are those of DequantizeLinear, bit for bit; other commands read the form."""
    source, out, dq, back = (tmp_path / f"{name}.onnx" for name in ("in", "out", "dq", "back"))
    table(source, columns, dtype, opset, ir)
    common = ["--format", form, "--block", block, "--ops", "Gather", "--min-elements", "1", "--target", target]
    r = onnxquant(*common, "--style", "nbits", source, out)
    assert r.status == 0, r.stderr
    model = onnx.load(out)
    onnx.checker.check_model(model)
    assert [n.op_type for n in model.graph.node] == ["GatherBlockQuantized"], r.stderr
    assert model.graph.initializer[0].data_type == (TensorProto.FLOAT8E4M3FN if "e4m3" in form else TensorProto.FLOAT8E5M2)
    for command in (["dequantize", out, dq], ["restyle", "--style", "dq", out, back]):
        r = onnxquant(*command)
        assert r.status == 0, r.stderr
        assert np.array_equal(run(command[-1], {"i": ROWS}), run(out, {"i": ROWS})), command
    assert onnxquant("verify", source, out).status == 0
    assert np.linalg.norm(run(out, {"i": ROWS}) - run(source, {"i": ROWS})) < .1 * np.linalg.norm(run(source, {"i": ROWS}))


@pytest.mark.parametrize("target, product, why", [
    ("portable", True, "GatherBlockQuantized alone supports fp8-e4m3"), ("ort", True, "GatherBlockQuantized alone supports fp8-e4m3"),
    ("ort-web", False, "no kernel of ONNX Runtime Web is known that reads fp8-e4m3"),
    ("openvino", False, "no kernel of OpenVINO is known that reads fp8-e4m3")])
def test_products_have_no_float8(target, product, why, tmp_path):
    """A table that a MatMul reads, too, gets DequantizeLinear, and so does a table for other targets."""
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    table(source, 128, np.float32, 21, 10)
    if product:  # a head that is tied to the table
        model = onnx.load(source)
        model.graph.node.extend([helper.make_node("Transpose", ["w"], ["head"]), helper.make_node("MatMul", ["y", "head"], ["z"])])
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 2, 64]))
        onnx.save(model, source)
    r = onnxquant("--format", "fp8-e4m3", "--block", "32", "--ops", "Gather,MatMul", "--min-elements", "1", "--target", target, "--style", "nbits", source, out)
    assert r.status == 0 and f"not applied style nbits: 1 of 1 weight gets dq: {why}" in " ".join(r.stderr.split()), r.stderr
    assert [n.op_type for n in onnx.load(out).graph.node] == ["DequantizeLinear", "Gather"] + product * ["Transpose", "MatMul"]


@pytest.mark.parametrize("form, codes, scales", [
    ("nvfp4", TensorProto.FLOAT4E2M1, ["Cast", "Mul"]), ("mxfp4", TensorProto.FLOAT4E2M1, ["Cast"]), ("mxfp8", TensorProto.FLOAT8E4M3FN, ["Cast"])])
@pytest.mark.parametrize("opset, ir", [(21, 10), (11, 6)])
def test_float4_table(form, codes, scales, opset, ir, tmp_path):
    """ONNX Runtime decodes tables of float4, which its DequantizeLinear does not take, as dequantize does."""
    source, out, dq, back = (tmp_path / f"{name}.onnx" for name in ("in", "out", "dq", "back"))
    table(source, 128, np.float32, opset, ir)
    r = onnxquant("--format", form, "--ops", "Gather", "--min-elements", "1", "--style", "nbits", source, out)
    assert r.status == 0, r.stderr
    model = onnx.load(out)
    onnx.checker.check_model(model)
    assert [n.op_type for n in model.graph.node] == [*scales, "GatherBlockQuantized"], r.stderr
    assert model.graph.initializer[0].data_type == codes and list(model.graph.initializer[0].dims) == [64, 128]
    for command in (["dequantize", out, dq], ["restyle", "--style", "dq", out, back], ["dequantize", back, dq]):
        r = onnxquant(*command)
        assert r.status == 0, r.stderr
        if command[0] == "dequantize":
            assert np.array_equal(run(dq, {"i": ROWS}), run(out, {"i": ROWS})), command
    assert onnxquant("verify", source, out).status == 0


@pytest.mark.parametrize("form", ["fp8-e4m3", "fp8-e5m2"])
@pytest.mark.parametrize("block", [32, -1])
def test_float8_restyled(form, block, tmp_path):
    """A DequantizeLinear of a float8 table becomes a GatherBlockQuantized, with the same values."""
    source, out, nbits = (tmp_path / f"{name}.onnx" for name in ("in", "out", "nbits"))
    table(source, 128, np.float32, 21, 10)
    r = onnxquant("--format", form, "--block", block, "--ops", "Gather", "--min-elements", "1", "--style", "dq", source, out)
    assert r.status == 0, r.stderr
    r = onnxquant("restyle", "--style", "nbits", out, nbits)
    assert r.status == 0, r.stderr
    assert [n.op_type for n in onnx.load(nbits).graph.node] == ["GatherBlockQuantized"], r.stderr
    assert np.array_equal(run(out, {"i": ROWS}), run(nbits, {"i": ROWS}))


def test_float4_table_of_others(tmp_path):
    """Codes of float4e2m1, two a byte."""
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 16, (64, 128)).astype(np.uint8)
    scale = (rng.random((64, 4)) + .5).astype(np.float32)
    raw = (codes[:, ::2] | codes[:, 1::2] << 4).tobytes()
    info = helper.make_tensor_value_info
    node = helper.make_node("GatherBlockQuantized", ["q", "i", "s"], ["y"], domain="com.microsoft", block_size=32, gather_axis=0, quantize_axis=1)
    graph = helper.make_graph([node], "g", [info("i", TensorProto.INT64, [2, 2])], [info("y", TensorProto.FLOAT, [2, 2, 128])],
                              [helper.make_tensor("q", TensorProto.FLOAT4E2M1, [64, 128], raw, raw=True), numpy_helper.from_array(scale, "s")])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=11), path)
    assert onnxquant("dequantize", path, out).status == 0
    assert np.array_equal(run(out, {"i": ROWS}), run(path, {"i": ROWS}))
