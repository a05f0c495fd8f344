"""Files of external data with other names, and several of them: ONNX Runtime loads them."""
import numpy as np
import onnx

import runtime
from command import TINYGPT, onnxquant


def locations(path):
    """{file: [(offset, length)]} of the external data of a model."""
    found = {}
    for t in onnx.load(path, load_external_data=False).graph.initializer:
        if t.external_data:
            e = {e.key: e.value for e in t.external_data}
            found.setdefault(e["location"], []).append((int(e["offset"]), int(e["length"])))
    return found


def test_shards(tmp_path):
    model, limit = TINYGPT / "model.onnx", 400_000
    one, many = tmp_path / "one.onnx", tmp_path / "many.onnx"
    for out, args in (one, []), (many, ["--external-data", "always", "--external-data-name", "many.onnx_data", "--shard-size", limit]):
        r = onnxquant("-bits", "4", "-block", "32", "--quiet", *args, model, out)
        assert r.status == 0, r.stderr
    files = locations(many)
    assert sorted(files) == ["many.onnx_data", "many.onnx_data_1", "many.onnx_data_2", "many.onnx_data_3"]
    for name, spans in files.items():
        size = (tmp_path / name).stat().st_size
        assert size <= limit
        assert size == max(offset + length for offset, length in spans)
        assert all(offset % 4096 == 0 for offset, length in spans if length >= 1 << 16)
    onnx.checker.check_model(str(many))
    feeds = runtime.random_feeds(onnx.load(one))
    for got, want in zip(runtime.run(many, feeds), runtime.run(one, feeds), strict=True):
        assert np.array_equal(got, want)
