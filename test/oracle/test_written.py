"""What a conversion records of what it wrote, and what verify makes of that."""
import hashlib
import json
import shutil
import zlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from command import TINYDOC, TINYGPT, onnxquant

SOURCE = TINYDOC / "model.onnx"
KEY = "onnxquant.written"

SETTINGS = [s.split() for s in (
    "", "--ops all", "-bits 4 -block 32 --ops all --external-data always", "-bits 8 -block -1", "-bits 2 -block 16 --zero-point", "--style nbits --ops all --zero-point",
    "--style qdq", "--target ort --ops all", "--format nvfp4", "--format mxfp4 --target ort", "--format mxfp8", "--format fp8-e4m3", "--format nf4 --ops all", "--format q4_k --ops all",
    "--format q6_k --ops all", "--format q4_0", "--format iq4_nl", "--format q3_k --target ort", "--float16", "--float16 -bits 4 --ops all --external-data always",
    "--bfloat16", "--activations dynamic --ops all", "--block 16 --scale-type int8", "--block 32 --scale-type uint8 --zero-point --style nbits", "--block 32 --algorithm best",
    "--block 32 --algorithm mse --external-data always --shard-size 50000", "-bits 3", "--format int2 --style nbits --zero-point", "--auto 400KB")]


def record(path):
    found = [e.value for e in onnx.load(path, load_external_data=False).metadata_props if e.key == KEY]
    return json.loads(found[0]) if found else None


def run(*args):
    made = onnxquant(*args)
    assert made.status == 0, made.stderr


def verify(path, source=SOURCE):
    r = json.loads(onnxquant("verify", "--engine", "none", "--json", source, path).stdout)
    return r["written"], [f for f in r["failures"] if "edited" in f]


@pytest.mark.parametrize("args", SETTINGS, ids=" ".join)
def test_as_written(args, tmp_path):
    out = tmp_path / "out.onnx"
    made = onnxquant("-q", *args, SOURCE, out)
    if made.status == 2:
        pytest.skip(made.stderr.splitlines()[0])
    assert made.status == 0, made.stderr
    assert verify(out) == ({"state": "as written"}, [])


def test_other_commands(tmp_path):
    first, gguf = tmp_path / "first.onnx", tmp_path / "m.gguf"
    run("-q", "-bits", "4", "-block", "32", SOURCE, first)
    for n, args in enumerate((["restyle", "--style", "nbits"], ["dequantize"], ["dequantize", "--external-data", "always"])):
        out = tmp_path / f"{n}.onnx"
        run(args[0], "-q", *args[1:], first, out)
        assert verify(out) == ({"state": "as written"}, []), args
    run("gguf", "-q", TINYGPT / "model.onnx", gguf)
    run("-q", "--exclude", "*", "--weights-from", gguf, TINYGPT / "model.onnx", tmp_path / "from.onnx")
    assert verify(tmp_path / "from.onnx", TINYGPT / "model.onnx")[0] == {"state": "as written"}
    (tmp_path / "in").mkdir()
    shutil.copy(SOURCE, tmp_path / "in")
    (tmp_path / "in" / "config.json").write_text("{}")
    run("-q", "--preset", "transformers.js", tmp_path / "in", tmp_path / "folder")
    converted = [p for p in (tmp_path / "folder").rglob("*.onnx") if p.read_bytes() != SOURCE.read_bytes()]
    assert converted and None not in map(record, converted)


