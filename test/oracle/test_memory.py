"""Peak memory does not grow with the model."""
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import BINARY, ROOT
from measured import Run

MIB = 96


@pytest.fixture(scope="module", params=["external", "embedded"])
def model(request, tmp_path_factory):
    """256 MiB of weights."""
    path = tmp_path_factory.mktemp("big") / "big.onnx"
    size = ["-layers", "4", "-k", "2048", "-n", "8192"]
    where = ["-embedded"] if request.param == "embedded" else []
    subprocess.run(["go", "run", "./testmodels/mkmodel", *size, *where, "big", path], cwd=ROOT, check=True)
    yield path
    for p in path.parent.iterdir():
        p.unlink()


@pytest.mark.parametrize("args", [
    ["--bits", "4", "--block", "128"],
    ["--bits", "8", "--block", "-1"],
    ["--bits", "4", "--block", "32", "--zero-point", "--external-data", "always"],
    ["--bits", "4", "--exclude", "*"],
], ids=" ".join)
def test_bounded(model, args, tmp_path):
    r = Run([BINARY, "--quiet", *args, model, tmp_path / "out.onnx"], tmp_path / "stderr", timeout=60)
    for p in tmp_path.iterdir():
        p.unlink()
    assert r.status == 0, r.stderr
    assert r.mib <= MIB, f"{r.mib:.0f} MiB"


@pytest.mark.parametrize("model", ["external"], indirect=True)
def test_preset(model, tmp_path):
    """Nine outputs in one read take the memory of one."""
    r = Run([BINARY, "--quiet", "--preset", "transformers.js", "--link", model, tmp_path / "out"], tmp_path / "stderr", timeout=120)
    assert len(list((tmp_path / "out").rglob("*.onnx"))) == 10, r.stderr
    shutil.rmtree(tmp_path / "out")
    assert r.status == 0, r.stderr
    assert r.mib <= MIB, f"{r.mib:.0f} MiB"


def many(path, count, constants):
    """Writes a model with very many nodes and a few weights. With constants, each of the nodes
    reads an initializer of its own."""
    def tensor(name, *shape):
        return numpy_helper.from_array(np.full(shape, 0.01, np.float32), name)

    tensors, nodes, value = [tensor("c", 64)], [], "x"
    for i in range(count):
        op, inputs = ("Add", ["c"]) if i % 2 else ("Relu", [])
        if i % (count // 8) == 0:
            op, inputs = "MatMul", [f"w{i}"]
            tensors.append(tensor(f"w{i}", 64, 64))
        elif constants:
            op, inputs = "Add", [f"layer.{i}.constant"]
            tensors.append(tensor(f"layer.{i}.constant", 1))
        made = f"layer.{i}/{op.lower()}"
        nodes.append(helper.make_node(op, [value, *inputs], [made], name=f"layer.{i}/{op}"))
        value = made
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 64]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "many", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.long
@pytest.mark.parametrize("constants, mib", [(False, 500), (True, 1500)], ids=["nodes", "initializers"])
def test_many(constants, mib, tmp_path):
    """Memory for 300,000 nodes, and as many initializers."""
    many(tmp_path / "in.onnx", 300_000, constants)
    r = Run([BINARY, "--quiet", tmp_path / "in.onnx", tmp_path / "out.onnx"], tmp_path / "stderr", timeout=120)
    for p in tmp_path.glob("*.onnx"):
        p.unlink()
    assert r.status == 0, r.stderr
    assert r.mib <= mib, f"{r.mib:.0f} MiB"


def test_many_weights_from_gguf(tmp_path):
    """Tensors of a GGUF file share their buffers: 2000 small ones take little more than without the file."""
    value, tensors, nodes = "x", [], []
    for i in range(2000):
        w = np.random.default_rng(i).standard_normal((32, 32)).astype(np.float32)
        tensors.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"y{i}"]))
        value = f"y{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 32]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], tensors)
    source, weights = tmp_path / "in.onnx", tmp_path / "weights.gguf"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), source)

    def peak(*args):
        r = Run([BINARY, *args], tmp_path / "stderr", timeout=120)
        assert r.status == 0, r.stderr
        return r.mib

    peak("gguf", "--mix", "Q8_0", "--quiet", source, weights)
    without = peak("--quiet", source, tmp_path / "without.onnx")
    assert peak("--quiet", "--weights-from", weights, source, tmp_path / "with.onnx") <= without + MIB
