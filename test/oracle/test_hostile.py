"""Broken and malicious files: one clear line, exit status 1, nothing left, nothing touched, within limits.

testmodels/corpus/README.md explains the fields of INDEX.json and DERIVED.json.
"""
import json
import os
import shutil
import stat

import onnx
import pytest

from command import BINARY, CORPUS
from measured import Run

FOLDER = CORPUS / "hostile"
CASES = {c["file"]: c for c in json.loads((FOLDER / "INDEX.json").read_text())}
DERIVED = json.loads((FOLDER / "DERIVED.json").read_text())
CANARY = (FOLDER / "outside" / "canary.bin").read_bytes()

SECONDS, MIB = 2, 256


def run(source, out, folder):
    """Runs the command within the limits, whatever becomes of it."""
    r = Run([BINARY, "--bits", "4", "--block", "32", "--quiet", source, out], folder / "stderr")
    assert r.seconds <= SECONDS, f"{r.seconds:.1f} s"
    assert r.mib <= MIB, f"{r.mib:.0f} MiB"
    assert r.status in (0, 1), f"exit status {r.status}: {r.stderr[:500]}"
    if r.status:
        lines = r.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("onnxquant: "), f"message {r.stderr[:500]!r}"
        assert lines[0].isprintable(), f"control characters in {lines[0]!r}"
    return r


def prepare(case, folder):
    """A fresh copy of the case with its setup done. Returns the model's path."""
    source = FOLDER / case["file"]
    model = folder / case["file"]
    if source.parent == FOLDER or case["class"] == "truncated":
        model.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, model)
    else:
        shutil.copytree(source.parent, model.parent, symlinks=True)
    shutil.copytree(FOLDER / "outside", folder / "outside")
    for step, *args in case.get("setup", []):
        at = model.parent / args[0 if step == "sparse" else -1]
        match step:
            case "symlink": at.symlink_to(args[0])
            case "hardlink": at.hardlink_to(model.parent / args[0])
            case "fifo": os.mkfifo(at)
            case "mkdir": at.mkdir()
            case "chmod": at.chmod(int(args[0], 8))
            case "sparse":
                at.touch()
                os.truncate(at, args[1])
            case "remove": at.unlink()
            case "move": (model.parent / args[0]).rename(at)
            case _: raise ValueError(step)
    return model


def contents(folder):
    """Every file below a folder with what identifies its contents: large ones by size and time."""
    found = {}
    for p in folder.rglob("*"):
        s = p.lstat()
        if stat.S_ISDIR(s.st_mode):
            found[p] = "folder"
        elif stat.S_ISREG(s.st_mode) and s.st_size < 1 << 20 and os.access(p, os.R_OK):
            found[p] = p.read_bytes()
        else:
            found[p] = s.st_mode, s.st_size, s.st_mtime_ns
    return found


@pytest.mark.parametrize("name", CASES)
def test_file(name, tmp_path):
    case = CASES[name]
    if "unreadable" in name and os.geteuid() == 0:
        pytest.skip("root reads everything")
    folder, elsewhere = tmp_path / "case", tmp_path / "elsewhere"
    elsewhere.mkdir()
    model = prepare(case, folder)
    out = model.parent / case["output"] if "output" in case else elsewhere / "out.onnx"
    before = contents(folder)

    r = run(model, out, tmp_path)
    after, made = contents(folder), list(elsewhere.iterdir())
    if r.status:
        assert after == before, f"changed: {[p for p in after.keys() | before.keys() if after.get(p) != before.get(p)]}"
        assert not made, f"left {made}"
        if case["must"] == "error" and "names" in case:
            assert any(n in r.stderr for n in case["names"]), f"names none of {case['names']}: {r.stderr}"
        return
    assert case["must"] != "error", "accepted"
    ours = {out.resolve(), out.resolve().with_name(out.name + ".data")}
    kept = {p: c for p, c in before.items() if p.resolve() not in ours}
    assert {p: after.get(p) for p in kept} == kept, "the input was changed"
    onnx.load(out)
    if "hardlink" not in str(case.get("setup")):
        assert CANARY not in out.read_bytes(), "a file outside of the model's folder was read"


def derived(change):
    """(offset, bytes) of every broken form of the base model that a row of DERIVED.json describes."""
    base = (FOLDER / change["base"]).read_bytes()
    op = change["op"]
    for at in range(len(base)):
        head, byte, tail = base[:at], base[at], base[at + 1:]
        if op == "truncate":
            yield at, head
        elif op == "xor one byte with 0xFF":
            yield at, head + bytes([byte ^ 0xFF]) + tail
        elif op.startswith("set one byte"):
            yield at, head + bytes([(0x80, 0x7F, 0x00)[at % 3]]) + tail
        elif op == "delete one byte":
            yield at, head + tail
        elif op == "insert 0xFF":
            yield at, head + b"\xFF" + bytes([byte]) + tail
        else:
            raise ValueError(op)


# Every second offset; all would take two minutes. Of three values that take turns, steps of ten reach all.
STRIDE = 10


@pytest.mark.sampled(10)
@pytest.mark.parametrize("first", range(0, STRIDE, 2))
@pytest.mark.parametrize("change", DERIVED, ids=lambda c: c["op"].replace(" ", "-"))
def test_derived(change, first, tmp_path):
    model, out = tmp_path / "in" / "model.onnx", tmp_path / "out" / "out.onnx"
    model.parent.mkdir()
    out.parent.mkdir()
    complaints = []
    for at, data in derived(change):
        if at % STRIDE != first and at not in change.get("ok_at", []):
            continue
        model.write_bytes(data)
        try:
            check_derived(change, at, run(model, out, tmp_path), out)
        except AssertionError as e:
            complaints.append(f"offset {at}: {e}")
        for p in out.parent.iterdir():
            p.unlink()
    assert not complaints, "\n".join(complaints)


def check_derived(change, at, r, out):
    valid = at in change.get("ok_at", [])
    if r.status:
        assert not valid, f"refused a valid model: {r.stderr}"
        assert not list(out.parent.iterdir()), "something is left"
    else:
        assert change["must"] != "error" or valid, "accepted"
        onnx.load(out)
