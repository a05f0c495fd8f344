"""How many instructions the loops of internal/kernels take on arm64: prints a table for docs/log/performance.md.

    make instructions

Each loop runs once in qemu, which names every instruction that it runs. Those of the package itself are counted,
without what its setup takes; clearing and copying memory is the Go runtime's. A run of plain Go (-tags purego) stands
beside that of the assembly. Fewer instructions are not the same as less time.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = "internal/kernels"
ELEMENTS = 3 * 4096
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
TEST = ["-test.run", "^TestCounted$"]


def build(folder, tags):
    test = folder / f"kernels{tags}.test"
    subprocess.run(["go", "test", "-c", "-tags", tags, "-o", test, f"./{PACKAGE}"], cwd=ROOT, check=True,
                   env=os.environ | {"GOOS": "linux", "GOARCH": "arm64", "CGO_ENABLED": "0"})
    return test


def place(test):
    """Where the functions of the package are, and those of its tests."""
    symbols = subprocess.run(["go", "tool", "nm", "-n", test], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=2) for line in symbols.splitlines()]
    code = [(int(at, 16), name) for at, kind, name in (line for line in lines if len(line) == 3) if kind in "Tt"]
    inside = [i for i, (_, name) in enumerate(code) if re.match(rf"\S*{PACKAGE}\.", name)]
    ranges = []
    for i in inside:
        start, end = code[i][0], code[i + 1][0]
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = end
        else:
            ranges.append([start, end])
    return ",".join(f"{start:#x}+{end - start:#x}" for start, end in ranges)


def run(test, places, loop):
    with tempfile.NamedTemporaryFile() as log:
        subprocess.run([QEMU, "-singlestep", "-d", "exec,nochain", "-dfilter", places, "-D", log.name, test, *TEST],
                       check=True, stdout=subprocess.DEVNULL, env=os.environ | {"COUNTED": loop})
        return sum(line.startswith(b"Trace") for line in log)


def main():
    if not QEMU:
        sys.exit("no qemu-aarch64 or qemu-aarch64-static (package qemu-user-static)")
    with tempfile.TemporaryDirectory() as folder:
        tests = [build(pathlib.Path(folder), tags) for tags in ("purego", "")]
        listed = subprocess.run([QEMU, tests[1], *TEST], capture_output=True, text=True, check=True,
                                env=os.environ | {"COUNTED": "list"}).stdout
        places = [place(t) for t in tests]
        before = [run(t, p, "nothing") for t, p in zip(tests, places)]
        print("| loop | plain Go | NEON | ratio |\n|---|---|---|---|")
        for loop in listed.splitlines():
            if loop in ("PASS", "ok"):
                continue
            go, neon = ((run(t, p, loop) - b) / ELEMENTS for t, p, b in zip(tests, places, before))
            print(f"| {loop} | {go:.1f} | {neon:.2f} | {go / neon:.1f} |", flush=True)


main()
