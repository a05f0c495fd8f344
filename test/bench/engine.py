"""CPU time of the pure Go engine beside ONNX Runtime's: the table of docs/log/engine.md.

    make engine                 all models
    make engine ENGINE=silero   those whose names contain a word

Both have one thread and an open session, and take turns of SLOT seconds. The least of TURNS counts, for each. Outputs must be
close: the largest difference is printed, as a part of the largest output.
"""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "test" / "oracle"))
from command import SHARED, TINYGPT  # noqa: E402

SLOT, TURNS = 0.7, 5
RNG = np.random.default_rng(0)
REAL = SHARED / "models" / "real"


def products(folder):
    """Four MatMul one behind the other, 2048 and 5632 wide in turn."""
    sizes = [2048, 5632, 2048, 5632, 2048]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(4)]
    weights = [numpy_helper.from_array(RNG.standard_normal((k, n), "float32") / k**0.5, f"w{i}") for i, (k, n) in enumerate(zip(sizes, sizes[1:]))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [128, 2048]) for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "products.onnx")
    return folder / "products.onnx"


def models(folder):
    """A name, the model, and its inputs."""
    tokens = RNG.integers(0, 30522, (1, 128))
    sound = {"input": RNG.standard_normal((1, 576), "float32") * np.float32(0.1), "state": np.zeros((2, 1, 128), "float32"), "sr": np.array(16000)}
    image = pathlib.Path(importlib.util.find_spec("rapidocr_onnxruntime").origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"
    yield "tinygpt, 8 × 128 tokens", TINYGPT / "model.onnx", {"ids": np.load(TINYGPT / "calib_ids.npz")["ids"][:8]}
    yield "super_resolution", REAL / "super_resolution" / "model.onnx", None
    yield "four MatMul of 2048 × 5632, 128 rows", products(folder), {"x0": RNG.standard_normal((128, 2048), "float32")}
    yield "a BERT of two layers, 128 tokens", REAL / "vespa_bert_mlm_random" / "model.onnx", {
        "input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
    yield "PP-OCRv4 rec, 48 × 320", image, {"x": RNG.uniform(-1, 1, (1, 3, 48, 320)).astype("float32")}
    yield "silero VAD", REAL / "silero_vad_op18_ifless" / "model.onnx", sound


def random(session):
    return {i.name: RNG.uniform(0, 1, [d if isinstance(d, int) else 1 for d in i.shape]).astype("float32") for i in session.get_inputs()}


def one_thread(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def runtime_turn(session, feeds):
    runs, start, cpu = 0, time.perf_counter(), time.process_time()
    while not runs or time.perf_counter() - start < SLOT:
        session.run(None, feeds)
        runs += 1
    return (time.process_time() - cpu) / runs


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        binary = folder / "engine"
        subprocess.run(["go", "build", "-o", binary, "./test/bench/engine"], cwd=ROOT, check=True)
        print(f"| ONNX Runtime {ort.__version__}, CPU s of a run | ONNX Runtime | pure Go | times | difference |\n|---|---|---|---|---|")
        for name, path, feeds in models(folder):
            if not any(word in name for word in sys.argv[1:] or [""]):
                continue
            session = one_thread(path)
            feeds = feeds or random(session)
            np.savez(folder / "inputs.npz", **feeds)
            want = session.run(None, feeds)
            ours, theirs = [], []
            for _ in range(TURNS):
                run = subprocess.run([binary, "-outputs", folder, str(SLOT), path, folder / "inputs.npz"], check=True, capture_output=True, text=True)
                ours.append(float(run.stdout))
                theirs.append(runtime_turn(session, feeds))
            off = max(float(abs(np.fromfile(folder / f"{i}", w.dtype).reshape(w.shape) - w).max() / max(abs(w).max(), 1e-30)) for i, w in enumerate(want))
            print(f"| {name} | {min(theirs):.3g} | {min(ours):.3g} | {min(ours) / min(theirs):.2f} | {off:.1g} |", flush=True)


if __name__ == "__main__":
    main()
