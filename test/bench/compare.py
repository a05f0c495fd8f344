"""Speed and memory of onnxquant: writes the table of docs/performance.md.

    make bench                         models of 1 GiB, about two minutes
    make bench BENCH=full              models of 4.3 GB, memory at 16 GB too
    make bench BENCH="threads rates"   only these of: speed memory embedded rates small threads kernels
    make bench BENCH="full threads"

Each figure is the median of BENCH_RUNS runs (default 5) of whole processes, from
start to exit. What is compared runs in turn, so that both see the same machine,
and a ratio is the median of those of each turn. Models are made, and deleted, in
build/bench; the page cache has them all.
"""
import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass

from run import FOLDER, ROOT, Rounds, convert, measure, onnxquant

WANTED = os.environ.get("BENCH", "").split()
RUNS = int(os.environ.get("BENCH_RUNS", 5))
FULL = "full" in WANTED
K, N = 4096, 11008
LAYERS = int(os.environ.get("BENCH_LAYERS", 24 if FULL else 6))
MIB = [256, 1024, 4096, 15360] if FULL else [256, 1024]

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- written by make bench -->\n", "<!-- end of bench -->\n"


@dataclass
class Peer:
    package: str
    runs: int  # at most: they take long


# By their Python modules, if these are there.
PEERS = {"onnxruntime": Peer("onnxruntime", 3), "modelopt": Peer("nvidia-modelopt", 1)}


@dataclass
class Row:
    what: str
    target: str
    met: bool
    reached: str
    figures: str

    def __str__(self):
        return f"| {self.what} | {self.target} | {self.reached} | {'yes' if self.met else 'no'} | {self.figures} |"


@contextlib.contextmanager
def model(*flags, layers=LAYERS, k=K, n=N):
    """A float model, and the bytes of its weights."""
    path = FOLDER / f"{layers}x{k}x{n}{''.join(flags)}" / "float.onnx"
    path.parent.mkdir()
    try:
        subprocess.run(["go", "run", "./testmodels/mkmodel", "-layers", str(layers), "-k", str(k), "-n", str(n), *flags, "big", path],
                       cwd=ROOT, check=True)
        os.sync()  # or writing it back disturbs what is measured
        weights = data(path) if data(path).exists() else path
        measure("cat", weights)  # to the page cache
        yield path, weights.stat().st_size
    finally:
        shutil.rmtree(path.parent)


def data(path):
    return path.with_name(path.name + ".data")


def gbs(size, seconds):
    return f"{size / seconds / 1e9:.2f} GB/s"


def speed():
    """Against peers, and against reading."""
    peers = [name for name in PEERS if importlib.util.find_spec(name)]
    with model() as (path, size):
        r = Rounds(RUNS, {
            "onnxquant": lambda: onnxquant(path),
            "unverified": lambda: onnxquant(path, "--no-verify"),
            "cat": lambda: measure("cat", data(path)),
            **{name: functools.partial(convert, sys.executable, ROOT / "test" / "bench" / "peers" / f"{name}_int4.py", path) for name in peers},
        }, fewer={name: PEERS[name].runs for name in peers})
    ours = f"{size / 1e9:.2f} GB in {r.seconds('onnxquant'):.2f} s"
    for name in peers:
        times = r.ratio(name, "onnxquant")
        yield Row(f"INT4, blocks of 128, against {name} {importlib.metadata.version(PEERS[name].package)}", "30 times faster",
                  times >= 30, f"{times:.1f} times, {r.ratio(name, 'unverified'):.1f} unverified",
                  f"{ours} and {r.mib('onnxquant'):.0f} MiB; {r.seconds(name):.1f} s and {r.mib(name):.0f} MiB ({len(r.runs[name])} runs)")
    for what, name, target in (("not verified", "unverified", 1.6), ("verified", "onnxquant", 2.5)):
        times = r.ratio(name, "cat")
        yield Row(f"the same, {what}, against `cat` to `/dev/null`", f"{target} times its time", times <= target, f"{times:.2f} times",
                  f"{r.seconds(name):.2f} s; {r.seconds('cat'):.2f} s")


