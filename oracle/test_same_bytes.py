"""The same bytes on every run and at every number of threads."""
import pytest

from command import CORPUS, TINYGPT, onnxquant

STRUCTURES = CORPUS / "structures"
MODELS = {
    "tinygpt": TINYGPT / "model.onnx",
    **{c: STRUCTURES / c / "model.onnx" for c in ("transformer", "many_tiny", "ext_many_files", "opset07", "val_nan")},
}
SETTINGS = {
    "default": [],
    "zero-point": ["--bits", "8", "--block", "16", "--zero-point"],
    "external": ["--bits", "4", "--block", "32", "--ops", "all", "--external-data", "always"],
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_same_bytes(model, setting, tmp_path):
    def files(run, *args):
        folder = tmp_path / run
        folder.mkdir()
        r = onnxquant(*SETTINGS[setting], *args, MODELS[model], folder / "out.onnx")
        assert r.status == 0, r.stderr
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    first = files("first")
    assert "out.onnx" in first
    for threads in ("1", "2", "3", "8"):
        assert files("threads" + threads, "--threads", threads) == first, f"{threads} threads"
    assert files("second") == first, "another run"
