"""Speed and memory of onnxquant against onnxruntime's weight quantizer.

Both turn the same model, BENCH_LAYERS MatMuls of BENCH_K x BENCH_N float32
weights in external data, into DequantizeLinear form with INT4 codes, block 128,
symmetric: the whole process, from start to exit. Runs alternate, so that both
see the same machine, and the model's file is read once before so that the page
cache is warm for both. `cat` of the weights shows what reading alone takes.

    make bench                     4.3 GB
    make bench BENCH_LAYERS=2      0.36 GB

BENCH_RUNS repeats (default 3). The model and the outputs lie in build/bench;
`rm -r build/bench` deletes them.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"
LAYERS, K, N, RUNS = (int(os.environ.get("BENCH_" + name, default))
                      for name, default in (("LAYERS", 24), ("K", 4096), ("N", 11008), ("RUNS", 3)))

PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss

PEER = """
import logging, sys
logging.disable(logging.CRITICAL)
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.quantization.quant_utils import QuantFormat
config = DefaultWeightOnlyQuantConfig(block_size=128, is_symmetric=True, quant_format=QuantFormat.QDQ)
quantizer = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(sys.argv[2], True)
"""


def model():
    """The float model, made where it does not exist."""
    path = FOLDER / f"float-{LAYERS}x{K}x{N}.onnx"
    size = 4 * LAYERS * K * N
    if not path.exists():
        free = shutil.disk_usage(FOLDER).free
        if free < 1.5 * size:
            sys.exit(f"bench: {size / 1e9:.1f} GB of weights and room for the outputs do not fit into the {free / 1e9:.1f} GB "
                     "that are free here; set BENCH_LAYERS lower")
        subprocess.run(["go", "run", "./testmodels/mkmodel", "-layers", str(LAYERS), "-k", str(K), "-n", str(N), "big", path],
                       cwd=ROOT, check=True)
    return path, size


def measure(*command):
    """(seconds, peak MiB) of one process."""
    start = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stderr = p.stderr.read()
    _, status, usage = os.wait4(p.pid, 0)
    seconds = time.monotonic() - start
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"bench: {command[0]} failed: {stderr.strip()[-500:]}")
    return seconds, usage.ru_maxrss / PER_MIB


def convert(*command):
    """measure, with an output path in a folder that is emptied afterwards."""
    out = FOLDER / "out"
    out.mkdir()
    try:
        return measure(*command, out / "out.onnx")
    finally:
        shutil.rmtree(out)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "out", ignore_errors=True)
    path, size = model()
    peer = FOLDER / "peer.py"
    peer.write_text(PEER)
    contenders = {
        "onnxquant": lambda: convert(ROOT / "bin" / "onnxquant", "-bits", "4", "-block", "128", "--quiet", path),
        "onnxquant --no-verify": lambda: convert(ROOT / "bin" / "onnxquant", "-bits", "4", "-block", "128", "--quiet", "--no-verify", path),
        "onnxruntime": lambda: convert(sys.executable, peer, path),
        "cat": lambda: measure("cat", f"{path}.data"),
    }
    contenders["cat"]()
    runs = {name: [] for name in contenders}
    print(f"{LAYERS} MatMuls of {K} x {N}, {size / 1e9:.2f} GB of float32, INT4 block 128; {RUNS} runs in turn")
    for _ in range(RUNS):
        for name, run in contenders.items():
            runs[name].append(run())

    median = {name: statistics.median(s for s, _ in r) for name, r in runs.items()}
    print(f"{'':24}{'median s':>10}{'fastest':>10}{'GB/s':>8}{'peak MiB':>10}{'ORT / this':>12}{'this / cat':>12}")
    for name, r in runs.items():
        print(f"{name:24}{median[name]:10.2f}{min(s for s, _ in r):10.2f}{size / median[name] / 1e9:8.2f}{max(m for _, m in r):10.0f}"
              f"{median['onnxruntime'] / median[name]:12.1f}{median[name] / median['cat']:12.1f}")
    print(f"the model stays in {FOLDER.relative_to(ROOT)}; rm -r {FOLDER.relative_to(ROOT)} deletes it")


if __name__ == "__main__":
    main()
