"""Folders and presets: the commands of the documents run, and ONNX Runtime and OpenVINO run what they write."""
import json
import pathlib
import re
import shlex

import numpy as np
import onnx
import pytest

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