def memory():
    """Whatever the size."""
    peaks = []
    for mib in MIB:
        with model(layers=mib // 64, k=4096, n=4096) as (path, _):
            peaks.append(Rounds(1, {f"{mib} MiB": lambda: onnxquant(path)}).mib(f"{mib} MiB"))
    yield Row("peak memory at " + ", ".join(f"{m / 1024:g}" for m in MIB) + " GiB of weights", "96 MiB, and the same within 10 %",
              max(peaks) <= 96 and max(peaks) <= 1.1 * min(peaks), ", ".join(f"{p:.0f}" for p in peaks) + " MiB", "one run each")


def embedded():
    """Weights in the model file, against the same in a file of their own."""
    layers = min(LAYERS, 10)  # a file may have 2 GiB
    with model(layers=layers) as (outside, size), model("-embedded", layers=layers) as (inside, _):
        r = Rounds(RUNS, {"external": lambda: onnxquant(outside), "embedded": lambda: onnxquant(inside)})
    rate = r.ratio("external", "embedded")
    yield Row("weights embedded in the model file", "the rate of external ones, 96 MiB", rate >= 0.9 and r.mib("embedded") <= 96,
              f"{rate:.2f} of the rate, {r.mib('embedded'):.0f} MiB", f"{size / 1e9:.2f} GB, {gbs(size, r.seconds('embedded'))}")


def rates():
    """Other types, layouts and formats, by bytes of input in a second."""
    flags = {"blocks of 32": "--block 32", "per channel": "--block -1", "zero points": "--zero-point",
             "int8": "--bits 8", "nvfp4": "--format nvfp4", "mxfp8": "--format mxfp8"}
    with model() as (path, size):
        def compare(size2, contenders):
            r = Rounds(RUNS, {"int4": lambda: onnxquant(path), **contenders})
            for name in contenders:
                rate = r.ratio("int4", name) * size2 / size
                yield Row(name, "half the rate", rate >= 0.5, f"{rate:.2f} of the rate",
                          f"{gbs(size2, r.seconds(name))}; {gbs(size, r.seconds('int4'))}")

        for name, flag in (("float16 weights", "-float16"), ("Gemm, transB=1", "-transb")):
            with model(flag) as (other, size2):
                yield from compare(size2, {name: lambda: onnxquant(other)})
        yield from compare(size, {name: functools.partial(onnxquant, path, *args.split()) for name, args in flags.items()})


def small():
    """Where there is hardly anything to quantize."""
    with model("-embedded", layers=3000, k=16, n=15) as (tensors, _), model(layers=2000, k=64, n=64) as (nodes, _):
        r = Rounds(RUNS, {"3000 tensors of 960 bytes": lambda: onnxquant(tensors), "a graph of 2000 nodes": lambda: onnxquant(nodes)})
    for name in r.runs:
        yield Row(name, "0.3 s", r.seconds(name) <= 0.3, f"{r.seconds(name):.3f} s", f"{r.mib(name):.0f} MiB")


def threads():
    """One against two."""
    with model() as (path, _):
        r = Rounds(RUNS, {n: functools.partial(onnxquant, path, "--threads", n, digest=True) for n in "12"})
    same = len(r.digests("1", "2")) == 1
    yield Row("two threads against one", "1.7 times, the same bytes", r.ratio("1", "2") >= 1.7 and same,
              f"{r.ratio('1', '2'):.2f} times, {'the same' if same else 'other'} bytes", f"{r.seconds('2'):.2f} s; {r.seconds('1'):.2f} s")


def kernels():
    """All the work on a tile but reading and writing, one core."""
    p = subprocess.run(["go", "test", "-run", "^$", "-bench", "Weight/copy|Weight/layout=.*/bits=4/zero=false/type=FLOAT/block=128",
                        "-count", str(RUNS), "./int4"], cwd=ROOT, check=True, capture_output=True, text=True)
    rates = {}
    for name, rate in re.findall(r"^BenchmarkWeight/(copy|layout=\w+)\S*\s.*?([\d.]+) MB/s", p.stdout, re.M):
        rates.setdefault(name, []).append(float(rate) / 1e3)
    rates = {name: statistics.median(r) for name, r in rates.items()}
    for layout in ("columns", "rows"):
        rate = rates["layout=" + layout]
        yield Row(f"kernels of INT4, blocks of 128 along {layout}", "6 GB/s", rate >= 6, f"{rate:.1f} GB/s", f"one core; copying {rates['copy']:.1f} GB/s")


PARTS = {f.__name__: f for f in (speed, memory, embedded, rates, small, threads, kernels)}


def machine():
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())[1]
    go = subprocess.run(["go", "env", "GOVERSION"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()}, {go}"


def write(rows):
    """Replaces these rows of the table, or all if these are all parts."""
    before, begin, rest = DOCUMENT.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    assert begin and end, f"{DOCUMENT} has no place for the table"
    table = {}
    if parts() != list(PARTS):
        table = {line.split(" | ")[0]: line for line in old.splitlines() if line.startswith("| ") and not line.startswith("| | ")}
    table.update((str(row).split(" | ")[0], str(row)) for row in rows)
    head = [f"{machine()}; medians of {RUNS} runs.", "", "| | target | reached | met | |", "|---|---|---|---|---|"]
    DOCUMENT.write_text(before + begin + "\n".join([*head, *table.values()]) + "\n" + end + after)


def parts():
    return [p for p in PARTS if p in WANTED] or list(PARTS)


def main():
    unknown = set(WANTED) - {"full", *PARTS}
    if unknown:
        sys.exit(f"bench: {' '.join(unknown)} is none of: full {' '.join(PARTS)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    need = max(MIB[-1] << 20, 4 * 2 * LAYERS * K * N) * 5 // 4
    if shutil.disk_usage(FOLDER).free < need:
        sys.exit(f"bench: {need / 1e9:.0f} GB are needed in {FOLDER}")
    rows = []
    for name in parts():
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        for row in PARTS[name]():
            rows.append(row)
            print(row, flush=True)
    write(rows)


if __name__ == "__main__":
    main()
