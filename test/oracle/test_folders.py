"""Folders and presets: the commands of the documents run, and ONNX Runtime and OpenVINO run what they write."""
import json
import pathlib
import re
import shlex

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import merged
import runtime
from command import ROOT, TINYGPT, onnxquant

DOCS = sorted((ROOT / "docs").glob("for-*.md"))


@pytest.fixture
def export(tmp_path):
    """An export: a model in onnx/, a config."""
    folder = tmp_path / "model"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes((TINYGPT / "model.onnx").read_bytes())
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    (folder / "genai_config.json").write_text("{}")
    return folder


def outputs(path):
    return runtime.run(path, [np.arange(24, dtype=np.int64)[None] * 37 % 96])


def distance(got, want):
    return float(np.linalg.norm(got[0] - want[0]) / np.linalg.norm(want[0]))


def commands(page):
    return re.findall(r"^    onnxquant (.+)$", page.read_text(), re.M)


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.stem)
def test_documents(page, export, tmp_path):
    """Each command of a page runs, and each model that they write is near the float one."""
    assert commands(page)
    for n, command in enumerate(commands(page)):
        args = shlex.split(command)
        if len(args) > 1 and (tmp_path / args[-1]).exists() and args[-1] != "model" and not args[-1].startswith("model/"):
            args[-1] += str(n)
        r = onnxquant(*args, folder=tmp_path)
        assert r.status == 0, f"{command}: {r.stderr}"
    want = outputs(TINYGPT / "model.onnx")
    written = [p for p in tmp_path.rglob("*.onnx") if export not in p.parents]
    assert written
    for path in written:
        onnx.checker.check_model(str(path))
        assert distance(outputs(path), want) < (0.3 if "_q2" in path.name else 0.08), path.name


def test_transformers_js(export, tmp_path):
    """Names and counts are those that transformers.js looks for."""
    r = onnxquant("--preset", "transformers.js", "--external-data", "always", "--shard-size", "1MB", export, tmp_path / "out")
    assert r.status == 0, r.stderr
    names = {p.name for p in (tmp_path / "out" / "onnx").glob("*.onnx")}
    assert names == {"model.onnx"} | {f"model_{d}.onnx" for d in ("fp16", "quantized", "int8", "uint8", "q4", "q4f16", "q2", "q2f16", "bnb4")}
    counts = json.loads((tmp_path / "out" / "config.json").read_text())["transformers.js_config"]["use_external_data_format"]
    for name in names - {"model.onnx"}:
        used = {e.value for t in onnx.load(tmp_path / "out" / "onnx" / name, load_external_data=False).graph.initializer for e in t.external_data if e.key == "location"}
        assert used == {f"{name}_data" + (f"_{i}" if i else "") for i in range(counts[name])}, name
    assert counts["model_fp16.onnx"] > 1


