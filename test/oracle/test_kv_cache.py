"""Key-value caches of int8: --kv-cache on decoders with the weights of tinygpt, in ONNX Runtime."""
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import cached_models
from command import ROOT, onnxquant
from runtime import REDUCED
from test_verify import library, with_runtime

sys.path.insert(0, str(ROOT / "test" / "consumers"))
import tinydecoder  # noqa: E402

PROMPT = 48  # ids that are read at once, of 64
NOTHING = ["--exclude", "*"]  # weights stay floats
BY = ["int8", "int8:per-head", "int8:per-channel"]


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def binary():
    return with_runtime()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    np.savez(folder / "data.npz", input_ids=np.load(cached_models.TINYGPT / "calib_ids.npz")["ids"][:16])
    for kind in cached_models.KINDS:
        cached_models.build(folder / f"{kind}.onnx", kind)
    return folder


def convert(binary, model, out, by, *flags):
    algorithm = [] if "--float16" in flags else ["--algorithm", "rtn"]
    r = onnxquant(*algorithm, "--kv-cache", by, "--calib", model.parent / "data.npz", "--ort-lib", library(), "--force", *flags, model, out, binary=binary)
    assert r.status == 0, r.stderr
    return r.stderr


def report(binary, model, out, *flags):
    p = subprocess.run([binary, "verify", "--json", "--ort-lib", library(), *map(str, flags), str(model), str(out)], capture_output=True, text=True, timeout=120)
    return json.loads(p.stdout)


def ids(n=8):
    return cached_models.tokens()[:n, :64].astype(np.int64)


@pytest.mark.parametrize("kind, by", [pytest.param(k, b, marks=[] if (k, b) in [("GroupQueryAttention", BY[0]), ("Concat", BY[2])] else pytest.mark.long)
                                      for k in cached_models.KINDS for b in BY])
def test_accuracy(binary, folder, tmp_path, kind, by):
    """The cache takes a quarter of float32's bytes, and the text of the model hardly changes."""
    model, out = folder / f"{kind}.onnx", tmp_path / "out.onnx"
    assert "8 caches of keys or values: int8" in convert(binary, model, out, by, *NOTHING)
    onnx.checker.check_model(out)
    want, floats = cached_models.generate(session(model), ids(), PROMPT)
    got, codes = cached_models.generate(session(out), ids(), PROMPT)
    assert sum(c.nbytes for c in codes.values()) * 4 == sum(f.nbytes for f in floats.values())
    assert 0 < cached_models.divergence(want[:, PROMPT:], got[:, PROMPT:]) < 0.001
    # Each code is the nearest of its float, up to what earlier layers changed.
    for i in onnx.load(out).graph.initializer:
        if i.name == "past_key_values.0.key_scale":
            scale = numpy_helper.to_array(i)
            scale = scale.reshape((1, -1, 1, 1) if scale.size == cached_models.HEADS else (1, cached_models.HEADS, 1, -1) if scale.size > 1 else ())
            name = "past_key_values.0.key"
            clipped = np.clip(floats[name], -128 * scale, 127 * scale)
            assert np.abs(codes[name] * scale - clipped).max() <= 0.501 * scale.max()


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k == "GroupQueryAttention" else pytest.mark.long) for k in cached_models.KINDS])
def test_verify(binary, folder, tmp_path, kind):
    """verify runs OUT with its own cache, and has no complaint; dequantize makes the float model again."""
    model, out = folder / f"{kind}.onnx", tmp_path / "out.onnx"
    convert(binary, model, out, "int8:per-head", "--bits", "8")
    np.savez(tmp_path / "some.npz", input_ids=ids(2))
    r = report(binary, model, out, "--inputs", tmp_path / "some.npz")
    assert r["passed"] and r["structure"]["problems"] == [] and not [n for n in r["structure"]["notes"] if "cache" in n], r["failures"]
    assert len(r["structure"]["caches"]) == 8 and "past_key_values.0.key" in r["structure"]["caches"]
    assert r["execution"]["itself"]["generated"] == 8
    logits = r["execution"]["itself"]["outputs"][0]
    assert logits["distribution"]["kl_divergence"]["mean"] < 0.002
    assert onnxquant("dequantize", out, tmp_path / "float.onnx", binary=binary).status == 0
    a, _ = cached_models.generate(session(model), ids(2), PROMPT)
    b, cache = cached_models.generate(session(tmp_path / "float.onnx"), ids(2), PROMPT)
    assert cache["past_key_values.0.key"].dtype == np.float32
    assert cached_models.divergence(a, b) < 0.002


