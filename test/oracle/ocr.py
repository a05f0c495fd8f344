"""A text recognizer, lines of text drawn for it, and what it reads.

The model is PP-OCRv4's, from the wheel of rapidocr-onnxruntime. The text is the license,
drawn with Pillow in its own font.
"""
import functools
import importlib.util
import pathlib

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from command import ROOT
from runtime import session

MODEL = pathlib.Path(importlib.util.find_spec("rapidocr_onnxruntime").origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"
LINES, WORDS = 60, 4


@functools.cache
def _words():
    return (ROOT / "LICENSE").read_text().split()


def lines():
    """What is to be read."""
    return [" ".join(_words()[7 * i:7 * i + WORDS]) for i in range(LINES)]


def other_lines(count=128):
    """Lines of later words, for calibration."""
    rest = _words()[7 * LINES:]
    return [" ".join(rest[i:i + WORDS]) for i in np.linspace(0, len(rest) - WORDS, count).astype(int)]


def drawn(text, width=None):
    """A line as the model wants it: 3 equal channels, 48 rows, from -1 to 1; as wide as it is, or cut or filled to a width."""
    font = ImageFont.load_default(size=32)
    image = Image.new("L", (width or int(font.getlength(text)) + 24, 48), 255)
    ImageDraw.Draw(image).text((12, 4), text, font=font, fill=0)
    return np.repeat(np.asarray(image, np.float32)[None, None] / 127.5 - 1, 3, axis=1)


@functools.cache
def alphabet():
    """The characters of classes; 0 is none."""
    [characters] = [p.value for p in onnx.load(MODEL).metadata_props if p.key == "character"]
    return ["", *characters.split("\n"), " "]


def outputs(model):
    """The probabilities of classes in each column, line by line."""
    s = session(model)
    return [s.run(None, {s.get_inputs()[0].name: drawn(text)})[0][0] for text in lines()]


def changes(a, b):
    """The least number of characters to insert, delete or replace."""
    row = range(len(b) + 1)
    for i, x in enumerate(a, 1):
        last, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
    return row[-1]


def read_right(probabilities):
    """The share of characters, spaces aside, that are right in what a model computed of the lines."""
    wrong = total = 0
    for text, p in zip(lines(), probabilities, strict=True):
        best = p.argmax(axis=-1)
        read = "".join(alphabet()[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1])
        text, read = text.replace(" ", ""), read.replace(" ", "")
        wrong, total = wrong + changes(text, read), total + len(text)
    return 1 - wrong / total
