"""Runs commands in turn, and measures them."""
import hashlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench"  # of models and outputs
PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss


@dataclass
class Run:
    seconds: float
    cpu: float  # seconds of all threads
    mib: float  # peak resident memory
    digest: str = ""  # of what was written


def measure(*command):
    start = time.monotonic()
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stderr = p.stderr.read()
    _, status, usage = os.wait4(p.pid, 0)
    seconds = time.monotonic() - start
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"bench: {command[0]} failed: {stderr.strip()[-500:]}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / PER_MIB)


def convert(*command, digest=False):
    """A run that writes a model, its name behind the arguments, which is then removed."""
    out = FOLDER / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    try:
        run = measure(*command, out / "out.onnx")
        if digest:
            run.digest = " ".join(hashlib.file_digest(p.open("rb"), "sha256").hexdigest() for p in sorted(out.iterdir()))
        return run
    finally:
        shutil.rmtree(out)


def onnxquant(model, *flags, **options):
    return convert(ROOT / "bin" / "onnxquant", "--quiet", *flags, model, **options)


class Rounds:
    """What some contenders took, who ran in turn."""

    def __init__(self, rounds, contenders, fewer={}):
        """fewer has the rounds of those who are not in all."""
        self.runs = {name: [] for name in contenders}
        for i in range(rounds):
            for name, run in contenders.items():
                if i < fewer.get(name, rounds):
                    self.runs[name].append(run())
        for name, runs in self.runs.items():
            print(f"  {name:24}{self.seconds(name):8.3f} s{min(r.seconds for r in runs):8.3f} at best"
                  f"{statistics.median(r.cpu for r in runs):8.2f} s of CPU{self.mib(name):7.0f} MiB{len(runs):4} runs", flush=True)

    def seconds(self, name):
        return statistics.median(r.seconds for r in self.runs[name])

    def mib(self, name):
        return max(r.mib for r in self.runs[name])

    def ratio(self, slow, fast):
        """How many times longer one takes than another, in the same round."""
        return statistics.median(a.seconds / b.seconds for a, b in zip(self.runs[slow], self.runs[fast]))

    def digests(self, *names):
        return {r.digest for name in names for r in self.runs[name]}
