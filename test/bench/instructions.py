"""How many instructions the loops of internal/kernels take on arm64: prints a table for docs/log/performance.md.

    make instructions

Each loop runs once in qemu, which names every instruction that it runs. Those of the package itself are counted;
clearing and copying memory is the Go runtime's. A run of plain Go (-tags purego) stands
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


def build(folder, tags):
    test = folder / f"kernels{tags}.test"
    subprocess.run(["go", "test", "-c", "-tags", tags, "-o", test, f"./{PACKAGE}"], cwd=ROOT, check=True,
                   env=os.environ | {"GOOS": "linux", "GOARCH": "arm64", "CGO_ENABLED": "0"})
    return test


def place(test):
    """Where the functions of the package and its tests are, and where mark is."""
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
    mark = next(at for at, name in code if name.endswith(f"{PACKAGE}.mark"))
    return ",".join(f"{start:#x}+{end - start:#x}" for start, end in ranges), mark


def run(test):
    """The loops and how many instructions of the package each took."""
    places, mark = place(test)
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [QEMU, "-singlestep", "-d", "exec,nochain", "-dfilter", places, test, "-test.run", "^TestCounted$"],
            stdout=out, stderr=subprocess.PIPE, env=os.environ | {"COUNTED": "1"})
        counts, marks = [], 0
        for line in process.stderr:
            if line.startswith(b"Trace"):
                if int(line.split(b"/", 2)[1], 16) == mark:
                    marks += 1
                    if marks % 2:
                        counts.append(0)
                elif marks % 2:
                    counts[-1] += 1
        if process.wait():
            sys.exit(f"{test.name} failed in qemu")
        out.seek(0)
        names = [line.removeprefix("loop: ").rstrip("\n") for line in out if line.startswith("loop: ")]
    return dict(zip(names, counts, strict=True))


def main():
    if not QEMU:
        sys.exit("no qemu-aarch64 or qemu-aarch64-static (package qemu-user-static)")
    with tempfile.TemporaryDirectory() as folder:
        go, neon = (run(build(pathlib.Path(folder), tags)) for tags in ("purego", ""))
    print("| loop | plain Go | NEON | ratio |\n|---|---|---|---|")
    for loop, n in go.items():
        print(f"| {loop} | {n / ELEMENTS:.1f} | {neon[loop] / ELEMENTS:.2f} | {n / neon[loop]:.1f} |")


main()
