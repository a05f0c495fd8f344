"""Elements of 6 bits (opset 28): kept in raw_data, in int32_data, and as external data."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import onnxquant


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("count", [7, 8, 5000])
def test_kept(count, typed, tmp_path):
    rng = np.random.default_rng(count)
    tensors = []
    for typ in TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2:
        codes = rng.integers(0, 64, count).astype(np.uint8)
        t = TensorProto(name=f"c{typ}", data_type=typ, dims=[count])
        if typed:
            t.int32_data.extend(map(int, codes))
        else:
            stream = (codes[:, None] >> np.arange(6) & 1).ravel()
            t.raw_data = np.packbits(stream, bitorder="little").tobytes()
        tensors.append((t, codes))
    w = numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])] + [helper.make_node("Cast", [t.name], [t.name + "_float"], to=TensorProto.FLOAT) for t, _ in tensors], "g",
        [info("x", 1, [1, 64])], [info("y", 1, [1, 64])] + [info(t.name + "_float", 1, [count]) for t, _ in tensors], [w] + [t for t, _ in tensors])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)])
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "in.onnx")
    for flags in [], ["--external-data", "always"]:
        out = tmp_path / f"out{len(flags)}.onnx"
        r = onnxquant("-bits", "8", *flags, tmp_path / "in.onnx", out)
        assert r.status == 0, r.stderr
        kept = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
        for t, codes in tensors:
            np.testing.assert_array_equal(kept[t.name].view(np.uint8) & 63, codes)
        r = onnxquant("verify", tmp_path / "in.onnx", out)  # its Casts run in pure Go
        assert r.status == 0, r.stdout + r.stderr
