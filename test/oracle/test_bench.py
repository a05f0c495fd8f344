"""bench: figures of models in ONNX Runtime. Nothing here depends on how fast the machine is."""
import json
import os
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import ROOT, TINYDOC, TINYGPT, onnxquant
from test_verify import library, with_runtime

MODEL = TINYGPT / "model.onnx"
SCHEMA = json.loads((ROOT / "docs" / "json" / "bench.schema.json").read_text())


def bench(*args):
    result = onnxquant("bench", "--ort-lib", library(), *args, binary=with_runtime(), timeout=300)
    assert result.status == 0, result.stderr
    return result.stdout


def figures(*args):
    report = json.loads(bench("--json", "--quiet", *args))
    check(report, SCHEMA)
    return report


def check(value, schema):
    """The part of JSON Schema that the schema uses."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if "const" in schema:
        assert value == schema["const"]
        return
    assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if schema["type"] == "object":
        assert set(schema["required"]) <= set(value) <= set(schema["properties"])
        for key, inner in value.items():
            check(inner, schema["properties"][key])
    for item in value if schema["type"] == "array" else []:
        check(item, schema["items"])


def plausible(report):
    """Every figure is there, and none contradicts another."""
    assert report["runtime"] == f"ONNX Runtime {onnxruntime.__version__}" and report["library"] == library()
    assert report["rounds"] >= 1 and report["seconds"] > 0 and 0 <= report["uncertainty"] <= 1
    assert report["models"][0]["ratio"] == 1
    for m in report["models"]:
        assert 0 < m["p50_ms"] <= m["p90_ms"] and m["cpu_ms"] > 0 and m["load_ms"] > 0 and m["runs"] >= report["rounds"]
        assert 10e6 < m["peak_memory"] < 10e9 and m["bytes"] == os.path.getsize(m["path"])
        assert 0.02 < m["ratio"] < 50 and 0.02 < m["cpu_ratio"] < 50
        p = m["profile"]
        assert p["runs"] >= 1 and p["run_ms"] > 0
        times = [op["ms"] for op in p["operators"]]
        assert times == sorted(times, reverse=True) and "DequantizeLinear" not in names(p)
        assert sum(times) + p["dequantize"]["ms"] + p["between_ms"] == pytest.approx(p["run_ms"], rel=0.05, abs=0.05)


def names(profile):
    return {op["name"] for op in profile["operators"]}


def optimized(path, folder):
    """The operators of a model as ONNX Runtime runs it, with their number."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    count = {}
    for n in onnx.load(options.optimized_model_filepath).graph.node:
        count[n.op_type] = count.get(n.op_type, 0) + 1
    return count


def test_a_model_beside_itself():
    report = figures("--seconds", "3", "--threads", "1", MODEL, MODEL)
    plausible(report)
    assert report["threads"] == 1 and report["random"] and report["inputs"] == [{"name": "ids", "dtype": "INT64", "shape": [1, 64]}]
    a, b = report["models"]
    assert 0.3 < b["ratio"] < 3 and 0.3 < b["cpu_ratio"] < 3
    assert names(a["profile"]) == names(b["profile"])


@pytest.mark.parametrize("setting", ["-bits 8 --ops all --block -1", "-bits 8 --ops all --target ort", "-bits 4 --block 32 --style nbits", "-bits 8 --activations dynamic"])
def test_operators_are_those_of_the_model(setting, tmp_path):
    path, out = MODEL, tmp_path / "out.onnx"
    assert onnxquant(*setting.split(), path, out).status == 0
    report = figures("--seconds", "1", path, out)
    plausible(report)
    for m in report["models"]:
        want = optimized(m["path"], tmp_path)
        got = {op["name"]: op["nodes"] for op in m["profile"]["operators"]}
        if m["profile"]["dequantize"]["nodes"]:
            got["DequantizeLinear"] = m["profile"]["dequantize"]["nodes"]
        assert got == want


def loop(path):
    """A model that repeats a slow operator, beside a quick one."""
    scalar = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("MatMul", ["v", "v"], ["w"], name='a "name"\nof two lines'), helper.make_node("Identity", ["c"], ["d"])], "body",
                             [scalar("i", TensorProto.INT64, []), scalar("c", TensorProto.BOOL, []), scalar("v", TensorProto.FLOAT, [200, 200])],
                             [scalar("d", TensorProto.BOOL, []), scalar("w", TensorProto.FLOAT, [200, 200])])
    graph = helper.make_graph([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], "g", [scalar("x", TensorProto.FLOAT, [200, 200])], [scalar("y", TensorProto.FLOAT, None)],
                              [helper.make_tensor("n", TensorProto.INT64, [], [5])])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


# The time of a Loop is without that of its body.
def test_loop(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(200, dtype="float32"))
    report = figures("--seconds", "1", "--inputs", tmp_path / "x.npy", loop(tmp_path / "loop.onnx"))
    plausible(report)
    operators = {op["name"]: op for op in report["models"][0]["profile"]["operators"]}
    assert operators["MatMul"]["nodes"] == 5 and operators["Loop"]["nodes"] == 1
    assert operators["MatMul"]["ms"] > operators["Loop"]["ms"]
    assert not report["random"] and "sizes" not in report


