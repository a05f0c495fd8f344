"""--target qnn in Qualcomm's runtime, whose library for Linux x86-64 emulates the processor. It is not part of the
requirements, for its size: make consumers installs it (Python 3.11 or later, glibc 2.35)."""
import numpy as np
import onnx
import onnxruntime
import pytest

import static
import static_models
from command import onnxquant

qnn = pytest.importorskip("onnxruntime_qnn")

# "image" has a batch of unknown size, for which QNN has no nodes. Outputs of "large_bias" are noise on a CPU, too.
MODELS = {name: m for name, m in static_models.models() if name not in ("image", "large_bias")}
# The first two are wrong, as those of get_qnn_qdq_config are, which have the same bytes; of equal codes ArgMax takes another one.
NOT_COMPARED = {("cumsum", "uint8"), ("batch", "uint8"), ("arg", "uint8")}


@pytest.fixture(scope="module")
def device():
    onnxruntime.register_execution_provider_library("QNNExecutionProvider", qnn.get_library_path())
    return [d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNNExecutionProvider"]


@pytest.mark.parametrize("activations", ["uint8", "uint16"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_on_qnn(name, activations, device, tmp_path):
    """QNN takes all nodes, and computes what the CPU does."""
    plain, ours = tmp_path / "plain.onnx", tmp_path / "ours.onnx"
    onnx.save(MODELS[name], plain)
    feed = static_models.feed(MODELS[name], 0)
    ranges, _ = static.calibrate(str(plain), [feed], tmp_path)
    done = onnxquant("--quiet", "--activations", "static", "--ranges", ranges, "--target", "qnn", "--activation-type", activations, plain, ours)
    assert done.status == 0, done.stderr
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(device, {"backend_path": qnn.get_qnn_htp_path()})
    got = onnxruntime.InferenceSession(str(ours), options).run(None, feed)
    if (name, activations) in NOT_COMPARED:
        return
    for a, b in zip(got, static.run(ours, feed), strict=True):
        assert np.abs(a.astype(np.float64) - b).max() <= 0.05 * np.abs(b).max()