def test_values(tmp_path):
    """The sums are those of Python's libraries, wherever contents are, at any number of threads."""
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.onnx"]
    for path, more in zip(paths, (["--threads", "1"], ["--threads", "3"], ["--external-data", "always"])):
        run("-q", "-bits", "4", "-block", "32", "--ops", "all", *more, SOURCE, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    want = record(paths[0])
    assert want == record(paths[2])
    m = onnx.load(paths[0])
    crc = {t.name: f"{zlib.crc32(t.raw_data):08x}" for t in m.graph.initializer if t.raw_data}
    assert len(crc) > 20 and {k: want["tensors"][k] for k in crc} == crc
    if len(crc) == len(m.graph.initializer) and not any(a.t.dims or a.t.raw_data for n in m.graph.node for a in n.attribute):
        assert want["contents_sha256"] == hashlib.sha256("".join(f"{crc[t.name]}\n" for t in m.graph.initializer).encode()).hexdigest()


def test_many_tensors(tmp_path):
    """A list that would be long beside the contents is left out; edits are found all the same."""
    nodes = [onnx.helper.make_node("Add", [f"x{i}", f"b{i}"], [f"x{i + 1}"]) for i in range(2000)]
    biases = [numpy_helper.from_array(np.full(3, i, np.float32), f"b{i}") for i in range(2000)]
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [3]) for n in ("x0", "x2000"))
    m = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], biases), ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)])
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(m, source)
    run("-q", source, out)
    assert "tensors" not in record(out) and verify(out, source)[0] == {"state": "as written"}
    m = onnx.load(out)
    scale(m, "b1999")
    onnx.save(m, out)
    state, failures = verify(out, source)
    assert state["state"] == "edited" and "a tensor was edited" in failures[0]


def test_without_record(tmp_path):
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    run("-q", SOURCE, first)
    run("restyle", "-q", "--style", "nbits", "--no-provenance", first, second)
    assert record(second) is None and verify(second) == ({"state": "no record"}, [])


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    out = tmp_path_factory.mktemp("written") / "out.onnx"
    run("-q", "-bits", "4", "-block", "32", "--zero-point", "--ops", "all", SOURCE, out)
    return out


def scale(m, name, factor=2):
    t = next(t for t in m.graph.initializer if t.name == name)
    a = numpy_helper.to_array(t).copy()
    a.reshape(-1)[-1] = a.reshape(-1)[-1] * factor
    t.CopyFrom(numpy_helper.from_array(a, name))


def flip(m, name):
    t = next(t for t in m.graph.initializer if t.name == name)
    t.raw_data = t.raw_data[:-1] + bytes([t.raw_data[-1] ^ 1])


def test_edits(quantized, tmp_path):
    """A single code, zero point or scale is found by its name; so is a node with another attribute or input."""
    names = [t.name for t in onnx.load(quantized).graph.initializer]
    path = tmp_path / "edited.onnx"
    for edit, ends in ((flip, ("_u4", "_zp")), (scale, ("_scale",))):
        for name in [n for n in names if n.endswith(ends)][:6]:
            m = onnx.load(quantized)
            edit(m, name)
            onnx.save(m, path)
            state, failures = verify(path)
            assert state == {"state": "edited", "edited": [name]} and name in failures[0]
    decoders = [i for i, n in enumerate(onnx.load(quantized).graph.node) if n.op_type == "DequantizeLinear"]

    def swap(m):
        a, b = (m.graph.node[i] for i in decoders[:2])
        a.input[1], b.input[1] = b.input[1], a.input[1]

    def axis(m):
        next(a for a in m.graph.node[decoders[0]].attribute if a.name == "axis").i ^= 1
    for edit in (swap, axis):
        m = onnx.load(quantized)
        edit(m)
        onnx.save(m, path)
        state, failures = verify(path)
        assert state == {"state": "edited", "nodes_edited": True} and failures


def test_other_tools(quantized, tmp_path):
    """Saving a model again changes nothing. A tool that rewrites the graph may."""
    path, moved = tmp_path / "again.onnx", tmp_path / "moved.onnx"
    m = onnx.load(quantized)
    m.producer_name, m.doc_string = "other", "text"
    m.metadata_props.add(key="more", value="text")
    onnx.save(onnx.shape_inference.infer_shapes(m), path)
    onnx.save(onnx.load(quantized), moved, save_as_external_data=True, location="moved.data", size_threshold=0)
    for same in (path, moved):
        assert verify(same) == ({"state": "as written"}, [])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(quantized, options, providers=["CPUExecutionProvider"])
    assert verify(path) == ({"state": "rewritten"}, [])
    m = onnx.load(path)
    name = next(t.name for t in m.graph.initializer if t.name.endswith("_scale"))
    scale(m, name)
    onnx.save(m, path)
    assert verify(path)[0] == {"state": "edited", "edited": [name]}