# The size is with external data. Symbolic dimensions of random inputs are named.
def test_sizes(tmp_path):
    path, out = TINYDOC / "model.onnx", tmp_path / "out.onnx"
    assert onnxquant("-bits", "8", "--external-data", "always", path, out).status == 0
    report = figures("--seconds", "1", "--dim", "length=7", path, out)
    assert report["models"][1]["bytes"] == os.path.getsize(out) + os.path.getsize(f"{out}.data")
    assert report["inputs"][0]["shape"] == [1, 7]
    text = bench("--seconds", "1", path, out)
    assert re.search(r"^2  .*out\.onnx  .* KiB$", text, re.M), text
    assert re.search(r"^inputs +\S+ .*; random, of \S+=\d", text, re.M), text


# The files of profiles are removed, also when a model fails.
def test_nothing_is_left(tmp_path):
    path = loop(tmp_path / "loop.onnx")
    np.save(tmp_path / "x.npy", np.eye(200, dtype="float32"))
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    command = [with_runtime(), "bench", "--ort-lib", library(), "--seconds", "1"]
    subprocess.run([*command, path], env=environment, check=True, capture_output=True)
    broken = onnx.load(path)
    broken.graph.node[0].op_type = "NoSuchOperator"
    del broken.graph.node[0].attribute[:]
    onnx.save(broken, tmp_path / "broken.onnx")
    p = subprocess.run([*command, path, tmp_path / "broken.onnx"], env=environment, capture_output=True, text=True)
    assert p.returncode == 1 and p.stdout == "" and re.fullmatch(r"onnxquant: \S*broken\.onnx: .*NoSuchOperator.*\n", p.stderr), p.stderr
    assert not list((tmp_path / "temporary").glob("onnxquant*"))  # ONNX Runtime leaves .ses


@pytest.fixture
def table(tmp_path):
    """A table of which a run gathers 32 rows of 8192. A DequantizeLinear decodes all of it."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "rows"], ["y"])], "g", [helper.make_tensor_value_info("rows", TensorProto.INT64, [32])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.random.default_rng(0).standard_normal((8192, 256), "float32"), "w")])
    path = tmp_path / "in.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize("flags, replaces", [
    ([], True), pytest.param([], False, marks=pytest.mark.long), pytest.param(["--external-data", "always"], True, marks=pytest.mark.long),
    pytest.param(["--threads", "2"], False, marks=pytest.mark.long)])
def test_a_slow_output_is_refused(flags, replaces, table, tmp_path):
    """It takes 100 times as long and more: what was at its name stays, and nothing else is there."""
    convert = [with_runtime(), "--ort-lib", library(), "-bits", "8", "--ops", "all", "--max-slowdown", "10", *flags]
    out = tmp_path / "folder" / "out.onnx"
    out.parent.mkdir()
    if replaces:
        assert onnxquant("-bits", "4", table, out).status == 0
    before = {p.name: p.read_bytes() for p in out.parent.iterdir()}
    r = subprocess.run([*convert, "--force", table, out], capture_output=True, text=True)
    assert r.returncode == 1, r.stderr
    assert re.search(r"out\.onnx: the output is too slow: a run takes \d+\.\d\d ± \d+\.\d\d times the (CPU )?time of IN in ONNX Runtime \S+, and 10 is allowed; --target ort ", r.stderr), r.stderr
    assert {p.name: p.read_bytes() for p in out.parent.iterdir()} == before
    r = subprocess.run([*convert, "--target", "ort", "--force", table, out], capture_output=True, text=True)
    assert r.returncode == 0 and out.read_bytes() != before.get("out.onnx"), r.stderr
    assert re.search(r"^a run +takes \d\.\d\d ± \d\.\d\d times the (CPU )?time of IN in ONNX Runtime", r.stderr, re.M), r.stderr


def test_report(tmp_path):
    """report --bench has size, error and time of each model, on its page and in its JSON."""
    outs = [tmp_path / "int4.onnx", tmp_path / "int8.onnx"]
    for out, flags in zip(outs, (["-bits", "4", "--block", "32"], ["-bits", "8"])):
        assert onnxquant(*flags, TINYDOC / "model.onnx", out).status == 0
    command = ["report", "--bench", "--json", "--candidates", "none", "--html", tmp_path / "page.html", "--ort-lib", library(), TINYDOC / "model.onnx", *outs]
    r = onnxquant(*command, binary=with_runtime(), timeout=300)
    assert r.status == 0, r.stderr
    report, page = json.loads(r.stdout), (tmp_path / "page.html").read_text()
    plausible(report["bench"])
    assert [m["path"] for m in report["bench"]["models"]] == [str(TINYDOC / "model.onnx"), *map(str, outs)]
    for i, m in enumerate(report["bench"]["models"]):
        assert m["bytes"] == [report["in"], *report["outs"]][i]["bytes"]
        for key in ("bytes", "cpu_ms", "p50_ms", "cpu_ratio"):
            [shown] = re.findall(rf'<data value="([^"]+)" data-json="bench\.models\.{i}\.{key}">', page)
            assert float(shown) == m[key]
    for i, out in enumerate(report["outs"]):
        assert f'data-json="outs.{i}.error">' in page.partition('id="speed"')[2].partition("</section>")[0]


def test_report_without_runtime(tmp_path, monkeypatch):
    out = tmp_path / "out.onnx"
    assert onnxquant(TINYDOC / "model.onnx", out).status == 0
    monkeypatch.setenv("ONNXQUANT_ORT_LIB", str(tmp_path / "none.so"))
    r = onnxquant("report", "--bench", "--candidates", "none", TINYDOC / "model.onnx", out)
    assert r.status == 1 and "the speed cannot be measured" in r.stderr and len(list(tmp_path.iterdir())) == 1, r.stderr