@pytest.mark.parametrize("kind", ["GroupQueryAttention", pytest.param("Concat", marks=pytest.mark.long)])
def test_mutated_scales(binary, folder, tmp_path, kind):
    """A scale that is not the conversion's is found: by the record, and without one by what OUT computes."""
    model, out = folder / f"{kind}.onnx", tmp_path / "out.onnx"
    convert(binary, model, out, "int8", *NOTHING)
    m = onnx.load(out)
    for t in m.graph.initializer:
        if t.name == "past_key_values.2.value_scale":
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * np.float32(0.1), t.name))
    onnx.save(m, tmp_path / "mutated.onnx")
    r = report(binary, model, tmp_path / "mutated.onnx")
    assert not r["passed"]
    del m.metadata_props[:]
    onnx.save(m, tmp_path / "mutated.onnx")
    r = report(binary, model, tmp_path / "mutated.onnx")
    worst = min(r["execution"]["itself"]["outputs"], key=lambda o: o["sqnr_db"])
    assert worst["name"] == "present.2.value" and worst["sqnr_db"] < 10


@pytest.mark.long
@pytest.mark.parametrize("kind, by", [("GroupQueryAttention", BY[0]), ("Concat", BY[0]), ("Concat", BY[2])])
def test_static_activations(binary, folder, tmp_path, kind, by):
    """Activations have codes beside a cache of int8, which has scales of its own."""
    model, out = folder / f"{kind}.onnx", tmp_path / "out.onnx"
    r = onnxquant("--activations", "static", *REDUCED, "--kv-cache", by, "--calib", folder / "data.npz", "--ort-lib", library(), model, out, binary=binary)
    assert r.status == 0 and "8 caches of keys or values: int8" in r.stderr, r.stderr
    want, _ = cached_models.generate(session(model), ids(2), PROMPT)
    got, cache = cached_models.generate(session(out), ids(2), PROMPT)
    assert all(c.dtype == np.int8 for c in cache.values())
    assert cached_models.divergence(want, got) < 0.02


@pytest.mark.long
@pytest.mark.parametrize("flags", [["--float16"], ["--float16", "--keep-io-types=false"]], ids=["keep", "half"])
@pytest.mark.parametrize("kind", ["GroupQueryAttention", "Concat"])
def test_half(binary, folder, tmp_path, kind, flags):
    model, out = folder / f"{kind}.onnx", tmp_path / "out.onnx"
    convert(binary, model, out, "int8:per-channel", *flags)
    want, _ = cached_models.generate(session(model), ids(2), PROMPT)
    got, cache = cached_models.generate(session(out), ids(2), PROMPT)
    assert all(c.dtype == np.int8 for c in cache.values())
    assert cached_models.divergence(want, got) < 0.001
    r = report(binary, model, out)
    assert r["structure"]["problems"] == [], r["structure"]["problems"]


def test_static_shapes(binary, folder, tmp_path):
    """A cache of a fixed length, as mobile exporters write it."""
    np.savez(tmp_path / "data.npz", input_ids=np.load(folder / "data.npz")["input_ids"][:, :32], attention_mask=np.ones((16, 64), np.int64))
    model, out = cached_models.build(tmp_path / "static.onnx", "Concat", past=32), tmp_path / "out.onnx"
    convert(binary, model, out, "int8:per-channel", *NOTHING)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in onnx.load(out).graph.input}
    assert shapes["past_key_values.0.key"][1:] == [6, 32, 32]


