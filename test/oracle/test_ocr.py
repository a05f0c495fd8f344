"""What a text recognizer reads after its weights are quantized: convolutions, with labels.

The model is PP-OCRv4's, from the wheel of rapidocr-onnxruntime. The text is the license,
drawn with Pillow in its own font.
"""
import importlib.util
import pathlib

import numpy as np
import onnx
import pytest
from PIL import Image, ImageDraw, ImageFont

from command import ROOT, onnxquant
from runtime import session

MODEL = pathlib.Path(importlib.util.find_spec("rapidocr_onnxruntime").origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"
LINES, WORDS = 60, 4


def lines():
    words = (ROOT / "LICENSE").read_text().split()
    return [" ".join(words[7 * i:7 * i + WORDS]) for i in range(LINES)]


def drawn(text):
    """A line as the model wants it: 3 equal channels, 48 rows, from -1 to 1."""
    font = ImageFont.load_default(size=32)
    image = Image.new("L", (int(font.getlength(text)) + 24, 48), 255)
    ImageDraw.Draw(image).text((12, 4), text, font=font, fill=0)
    return np.repeat(np.asarray(image, np.float32)[None, None] / 127.5 - 1, 3, axis=1)


def changes(a, b):
    """The least number of characters to insert, delete or replace."""
    row = range(len(b) + 1)
    for i, x in enumerate(a, 1):
        last, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
    return row[-1]


@pytest.fixture(scope="module")
def alphabet():
    """The characters of classes; 0 is none."""
    [characters] = [p.value for p in onnx.load(MODEL).metadata_props if p.key == "character"]
    return ["", *characters.split("\n"), " "]


def accuracy(model, alphabet):
    """The share of characters, spaces aside, that a model reads right."""
    s, wrong, total = session(model), 0, 0
    for text in lines():
        best = s.run(None, {s.get_inputs()[0].name: drawn(text)})[0][0].argmax(axis=-1)
        read = "".join(alphabet[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1])
        text, read = text.replace(" ", ""), read.replace(" ", "")
        wrong, total = wrong + changes(text, read), total + len(text)
    return 1 - wrong / total


@pytest.fixture(scope="module")
def float_accuracy(alphabet):
    return accuracy(MODEL, alphabet)


@pytest.mark.parametrize("args, least, size", [
    ("-bits 4", 0.98, 0.26),
    ("--format q4_k", 0.98, 0.26),
])
def test_characters(args, least, size, alphabet, float_accuracy, tmp_path):
    assert float_accuracy > 0.99
    out = tmp_path / "out.onnx"
    r = onnxquant("--ops", "all", *args.split(), MODEL, out)
    assert r.status == 0, r.stderr
    assert out.stat().st_size <= size * MODEL.stat().st_size
    assert accuracy(out, alphabet) >= least * float_accuracy


def test_convolutions_of_4_bits(alphabet, float_accuracy, tmp_path):
    """The reason why they have 8 by default."""
    out = tmp_path / "out.onnx"
    r = onnxquant("--ops", "all", "-bits", "4", "--conv-format", "int4", MODEL, out)
    assert r.status == 0, r.stderr
    assert accuracy(out, alphabet) < 0.5 * float_accuracy
