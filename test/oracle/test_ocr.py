"""What a text recognizer reads after its weights are quantized: convolutions, with labels."""
import pytest

from command import onnxquant
from ocr import MODEL, outputs, read_right


@pytest.fixture(scope="module")
def float_accuracy():
    return read_right(outputs(MODEL))


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
