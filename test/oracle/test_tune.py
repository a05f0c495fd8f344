"""onnxquant tune: what it chooses holds on ONNX Runtime's outputs, its command line makes the same bytes, and it ends cleanly."""
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import ROOT, onnxquant
from test_verify import library, with_runtime

pytestmark = pytest.mark.long
SCHEMA = json.loads((ROOT / "docs" / "json" / "tune.schema.json").read_text())


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture
def given(tmp_path):
    """A classifier of three layers, and 64 samples."""
    rng = np.random.default_rng(7)
    sizes, nodes, weights, value = [64, 128, 128, 10], [], [], "x"
    for i, (n, m) in enumerate(zip(sizes, sizes[1:])):
        weights.append(numpy_helper.from_array((rng.standard_normal((n, m)) * (2 / n) ** 0.5).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"h{i}"]))
        value = f"h{i}"
        if i < 2:
            nodes.append(helper.make_node("Relu", [value], [f"r{i}"]))
            value = f"r{i}"
    nodes.append(helper.make_node("Softmax", [value], ["y"], axis=-1))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "in.onnx")
    x = rng.standard_normal((64, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    return tmp_path, x


def tune(folder, *args):
    return onnxquant("tune", "--ort-lib", library(), *args, "in.onnx", "out.onnx", folder=folder, binary=with_runtime(), timeout=300)


def result(done):
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(SCHEMA["required"]) <= set(found) <= set(SCHEMA["properties"])
    for trial in found["trials"]:
        assert set(SCHEMA["$defs"]["Trial"]["required"]) <= set(trial) <= set(SCHEMA["$defs"]["Trial"]["properties"])
    return found


def kl(folder, out, x):
    p, q = (session(folder / name).run(None, {"x": x})[0].astype(np.float64) for name in ("in.onnx", out))
    return float((p * np.log(np.maximum(p, 1e-30) / np.maximum(q, 1e-30))).sum(-1).mean())


def test_goal_and_command_line(given):
    folder, x = given
    found = result(tune(folder, "--data", "data.npz", "--max-kl", "0.005", "--target", "ort", "--json", "--report", "page.html"))
    assert found["verdict"] == "reached" and found["samples"] == {"calibration": 32, "choice": 16, "final": 16}
    assert kl(folder, "out.onnx", x[33::2]) <= 0.005 * 1.01 and kl(folder, "out.onnx", x[32::2]) <= 0.005 * 1.01
    size = (folder / "out.onnx").stat().st_size
    assert size == found["winner"]["bytes"] < (folder / "in.onnx").stat().st_size / 3
    assert not [t for t in found["trials"] if t["holds"] and t["bytes"] < size]
    first = (folder / "out.onnx").read_bytes()
    (folder / "out.onnx").unlink()
    again = subprocess.run([with_runtime(), *found["command"]], cwd=folder, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (folder / "out.onnx").read_bytes() == first


def test_score(given):
    """The fastest by a score of the user's own, with a command that fails for some candidates."""
    folder, x = given
    (folder / "eval.py").write_text(f"""
import sys
import numpy as np
import onnxruntime as ort
if {len(x)} and b"DynamicQuantizeLinear" in open(sys.argv[1], "rb").read():
    sys.exit("no such models here")
x = np.load("data.npz")["x"]
def classes(path):
    return ort.InferenceSession(path).run(None, {{"x": x}})[0].argmax(-1)
print("loaded")
print("score:", 100 * float((classes(sys.argv[1]) == classes("in.onnx")).mean()))
""")
    found = result(tune(folder, "--score", f"{sys.executable} eval.py {{}}", "--max-drop", "5", "--try", "weights,dynamic", "--trials", "10", "--json"))
    assert found["verdict"] == "chosen" and found["float"]["score"] == 100 and found["winner"]["quality"]["score"] >= 95
    assert all("no such models here" in t["failed"] for t in found["trials"] if t["kind"] == "dynamic")


def test_labels(given):
    """Accuracy on labels in the data, some of which the float model gets wrong."""
    folder, x = given
    float_classes = session(folder / "in.onnx").run(None, {"x": x})[0].argmax(-1)
    labels = np.where(np.arange(len(x)) % 5 == 4, (float_classes + 1) % 10, float_classes)
    np.savez(folder / "data.npz", x=x, label=labels)
    found = result(tune(folder, "--data", "data.npz", "--labels", "label", "--max-drop", "7", "--json", "--report", "page.html"))

    def accuracy(name, rows):
        return 100 * (session(folder / name).run(None, {"x": x[rows]})[0].argmax(-1) == labels[rows]).mean()

    choice, final = slice(32, None, 2), slice(33, None, 2)
    assert found["verdict"] == "reached"
    assert found["float"]["score"] == pytest.approx(accuracy("in.onnx", choice)) and found["float"]["score"] < 95
    assert found["winner"]["quality"]["score"] == pytest.approx(accuracy("out.onnx", choice)) and found["final"]["score"] == pytest.approx(accuracy("out.onnx", final))
    assert accuracy("out.onnx", final) >= accuracy("in.onnx", final) - 7
    assert "onnxquant --target" in (folder / "page.html").read_text() or "onnxquant --ops" in (folder / "page.html").read_text()
    kept = ["--data", "data.npz", "--labels", "label", "--max-drop", "7", "--try", "weights", "--trials", "2", "--work", "kept", "--json"]
    assert not any(t["kept"] for t in result(tune(folder, *kept))["trials"])
    assert all(t["kept"] for t in result(tune(folder, *kept))["trials"])
    np.savez(folder / "data.npz", x=x, label=float_classes)
    assert not any(t["kept"] for t in result(tune(folder, *kept))["trials"])
    done = tune(folder, "--data", "data.npz", "--labels", "classes", "--max-drop", "7")
    assert done.status == 1 and 'there is no array of labels "classes"' in done.stderr


def test_interrupt_keeps_the_best(given):
    folder, _ = given
    (folder / "slow.sh").write_text('sleep 2; echo $$ >>pids; wc -c <"$1"\n')
    p = subprocess.Popen([with_runtime(), "tune", "--score", "sh slow.sh", "--min-score", "20000", "--try", "weights", "--work", "kept", "in.onnx", "out.onnx"],
                         cwd=folder, stderr=subprocess.PIPE, text=True)
    lines = []
    while not any("kept " in line for line in lines):
        line = p.stderr.readline()
        assert line, "".join(lines)
        lines.append(line)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    rest = p.communicate(timeout=60)[1]
    assert p.returncode == 0, rest
    assert "interrupted" in rest and (folder / "out.onnx").exists()
    assert subprocess.run(["pgrep", "-f", str(folder)], capture_output=True).returncode  # nothing is left


def test_nothing_reaches_it(given):
    folder, _ = given
    done = tune(folder, "--data", "data.npz", "--max-kl", "0", "--try", "weights", "--trials", "2")
    assert done.status == 1 and "the goal is not reached" in done.stderr and not (folder / "out.onnx").exists()
