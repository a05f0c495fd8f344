"""Whether onnxquant bench and a Python session agree on how much longer an output takes than the float model.

    make bench-agrees

Each pair is measured in turn by both, three times, with one thread: bench tells the ratio of CPU times, and so does
process_time around InferenceSession.run. The median counts. The pairs have ratios from 0.2 to 15. Fails if two medians differ
by more than LIMIT; on a busy machine that may happen.
"""
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "test" / "oracle"))
from command import TINYDOC, TINYGPT, onnxquant  # noqa: E402

LIMIT, TIMES, SLOT = 0.05, 3, 0.1
RNG = np.random.default_rng(0)
os.environ.setdefault("ONNXQUANT_ORT_LIB", str(next((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))))


def product(rows, k, n):
    """Some MatMul, one behind the other."""
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(4)]
    weights = [numpy_helper.from_array(RNG.standard_normal((k, n), "float32") / k**0.5, f"w{i}") for i in range(4)]
    return nodes, weights, [rows, k]


def convolutions():
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(4)]
    weights = [numpy_helper.from_array(RNG.standard_normal((96, 96, 3, 3), "float32") / 30, f"w{i}") for i in range(4)]
    return nodes, weights, [1, 96, 10, 10]


def rows_of_a_table():
    """Rows of an embedding and a product, between which nothing else is."""
    nodes = [helper.make_node("Gather", ["table", "x0"], ["rows"]), helper.make_node("MatMul", ["rows", "w"], ["x4"])]
    weights = [numpy_helper.from_array(RNG.standard_normal((20000, 128), "float32"), "table"), numpy_helper.from_array(RNG.standard_normal((128, 2048), "float32"), "w")]
    return nodes, weights, [64]


def saved(path, nodes, weights, shape):
    typ = TensorProto.INT64 if len(shape) == 1 else TensorProto.FLOAT
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x0", typ, shape)], [helper.make_tensor_value_info("x4", TensorProto.FLOAT, None)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def pairs(folder):
    """A name, a float model, an output, and inputs."""
    one, many = (saved(folder / f"{rows}.onnx", *product(rows, 1024, 1024)) for rows in (1, 128))
    conv, table = saved(folder / "conv.onnx", *convolutions()), saved(folder / "table.onnx", *rows_of_a_table())
    ids = {"ids": RNG.integers(0, 100, (1, 64))}
    for name, source, feeds, flags in [
        ("four MatMul, 1 row, int4", one, {"x0": RNG.standard_normal((1, 1024), "float32")}, "-bits 4 -block 32"),
        ("four MatMul, 128 rows, int8", many, {"x0": RNG.standard_normal((128, 1024), "float32")}, "-bits 8"),
        ("four Conv, decoded at every run", conv, {"x0": RNG.standard_normal((1, 96, 10, 10), "float32")}, "-bits 8 --ops all"),
        ("table and MatMul, decoded at every run", table, {"x0": RNG.integers(0, 20000, 64)}, "-bits 8 --ops all"),
        ("table and MatMul, --target ort", table, {"x0": RNG.integers(0, 20000, 64)}, "-bits 4 --ops all --target ort"),
        ("tinygpt, int4", TINYGPT / "model.onnx", ids, "-bits 4 -block 32 --ops all"),
        ("tinydoc, int8, --target ort", TINYDOC / "model.onnx", ids, "-bits 8 --ops all --target ort"),
    ]:
        out = folder / "out.onnx"
        r = onnxquant("--quiet", "--force", *flags.split(), source, out)
        assert r.status == 0, r.stderr
        yield name, source, out, feeds


def by_bench(source, out, feeds, folder):
    np.savez(folder / "inputs.npz", **feeds)
    r = onnxquant("bench", "--quiet", "--json", "--threads", "1", "--inputs", folder / "inputs.npz", source, out, timeout=300)
    assert r.status == 0, r.stderr
    return json.loads(r.stdout)["models"][1]["cpu_ratio"]


def by_python(source, out, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3

    def spent(session, runs):
        start = time.process_time()
        for _ in range(runs):
            session.run(None, feeds)
        return (time.process_time() - start) / runs
    sessions = [ort.InferenceSession(str(p), options, providers=["CPUExecutionProvider"]) for p in (source, out)]
    runs = [max(1, int(SLOT / spent(s, 10))) for s in sessions]
    rounds = []
    for _ in range(15):
        a, b = (spent(s, n) for s, n in zip(sessions, runs))
        rounds.append(b / a)
    return statistics.median(rounds)


def main():
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, *pair in pairs(folder):
            found = [(by_bench(*pair, folder), by_python(*pair)) for _ in range(TIMES)]
            ours, theirs = (statistics.median(column) for column in zip(*found))
            off = abs(ours / theirs - 1)
            worst = max(worst, off)
            print(f"{name}: bench {ours:.3f}, Python {theirs:.3f}, {off:.1%} apart", flush=True)
    print(f"the largest difference is {worst:.1%}")
    if worst > LIMIT:
        sys.exit(f"bench and Python differ by more than {LIMIT:.0%}: is the machine quiet?")


if __name__ == "__main__":
    main()
