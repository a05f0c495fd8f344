"""Speed, error and size of what is written, in ONNX Runtime: writes tables of docs/performance.md.

    make inference                    both models, about six minutes
    make inference BENCH="tinygpt"    one of them: chain tinygpt
    make inference BENCH_THREADS=1    with one thread alone, where the machine is not quiet

Forms of onnxquant run beside those of ONNX Runtime's own quantizers: MatMulNBitsQuantizer at
accuracy_level 4, and quantize_dynamic. A form's speed is how many times faster than the float
model it runs. In each of BENCH_RUNS rounds (default 11) all forms and float are opened and run in
turn, each several times, of which the shortest counts; the speed is the median of the rounds'
ratios. With
one thread, what is measured is CPU time, which other processes disturb less; with two, wall
time. The error is the root mean square of the difference from float's outputs, relative to these.
"""
import contextlib
import hashlib
import io
import logging
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from run import ROOT

FOLDER = ROOT / "build" / "inference"
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- written by make inference -->\n", "<!-- end of inference -->\n"
RUNS = int(os.environ.get("BENCH_RUNS", 11))
SLOT = 0.05  # seconds that a form runs in a round, at least
ROWS, THREADS = (1, 128), tuple(map(int, os.environ.get("BENCH_THREADS", "1 2").split()))
UNSTEADY = 1.5  # a figure is left out if the rounds' quartiles are further apart, and a column if most are
SAME_ERROR = 1.02  # errors within 2 % count as the same


def ours(*flags):
    def make(source, out):
        r = subprocess.run([ROOT / "bin" / "onnxquant", "--quiet", "--no-provenance", *flags, source, out], capture_output=True, text=True)
        if r.returncode:
            sys.exit(f"inference: {' '.join(flags)}: {r.stderr}")
    return make


def nbits(bits, block):
    def make(source, out):
        config = DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=True, accuracy_level=4, bits=bits)
        quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(out), False)
    return make


def dynamic(per_channel):
    def make(source, out):
        quantize_dynamic(source, out, weight_type=QuantType.QInt8, per_channel=per_channel)
    return make


@dataclass
class Form:
    name: str
    bits: int  # the size class
    make: callable
    theirs: bool = False
    path: pathlib.Path = None
    error: float = 0.0
    size: float = 0.0  # of float's
    speeds: dict = field(default_factory=dict)  # by rows and threads: one for each round


def forms():
    target = ["--target", "ort"]
    made = []
    for bits, block in ((4, "128"), (4, "32"), (8, "32"), (8, "-1"), (2, "32")):
        flags = ["-bits", str(bits), "-block", block]
        made.append(Form(" ".join(flags), bits, ours(*flags)))
        made.append(Form(" ".join(flags + target), bits, ours(*flags, *target)))
        if block != "-1":
            made.append(Form(" ".join([*flags, "--style nbits"]), bits, ours(*flags, "--style", "nbits")))
    for bits, block in ((4, "128"), (4, "32"), (2, "32")):
        flags = ["-bits", str(bits), "-block", block, "--zero-point", *target]
        made.append(Form(" ".join(flags), bits, ours(*flags)))
    for bits, block in ((4, "128"), (4, "32"), (8, "32")):
        flags = ["-bits", str(bits), "-block", block, "--algorithm", "rtn-ort", "--style", "nbits"]
        made.append(Form(" ".join(flags), bits, ours(*flags)))
    for more in ([], ["--block", "-1"]):
        flags = ["--activations", "dynamic", *more]
        made.append(Form(" ".join(flags), 8, ours(*flags)))
    return [*made,
            Form("MatMulNBitsQuantizer, 4 bits, blocks of 128", 4, nbits(4, 128), True),
            Form("MatMulNBitsQuantizer, 4 bits, blocks of 32", 4, nbits(4, 32), True),
            Form("MatMulNBitsQuantizer, 8 bits, blocks of 32", 8, nbits(8, 32), True),
            Form("quantize_dynamic, int8", 8, dynamic(False), True),
            Form("quantize_dynamic, int8, per channel", 8, dynamic(True), True)]


def chain(path):
    """Four MatMul with weights of 2048 × 5632 and 5632 × 2048, Tanh between them."""
    rng, sizes = np.random.default_rng(7), [2048, 5632, 2048, 5632, 2048]
    nodes, weights, x = [], [], "x"
    for i, (k, n) in enumerate(zip(sizes, sizes[1:])):
        weights.append(numpy_helper.from_array((rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]))
        x = f"m{i}"
        if i < 3:
            nodes.append(helper.make_node("Tanh", [x], [f"t{i}"]))
            x = f"t{i}"
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", T.FLOAT, ["b", sizes[0]])], [helper.make_tensor_value_info(x, T.FLOAT, ["b", sizes[-1]])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def chain_feeds(rows):
    return {"x": np.random.default_rng(rows).standard_normal((rows, 2048)).astype(np.float32)}


def tinygpt(path):
    """testmodels/tinygpt: a small language model, 1.8 million weights. Rows are tokens of one text."""
    shutil.copy(ROOT / "testmodels" / "tinygpt" / "model.onnx", path)


def tinygpt_feeds(rows):
    tokens = numpy_helper.to_array(onnx.load_tensor(ROOT / "testmodels" / "tinygpt" / "eval_tokens.pb")).reshape(-1)
    return {"ids": tokens[:rows].reshape(1, rows).astype(np.int64)}


