"""The models whose accuracy is measured, and how: language models on text, a text recognizer on drawn lines."""
import functools
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

import ocr
import runtime
from command import ROOT

BUILD = ROOT / "build" / "accuracy"
LEAST = 1e-12  # probabilities below count as this


@dataclass(frozen=True)
class Score:
    kl: float  # mean KL divergence from the float model's distributions, in nats
    top1: float  # how often the most likely class is the float model's
    read: float | None = None  # the share of characters that are read right


@dataclass(frozen=True)
class Language:
    """A model of the next byte: its folder has the tokens to be scored and others for calibration."""
    name: str
    title: str
    own_samples = True
    labels = False

    @property
    def path(self):
        return ROOT / "testmodels" / self.name / "model.onnx"

    @property
    def calibration(self):
        return ROOT / "testmodels" / self.name / "calib_ids.npz"

    @functools.cached_property
    def expected(self):
        return self._outputs(self.path)

    def _outputs(self, path):
        ids = numpy_helper.to_array(onnx.load_tensor(self.path.parent / "eval_tokens.pb"))[:, :-1]
        logits = runtime.run(path, [ids])[0].astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def score(self, path):
        return compare([self.expected], [self._outputs(path)])


@dataclass(frozen=True)
class Recognizer:
    """PP-OCRv4's recognizer of text, from the package rapidocr-onnxruntime."""
    name: str
    title: str
    own_samples = False
    labels = True
    path = ocr.MODEL

    @property
    def calibration(self):
        """Lines of other words than those that are scored, cut to one width."""
        path = BUILD / f"{self.name}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = [ocr.drawn(text, width=320)[0] for text in ocr.other_lines()]
            np.savez_compressed(path, x=np.stack(drawn))
        return path

    @functools.cached_property
    def expected(self):
        return ocr.outputs(self.path)

    def score(self, path):
        got = ocr.outputs(path)
        logs = lambda outputs: [np.log(np.maximum(p.astype(np.float64), LEAST)) for p in outputs]
        return compare(logs(self.expected), logs(got), ocr.read_right(got))


def compare(want, got, read=None):
    """Of logarithms of probabilities, the last axis being classes."""
    kl = np.concatenate([(np.exp(p) * (p - q)).sum(-1).reshape(-1) for p, q in zip(want, got, strict=True)])
    same = np.concatenate([(p.argmax(-1) == q.argmax(-1)).reshape(-1) for p, q in zip(want, got, strict=True)])
    return Score(float(kl.mean()), float(same.mean()), read)


def stored(path):
    """The bytes of all tensors that a model stores."""
    def tensors(graph):
        yield from graph.initializer
        for node in graph.node:
            for a in node.attribute:
                if a.HasField("t"):
                    yield a.t
                for sub in [a.g, *a.graphs]:
                    yield from tensors(sub)
    return sum(len(t.raw_data) or numpy_helper.to_array(t).nbytes for t in tensors(onnx.load(path).graph))


MODELS = [
    Language("tinygpt", "GPT, trained on Go source"),
    Language("tinydoc", "Llama's shape, trained on Python's documentation"),
    Recognizer("recognizer", "PP-OCRv4, text recognizer"),
]
