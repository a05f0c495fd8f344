"""How much the small language model suffers: KL divergence of its next-byte distribution."""
import functools

import numpy as np
import onnx
from onnx import numpy_helper

import runtime
from command import TINYGPT


def divergence(model):
    """The mean over the evaluation text, in nats."""
    p, q = _float_model(), log_probabilities(model)
    return (np.exp(p) * (p - q)).sum(-1).mean()


def log_probabilities(model):
    logits = runtime.run(model, [_ids()])[0].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@functools.cache
def _float_model():
    return log_probabilities(TINYGPT / "model.onnx")


@functools.cache
def _ids():
    return numpy_helper.to_array(onnx.load_tensor(TINYGPT / "eval_tokens.pb"))[:, :-1]