def test_transformers_js_of_a_plain_export(tmp_path):
    """A model in the root goes to the folder onnx, where transformers.js looks, with its external data."""
    folder = tmp_path / "plain"
    folder.mkdir()
    onnx.save(onnx.load(TINYGPT / "model.onnx"), folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    for source, configs in (folder, ["config.json"]), (folder / "model.onnx", []):
        out = tmp_path / f"out{len(configs)}"
        r = onnxquant("--preset", "transformers.js", source, out)
        assert r.status == 0, r.stderr
        assert ("config.json is not copied for a single model" in r.stderr) == (not configs)
        names = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
        dtypes = ("fp16", "quantized", "int8", "uint8", "q4", "q4f16", "q2", "q2f16", "bnb4")
        assert names == {"onnx/model.onnx", "onnx/model.onnx_data", *configs, *(f"onnx/model_{d}.onnx" for d in dtypes)}
        want = outputs(TINYGPT / "model.onnx")
        assert distance(outputs(out / "onnx" / "model.onnx"), want) == 0
        assert distance(outputs(out / "onnx" / "model_q4.onnx"), want) < 0.08


def test_roles_without_names(export, tmp_path):
    """The preset genai finds the head and the sensitive weights also where names say nothing."""
    model = onnx.load(export / "onnx" / "model.onnx")
    plain = {}
    kept = {v.name for v in [*model.graph.input, *model.graph.output]} | {""}
    for node in model.graph.node:
        node.name = ""
        for names in node.input, node.output:
            names[:] = [n if n in kept else plain.setdefault(n, f"t{len(plain)}") for n in names]
    for tensor in model.graph.initializer:
        tensor.name = plain[tensor.name]
    onnx.save(model, tmp_path / "plain.onnx")
    bits = []
    for path in export / "onnx" / "model.onnx", tmp_path / "plain.onnx":
        r = onnxquant("--dry-run", "--json", "--preset", "genai", path)
        assert r.status == 0, r.stderr
        bits.append([t["format"] for t in json.loads(r.stdout)["outputs"][0]["plan"]["tensors"] if t["decision"] == "quantize"])
    # Tables, then qkv, proj, up and down of four layers, then the head.
    few, more = ["uint4"] * 4, ["uint8", "uint4", "uint4", "uint8"]
    assert bits == 2 * [["uint8"] * 2 + more + few + more + few + ["uint8"]]


def test_openvino(export, tmp_path):
    openvino = pytest.importorskip("openvino")
    r = onnxquant("--preset", "openvino", export, tmp_path / "out")
    assert r.status == 0, r.stderr
    ids, want = np.arange(24, dtype=np.int64)[None] * 37 % 96, outputs(TINYGPT / "model.onnx")
    for name, limit in ("model_int8", 0.02), ("model_int4", 0.08):
        model = openvino.Core().compile_model(tmp_path / "out" / "onnx" / f"{name}.onnx", "CPU")
        assert distance([model([ids])[0]], want) < limit, name


def test_download_cache(tmp_path):
    """A snapshot of a hub's cache, whose files are links to blobs."""
    repository = tmp_path / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    model = onnx.load(TINYGPT / "model.onnx")
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.onnx_data")
    for name in "model.onnx", "model.onnx_data":
        (tmp_path / name).rename(blobs / f"hash-of-{name}")
        (snapshot / "onnx" / name).symlink_to(pathlib.Path("../../../blobs") / f"hash-of-{name}")
    r = onnxquant("-bits", "8", snapshot, tmp_path / "out")
    assert r.status == 0, r.stderr
    assert distance(outputs(tmp_path / "out" / "onnx" / "model.onnx"), outputs(TINYGPT / "model.onnx")) < 0.01
    assert not (tmp_path / "out" / "onnx" / "model.onnx_data").exists()


VOCABULARY, WIDTH, MELS, FRAMES = 96, 64, 16, 20


def whisper(folder):
    """An encoder and a merged decoder like those of Whisper, with random weights. The table of tokens is the head, too."""
    rng = np.random.default_rng(3)
    weights = lambda **shapes: [numpy_helper.from_array((rng.normal(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), n) for n, s in shapes.items()]
    value = lambda name, shape, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, shape)
    node = lambda op, inputs, made, **attributes: helper.make_node(op, inputs, made, name=made[0], **attributes)
    opset = [helper.make_opsetid("", 17)]

    def attention(y, x, memory, prefix):
        return [node("MatMul", [x, prefix + "q"], [y + "q"]), node("MatMul", [memory, prefix + "k"], [y + "k"]), node("MatMul", [memory, prefix + "v"], [y + "v"]),
                node("Transpose", [y + "k"], [y + "t"], perm=[0, 2, 1]), node("MatMul", [y + "q", y + "t"], [y + "s"]), node("Softmax", [y + "s"], [y + "p"], axis=-1),
                node("MatMul", [y + "p", y + "v"], [y + "o"]), node("Add", [x, y + "o"], [y])]

    square = (WIDTH, WIDTH)
    nodes = [node("Conv", ["input_features", "c1"], ["a"], pads=[1, 1]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "c2"], ["c"], pads=[1, 1], strides=[2]),
             node("Transpose", ["c"], ["d"], perm=[0, 2, 1]), *attention("last_hidden_state", "d", "d", "e")]
    stored = weights(c1=(WIDTH, MELS, 3), c2=(WIDTH, WIDTH, 3), eq=square, ek=square, ev=square)
    graph = helper.make_graph(nodes, "encoder", [value("input_features", [1, MELS, FRAMES])], [value("last_hidden_state", [1, FRAMES // 2, WIDTH])], stored)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "encoder_model.onnx")
    nodes = [node("Gather", ["table", "input_ids"], ["h"]), *attention("g", "h", "encoder_hidden_states", "d"),
             node("Transpose", ["table"], ["head"], perm=[1, 0]), node("MatMul", ["g", "head"], ["logits"])]
    stored = weights(table=(VOCABULARY, WIDTH), dq=square, dk=square, dv=square)
    graph = helper.make_graph(nodes, "decoder", [value("input_ids", [1, "t"], TensorProto.INT64), value("encoder_hidden_states", [1, "f", WIDTH])], [value("logits", [1, "t", VOCABULARY])], stored)
    onnx.save(merged.merge(helper.make_model(graph, opset_imports=opset, ir_version=8)), folder / "decoder_model_merged.onnx")


def transcribed(encoder, decoder):
    """Logits of both branches of the decoder."""
    features = np.random.default_rng(4).normal(size=(1, MELS, FRAMES)).astype(np.float32)
    (hidden,) = runtime.run(encoder, [features])
    ids = np.arange(8, dtype=np.int64)[None] * 11 % VOCABULARY
    return [runtime.run(decoder, [ids, hidden, np.array([cached])])[0] for cached in (False, True)]


@pytest.mark.parametrize("preset", ["transformers.js", "genai"])
def test_encoder_and_decoder(preset, tmp_path):
    """Both halves run as the float ones do, in both branches. The table is stored once, adapters and configs are copied as they are."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    whisper(folder)
    others = {"config.json": '{"model_type": "whisper", "is_encoder_decoder": true}', "french.onnx_adapter": "TOLP", "tokenizer.json": "{}", "chat_template.jinja": "{{ x }}",
              "genai_config.json": '{"model": {"encoder": {"filename": "encoder_model.onnx"}, "decoder": {"filename": "decoder_model_merged.onnx"}}}'}
    for name, text in others.items():
        (folder / name).write_text(text)
    r = onnxquant("--preset", preset, folder, out)
    assert r.status == 0, r.stderr
    assert {name: (out / name).read_text() for name in others} == others
    want = transcribed(folder / "encoder_model.onnx", folder / "decoder_model_merged.onnx")
    suffixes = {"_fp16": 0.01, "_quantized": 0.1, "_int8": 0.1, "_uint8": 0.1, "_q4": 0.3, "_q4f16": 0.3, "_q2": 0.9, "_q2f16": 0.9, "_bnb4": 0.3} if preset == "transformers.js" else {"": 0.3}
    for suffix, limit in suffixes.items():
        encoder, decoder = (next(out.rglob(f"{name}{suffix}.onnx")) for name in ("encoder_model", "decoder_model_merged"))
        for got, float_ in zip(transcribed(encoder, decoder), want):
            assert distance([got], [float_]) < limit, suffix
        if suffix == "":
            stored = {t.name: t for t in onnx.load(decoder).graph.initializer}
            codes = [t for t in stored.values() if t.data_type == TensorProto.UINT8 and np.prod(t.dims) >= VOCABULARY * WIDTH]
            assert len(codes) == 1 and not [t for t in stored.values() if t.data_type == TensorProto.FLOAT and np.prod(t.dims) >= VOCABULARY * WIDTH]
    if preset == "genai":
        return
    (folder / "decoder_model_merged.onnx").rename(folder / "decoder_model.onnx")
    r = onnxquant("--preset", preset, folder, tmp_path / "lacking")
    assert r.status == 1 and "decoder_model_merged.onnx" in r.stderr and not (tmp_path / "lacking").exists()