@pytest.mark.parametrize("open_size", [False, True])
def test_generation(binary, tmp_path, open_size):
    """A decoder of onnxruntime-genai's builder, with grouped heads and rotated keys, writes the same text in both. The builder
    leaves the size of heads open."""
    tinydecoder.build(tmp_path / "float")
    if open_size:
        m = onnx.load(tmp_path / "float" / "model.onnx")
        for v in [*m.graph.input, *m.graph.output]:
            if "past" in v.name or "present" in v.name:
                v.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
        onnx.save(m, tmp_path / "float" / "model.onnx")
    r = onnxquant("--preset", "genai", "--algorithm", "k_quant", "--kv-cache", "int8:per-channel", "--calib", "self", "--samples", "8", "--ort-lib", library(),
                  tmp_path / "float", tmp_path / "out", binary=binary)
    assert r.status == 0 and "8 caches of int8" in r.stderr, r.stderr
    s = session(tmp_path / "out" / "model.onnx")
    assert {i.type for i in s.get_inputs() if "past" in i.name} == {"tensor(int8)"}
    sequence = by_hand(s, [5, 17, 33, 80, 6], 40)
    genai = pytest.importorskip("onnxruntime_genai")
    params = genai.GeneratorParams(model := genai.Model(str(tmp_path / "out")))
    params.set_search_options(max_length=40, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array([[5, 17, 33, 80, 6]], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    assert list(generator.get_sequence(0)) == sequence


def by_hand(s, sequence, length):
    """The greedy continuation of a sequence."""
    new, cache = sequence, {i.name: np.zeros((1, i.shape[1], 0, tinydecoder.HEAD), np.int8) for i in s.get_inputs() if i.name.startswith("past")}
    while len(sequence) < length and sequence[-1] != 2:
        feed = {"input_ids": np.array([new], np.int64), "attention_mask": np.ones((1, len(sequence)), np.int64), **cache}
        out = dict(zip([o.name for o in s.get_outputs()], s.run(None, feed)))
        cache = {n: out[n.replace("past_key_values", "present")] for n in cache}
        new = [int(out["logits"][0, -1].argmax())]
        sequence = sequence + new
    return sequence


def test_refused(binary, folder, tmp_path):
    r = onnxquant("--kv-cache", "int8", folder / "Concat.onnx", tmp_path / "out.onnx", binary=binary)
    assert r.status == 2 and "--kv-cache is for --calib" in r.stderr
    r = onnxquant("--kv-cache", "int8", "--calib", "self", "--samples", "2", "--ort-lib", library(), cached_models.TINYGPT / "model.onnx", tmp_path / "out.onnx", binary=binary)
    assert r.status == 1 and "no key-value cache" in r.stderr
    convert(binary, folder / "Concat.onnx", tmp_path / "out.onnx", "int8", *NOTHING)
    r = onnxquant("--kv-cache", "int8", "--algorithm", "rtn", "--calib", folder / "data.npz", "--ort-lib", library(), tmp_path / "out.onnx", tmp_path / "again.onnx", binary=binary)
    assert r.status == 1 and "may be quantized already" in r.stderr
    m = onnx.load(folder / "Concat.onnx")  # what reads a cache in between is named
    m.graph.node.insert(0, onnx.helper.make_node("Neg", ["past_key_values.1.key"], ["negated"], name="odd"))
    for n in m.graph.node[1:]:
        n.input[:] = ["negated" if i == "past_key_values.1.key" else i for i in n.input]
    onnx.save(m, tmp_path / "odd.onnx")
    r = onnxquant("--kv-cache", "int8", "--algorithm", "rtn", "--calib", folder / "data.npz", "--ort-lib", library(), tmp_path / "odd.onnx", tmp_path / "again.onnx", binary=binary)
    assert r.status == 1 and "past_key_values.1.key" in r.stderr and "odd" in r.stderr, r.stderr
