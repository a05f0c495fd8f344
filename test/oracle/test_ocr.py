"""What a text recognizer reads after its weights are quantized: convolutions, with labels."""
import functools

import numpy as np
import pytest

from command import onnxquant
from ocr import MODEL, drawn, other_lines, outputs, read_right
from test_calibrated import calibrate

float_outputs = functools.cache(lambda: outputs(MODEL))


@pytest.fixture(scope="module")
def float_accuracy():
    return read_right(float_outputs())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("args, least, size", [
    ("-bits 4", 0.98, 0.26),
    ("--format q4_k", 0.98, 0.26),
])
def test_characters(args, least, size, float_accuracy, tmp_path):
    assert float_accuracy > 0.99
    out = tmp_path / "out.onnx"
    r = onnxquant("--ops", "all", *args.split(), MODEL, out)
    assert r.status == 0, r.stderr
    assert out.stat().st_size <= size * MODEL.stat().st_size
    assert read_right(outputs(out)) >= least * float_accuracy


def test_convolutions_of_4_bits(float_accuracy, tmp_path):
    """The reason why they have 8 by default."""
    out = tmp_path / "out.onnx"
    r = onnxquant("--ops", "all", "-bits", "4", "--conv-format", "int4", MODEL, out)
    assert r.status == 0, r.stderr
    assert read_right(outputs(out)) < 0.5 * float_accuracy


def divergence(model):
    """Mean KL divergence of a model's characters from the float model's."""
    p, q = (np.concatenate(o).astype(np.float64) + 1e-12 for o in (float_outputs(), outputs(model)))
    return (p * np.log(p / q)).sum(axis=-1).mean()


@pytest.mark.long
def test_calibrated(tmp_path):
    """Data help a recognizer most of all: text of other words, in lines of one width."""
    np.savez(tmp_path / "x.npz", x=np.concatenate([drawn(text, 480) for text in other_lines(16)]))
    args, mse, out = ["--bits", 4, "--block", 32, "--target", "ort"], tmp_path / "mse.onnx", tmp_path / "out.onnx"
    r = onnxquant(*map(str, args), "--algorithm", "mse", MODEL, mse)
    assert r.status == 0, r.stderr
    report = calibrate(tmp_path / "x.npz", *args, "--algorithm", "gptq", MODEL, out)["calibration"]
    assert not report["refused"] and report["output_error"] < 0.5 * report["output_error_mse"]
    assert divergence(out) < 0.5 * divergence(mse)


@pytest.mark.long
def test_calibrated_convolutions(float_accuracy, tmp_path):
    """With data, convolutions of 4 bits are read as well as float ones; by least squared error, 82 % of the characters are."""
    np.savez(tmp_path / "x.npz", x=np.concatenate([drawn(text, 320) for text in other_lines(12)]))
    out = tmp_path / "out.onnx"
    report = calibrate(tmp_path / "x.npz", "--ops", "all", "--bits", 4, "--block", 32, "--conv-format", "int4", "--target", "ort", "--algorithm", "gptq", MODEL, out)
    assert report["calibration"]["layers"] > 40 and read_right(outputs(out)) > 0.97 * float_accuracy
