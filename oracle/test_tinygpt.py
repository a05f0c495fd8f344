"""How much a trained language model suffers: KL divergence of its next-byte distribution."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import runtime
from command import TINYGPT, onnxquant

# The reference tool's round-to-nearest reaches 0.0069, 0.0093 and 0.0118.
BOUNDS = [("32", [], 0.0070), ("128", [], 0.0095), ("-1", [], 0.0120), ("32", ["--zero-point"], 0.0060)]


def log_probabilities(model, ids):
    logits = runtime.run(model, [ids])[0].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def ids():
    return numpy_helper.to_array(onnx.load_tensor(TINYGPT / "eval_tokens.pb"))[:, :-1]


@pytest.fixture(scope="module")
def float_model(ids):
    return log_probabilities(TINYGPT / "model.onnx", ids)


@pytest.mark.parametrize("block, more, bound", BOUNDS)
def test_divergence(block, more, bound, ids, float_model, tmp_path):
    out = tmp_path / "out.onnx"
    r = onnxquant("-bits", "4", "-block", block, *more, TINYGPT / "model.onnx", out)
    assert r.status == 0, r.stderr
    q = log_probabilities(out, ids)
    divergence = (np.exp(float_model) * (float_model - q)).sum(-1).mean()
    assert 0 < divergence <= bound
