"""The gguf package reads the files that the command writes, with equal values."""
import json
import subprocess

import gguf
import numpy
import onnx
import pytest
from onnx import numpy_helper

from command import BINARY, ROOT, TINYGPT, onnxquant
from measured import Run

MIXES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4",
         "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"]
MIB = 96


def weights(model):
    """The float tensors of a model: of Constant nodes those that are no scalars."""
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for n in model.graph.node:
        if n.op_type == "Constant" and n.attribute[0].t.dims:
            found[n.output[0]] = numpy_helper.to_array(n.attribute[0].t)
    return {name: x for name, x in found.items() if x.dtype == numpy.float32}


def text(reader, key):
    return reader.fields[key].contents()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pure", [[], ["--pure"]], ids=["mixed", "pure"])
@pytest.mark.parametrize("mix", MIXES)
def test_read(mix, pure, tmp_path):
    """Every tensor is there, its blocks decode as the errors of the report say, and what
    the command reads back is what the package reads."""
    out, back = tmp_path / "out.gguf", tmp_path / "back.onnx"
    r = onnxquant("gguf", "--quiet", "--json", "--mix", mix, *pure, "--metadata", "general.architecture=str:tinygpt",
                  TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    said = {t["name"]: t for t in json.loads(r.stdout)["tensors"]}
    r = onnxquant("--quiet", "--exclude", "*", "--weights-from", out, TINYGPT / "model.onnx", back)
    assert r.status == 0, r.stderr

    want, got = weights(onnx.load(TINYGPT / "model.onnx")), weights(onnx.load(back))
    reader = gguf.GGUFReader(out)
    assert text(reader, "general.architecture") == "tinygpt"
    assert text(reader, "general.quantization_version") == gguf.GGML_QUANT_VERSION
    assert f"_{mix}" in gguf.LlamaFileType(text(reader, "general.file_type")).name
    transposed = text(reader, "onnx.transposed")
    usual = "_".join(mix.split("_")[:2])
    assert not pure or any(t.tensor_type.name == usual for t in reader.tensors), f"nothing is {usual}"
    assert {t.name for t in reader.tensors} == want.keys()
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type)
        assert list(x.shape) == [int(n) for n in reversed(t.shape)] == said[t.name]["file_shape"]
        assert t.tensor_type.name == said[t.name]["type"]
        if t.name in transposed:
            x = x.T
        numpy.testing.assert_array_equal(x, got[t.name])
        error = numpy.abs(x.astype(numpy.float64) - want[t.name]).max()
        assert error == pytest.approx(said[t.name]["max_error"], rel=1e-6)


def test_rebuilt(tmp_path):
    """A file that the package writes from the same values is read as ours is."""
    model = onnx.load(TINYGPT / "model.onnx")
    linear = {n.input[1] for n in model.graph.node if n.op_type == "MatMul"}
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "tinygpt")
    for name, x in weights(model).items():
        writer.add_tensor(name, numpy.ascontiguousarray(x.T) if name in linear else x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    r = onnxquant("--quiet", "--exclude", "*", "--weights-from", tmp_path / "theirs.gguf", TINYGPT / "model.onnx", tmp_path / "back.onnx")
    assert r.status == 0, r.stderr
    r = onnxquant("diff", TINYGPT / "model.onnx", tmp_path / "back.onnx")
    assert r.status == 0, r.stdout


@pytest.mark.sampled(3)
@pytest.mark.parametrize("encoding", ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_importance(encoding, tmp_path):
    """An importance matrix reaches the blocks of a GGUF file, and makes the same ones in ONNX."""
    model, importance, names = TINYGPT / "model.onnx", tmp_path / "imatrix.gguf", tmp_path / "names.json"
    down = [n.input[1] for n in onnx.load(model).graph.node if n.op_type == "MatMul" and n.input[1] in weights(onnx.load(model))]
    down = [name for name in down if weights(onnx.load(model))[name].shape[0] == 768]
    names.write_text(json.dumps({name: f"blk.{i}.ffn_down.weight" for i, name in enumerate(down)}))
    rng = numpy.random.default_rng(3)
    writer = gguf.GGUFWriter(importance, "")
    for i in range(len(down)):
        writer.add_tensor(f"blk.{i}.ffn_down.weight.in_sum2", (4 * rng.random((1, 768)) ** 4).astype(numpy.float32))
        writer.add_tensor(f"blk.{i}.ffn_down.weight.counts", numpy.array([[4]], numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    only = [a for name in down for a in ("--include", name)]
    told = ["--imatrix", importance, "--names", names]
    convert = ["--quiet", "--format", encoding, *only]
    for out, more in ("weighted.onnx", told), ("plain.onnx", []):
        assert onnxquant(*convert, *more, model, tmp_path / out).status == 0
        r = onnxquant("dequantize", "--quiet", tmp_path / out, tmp_path / f"float-{out}")
        assert r.status == 0, r.stderr
    types = [a for name in down for a in ("--tensor-type", f"{name}={encoding.upper()}")]
    r = onnxquant("gguf", "--quiet", "--mix", "F32", *types, *told, model, tmp_path / "out.gguf")
    assert r.status == 0, r.stderr

    got, plain = (weights(onnx.load(tmp_path / f"float-{out}.onnx")) for out in ("weighted", "plain"))
    read = {t.name: t for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    for i, name in enumerate(down):
        t = read[f"blk.{i}.ffn_down.weight"]
        assert t.tensor_type.name == encoding.upper()
        numpy.testing.assert_array_equal(gguf.quants.dequantize(t.data, t.tensor_type).T, got[name])
        assert (got[name] != plain[name]).any(), "it does not count"

    r = onnxquant(*convert, "--imatrix", importance, model, tmp_path / "no.onnx")
    assert r.status == 1 and "a file of names" in r.stderr


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """128 MiB of weights, and a GGUF file of them."""
    folder = tmp_path_factory.mktemp("big")
    model = folder / "big.onnx"
    size = ["-layers", "2", "-k", "2048", "-n", "8192"]
    subprocess.run(["go", "run", "./testmodels/mkmodel", *size, "big", model], cwd=ROOT, check=True)
    yield model
    for p in folder.iterdir():
        p.unlink()


@pytest.mark.parametrize("mix", ["F32", "Q4_0"])
def test_bounded(mix, big, tmp_path):
    """Memory does not grow with the model, there and back."""
    weights = tmp_path / "out.gguf"
    there = Run([BINARY, "gguf", "--quiet", "--mix", mix, "--pure", big, weights], tmp_path / "stderr", timeout=60)
    assert there.status == 0, there.stderr
    back = Run([BINARY, "--quiet", "--weights-from", weights, big, tmp_path / "out.onnx"], tmp_path / "stderr", timeout=60)
    assert back.status == 0, back.stderr
    for p in tmp_path.iterdir():
        p.unlink()
    assert max(there.mib, back.mib) <= MIB, f"{there.mib:.0f} and {back.mib:.0f} MiB"