MODELS = {"chain": (chain, chain_feeds), "tinygpt": (tinygpt, tinygpt_feeds)}


def session(path, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def spend(run, times, clock):
    """The shortest of some runs: the others were disturbed."""
    took = []
    for _ in range(times):
        start = clock()
        run()
        took.append(clock() - start)
    return min(took)


def compare_speeds(float_path, made, feeds, rows, threads):
    """Each round opens the models anew: where their weights lie in memory makes up to 15 % of the time."""
    clock = time.process_time if threads == 1 else time.perf_counter
    for _ in range(RUNS):
        took = [timed(path, threads, feeds, clock) for path in [float_path, *(f.path for f in made)]]
        for f, t in zip(made, took[1:]):
            f.speeds.setdefault((rows, threads), []).append(took[0] / t)


def timed(path, threads, feeds, clock):
    s = session(path, threads)
    run = lambda: s.run(None, feeds)
    run()
    return spend(run, max(1, min(500, round(SLOT / max(1e-6, spend(run, 1, clock))))), clock)


def relative_error(got, want):
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want ** 2)))


def measured(name):
    """The forms of one model, those with the bytes of an earlier one left out."""
    build, feeds = MODELS[name]
    folder = FOLDER / name
    folder.mkdir(parents=True)
    source = folder / "float.onnx"
    build(source)
    made, seen = [], {}
    for i, f in enumerate(forms()):
        f.path = folder / f"{i}.onnx"
        with contextlib.redirect_stdout(io.StringIO()):
            f.make(source, f.path)
        digest = hashlib.sha256(f.path.read_bytes()).digest()
        if digest in seen:
            seen[digest].name += f"; also {f.name}"
            continue
        seen[digest] = f
        f.size = f.path.stat().st_size / source.stat().st_size
        given = feeds(128)
        f.error = relative_error(session(f.path, 2).run(None, given)[0], session(source, 2).run(None, given)[0])
        made.append(f)
        print(f"  {f.name}: size {f.size:.3f}, error {f.error:.4f}", flush=True)
    for rows in ROWS:
        for threads in THREADS:
            compare_speeds(source, made, feeds(rows), rows, threads)
            print(f"  {rows} rows, {threads} threads: measured", flush=True)
    return made


def speed(f, where):
    return statistics.median(f.speeds[where])


def steady(ratios):
    if len(ratios) == 1:
        return True
    low, _, high = statistics.quantiles(ratios, n=4)
    return high <= UNSTEADY * low


WHERE = [(rows, threads) for rows in ROWS for threads in THREADS]


def columns(made):
    """Where half of the forms, at least, have steady figures."""
    return [w for w in WHERE if 2 * sum(steady(f.speeds[w]) for f in made) >= len(made)]


def title(where):
    rows, threads = where
    return f"{rows} row{'s' * (rows > 1)}, {threads} thread{'s' * (threads > 1)}"


def table(name, made):
    shown = columns(made)
    yield f"\n{MODELS[name][0].__doc__ or name}\n\n"
    yield "| form | size | error |" + "".join(f" {title(w)} |" for w in shown) + "\n"
    yield "|---|---|---|" + "---|" * len(shown) + "\n"
    for f in made:
        label = f"*{f.name}*" if f.theirs else "`" + f.name.replace("; also ", "`, `") + "`"
        yield f"| {label} | {f.size:.3f} | {f.error:.4f} |" + "".join(f" {speed(f, w):.2f} |" if steady(f.speeds[w]) else " – |" for w in shown) + "\n"
    if left := [title(w) for w in WHERE if w not in shown]:
        yield f"\nNot steady here: {'; '.join(left)}.\n"


def best(made, bits, where, theirs):
    """The fastest of a size class."""
    return max((f for f in made if f.bits == bits and f.theirs == theirs), key=lambda f: speed(f, where), default=None)


def contest(name, made):
    for bits in (4, 8):
        for where in WHERE:
            peer = best(made, bits, where, True)
            fair = [f for f in made if f.error <= peer.error * SAME_ERROR]
            mine = best(fair, bits, where, False)
            at = f"{name}, {bits} bits, {title(where)}"
            if mine is None:
                yield f"| {at} | none has as small an error | *{peer.name}* | – | no |\n"
                continue
            ratios = [a / b for a, b in zip(mine.speeds[where], peer.speeds[where])]
            if steady(ratios):
                ratio = statistics.median(ratios)
                yield f"| {at} | `{mine.name.split(';')[0]}` | *{peer.name}* | {ratio:.2f} | {'yes' if ratio >= 0.95 else 'no'} |\n"


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()


def main():
    logging.disable(logging.CRITICAL)
    ort.set_default_logger_severity(4)
    wanted = os.environ.get("BENCH", "").split() or list(MODELS)
    if unknown := set(wanted) - set(MODELS):
        sys.exit(f"inference: {' '.join(unknown)} is none of: {' '.join(MODELS)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    tables, contests = [], []
    try:
        for name in wanted:
            print(f"{name}:", flush=True)
            made = measured(name)
            tables += table(name, made)
            contests += contest(name, made)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    text = "".join([f"{processor()}, {os.cpu_count()} cores; ONNX Runtime {ort.__version__}; medians of {RUNS} rounds.\n", *tables,
                    "\n| | fastest of ours with no more error | fastest of theirs | ours : theirs | as fast |\n|---|---|---|---|---|\n", *contests])
    print(text)
    if wanted != list(MODELS):
        return
    before, rest = DOCUMENT.read_text().split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + text + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
