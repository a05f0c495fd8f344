"""onnxquant batch: killed at any time, on several machines, the outputs are those of one quiet run."""
import collections
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import BINARY, onnxquant

OPTIONS = [["--bits", "8"], ["--block", "16"], ["--block", "16", "--zero-point"], ["--external-data", "always"], ["--format", "nvfp4"], {"float16": True, "bits": 8}]


def write_models(folder, count, size):
    """Models of one product, and a file of jobs with various options."""
    rng = np.random.default_rng(7)
    (folder / "in").mkdir(parents=True)
    with open(folder / "jobs.jsonl", "w") as jobs:
        for i in range(count):
            weight = numpy_helper.from_array(rng.standard_normal((size, size), np.float32), "w")
            x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", size]) for n in "xy")
            graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], "g", [x], [y], [weight])
            path = folder / "in" / f"{i:04}.onnx"
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
            jobs.write(json.dumps({"in": str(path), "out": f"{i % 7}/{i:04}.onnx", "options": OPTIONS[i % len(OPTIONS)]}) + "\n")


def digests(folder):
    """The files but for manifests."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith("manifest")}


def records(folder):
    lines = [json.loads(line) for p in folder.glob("manifest*.jsonl") for line in p.read_text().splitlines()]
    return [r for r in lines if r["status"] == "done"]


def command(folder, out, *args):
    return [BINARY, "batch", "--quiet", "--attest", *args, folder / "jobs.jsonl", out, "--", "--block", "32"]


def kill_all(pid):
    """Kills a batch and its conversions, which have process groups of their own."""
    os.kill(pid, signal.SIGSTOP)  # it starts no other
    for children in Path("/proc", str(pid), "task").glob("*/children"):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def with_kills(folder, out, args, shards, kills, rng, most):
    """Runs the shards at the same time, and kills one of them again and again, with its conversions or without."""
    def start(i):
        return subprocess.Popen(command(folder, out, *args, "--shard", f"{i}/{shards}"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)

    running = {i: start(i) for i in range(shards)}
    done, in_work = 0, 0
    for n in range(kills):
        time.sleep(rng.uniform(0.02, most))
        i = rng.choice(list(running))
        p = running[i]
        if p.poll() is None:
            in_work += 1
            if n % 2:
                kill_all(p.pid)
            else:
                p.kill()  # its conversions have to notice
        p.communicate()
        running[i] = start(i)
    for p in running.values():
        _, stderr = p.communicate(timeout=1800)
        assert p.returncode == 0, stderr
    return in_work


def check_killed(tmp_path, count, size, kills, most, *args):
    write_models(tmp_path, count, size)
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    start = time.monotonic()
    r = subprocess.run(command(tmp_path, quiet, *args), stdin=subprocess.DEVNULL, capture_output=True)
    assert r.returncode == 0, r.stderr
    took = time.monotonic() - start
    before = digests(quiet)
    assert len(before) == 2 * count + len(range(3, count, len(OPTIONS)))  # a model, a statement; external data

    in_work = with_kills(tmp_path, killed, args, 4, kills, random.Random(3), most)
    again = subprocess.run(command(tmp_path, killed, *args, "--json"), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["kept"] == count
    assert digests(killed) == before  # also: nothing is left of what was in work
    times = collections.Counter(r["out"] for r in records(killed))
    assert len(times) == count and set(times.values()) == {1}  # what was done was not done again
    for record in records(killed):
        for f in record["outputs"]:
            assert before[f["path"]] == f["sha256"]
    print(f"{count} models: {took:.1f} s in a quiet run; {in_work} kills of a shard at work")
    return in_work


def test_killed(tmp_path):
    check_killed(tmp_path, 24, 64, 4, 0.3, "--no-gate")


@pytest.mark.long
def test_killed_while_judged(tmp_path):
    assert check_killed(tmp_path, 60, 64, 12, 1.5) > 3


@pytest.mark.long
def test_thousand(tmp_path):
    assert check_killed(tmp_path, 1000, 64, 20, 2, "--no-gate") > 15


def test_statement(tmp_path):
    """The statement's hashes are those of the files, external data and calibration data too."""
    write_models(tmp_path, 1, 64)
    float_model, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(onnx.load(tmp_path / "in" / "0000.onnx"), float_model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.savez(data, x=np.random.default_rng(1).standard_normal((16, 64), np.float32))
    out = tmp_path / "out.onnx"
    r = onnxquant("--quiet", "--calib", data, "--block", "16", "--external-data", "always", "--gate", "sound", "--attest", tmp_path / "s.json", float_model, out)
    assert r.status == 0, r.stderr
    s = json.loads((tmp_path / "s.json").read_text())

    def of(name):
        return {"sha256": hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}

    assert {x["name"]: x["digest"] for x in s["subject"]} == {n: of(n) for n in ("out.onnx", "out.onnx.data")}
    materials = s["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {x["name"]: (x["digest"], x["annotations"]["role"]) for x in materials} == {
        "model.onnx": (of("model.onnx"), "model"), "weights.bin": (of("weights.bin"), "external data"), "data.npz": (of("data.npz"), "data")}
    assert "--calib" in s["predicate"]["buildDefinition"]["externalParameters"]["options"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_signed_statement(tmp_path):
    """A signature, as docs/batch.md makes it, is good for the statement, and for no other."""
    write_models(tmp_path, 1, 64)
    out, statement = tmp_path / "out.onnx", tmp_path / "out.onnx.intoto.json"
    r = onnxquant("--quiet", "--bits", "8", "--attest", statement, tmp_path / "in" / "0000.onnx", out)
    assert r.status == 0, r.stderr

    def openssl(*args):
        return subprocess.run(["openssl", *args], cwd=tmp_path, capture_output=True, text=True)

    for args in (("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "key.pem"), ("ec", "-in", "key.pem", "-pubout", "-out", "public.pem"),
                 ("dgst", "-sha256", "-sign", "key.pem", "-out", "out.onnx.intoto.sig", statement.name)):
        r = openssl(*args)
        assert r.returncode == 0, r.stderr
    verify = "dgst", "-sha256", "-verify", "public.pem", "-signature", "out.onnx.intoto.sig", statement.name
    assert openssl(*verify).returncode == 0
    subject = json.loads(statement.read_text())["subject"]
    assert [(x["name"], x["digest"]["sha256"]) for x in subject] == [(out.name, hashlib.sha256(out.read_bytes()).hexdigest())]
    statement.write_text(statement.read_text().replace(subject[0]["digest"]["sha256"], "0" * 64))
    assert openssl(*verify).returncode != 0
