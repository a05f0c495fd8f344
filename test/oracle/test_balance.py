"""Factors of channels before static activations: errors in ONNX Runtime, and what verify says when they are wrong."""
import base64
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

import balanced_models
from command import onnxquant
from runtime import session

KINDS = {"convolutions": balanced_models.convolutions, "attention": balanced_models.attention}


class Feeds(CalibrationDataReader):
    def __init__(self, rows):
        self.left = [{"x": row[None]} for row in rows]

    def get_next(self):
        return self.left.pop(0) if self.left else None


class Case:
    """A graph with outliers, data, and inputs that calibration has not seen."""

    def __init__(self, folder, kind, seed):
        rng = np.random.default_rng(seed)
        m, shape = KINDS[kind](rng)
        self.plain, self.data, self.out = folder / "m.onnx", folder / "x.npz", folder / "out.onnx"
        onnx.save(m, self.plain)
        self.rows, self.unseen = (rng.normal(size=(n, *shape)).astype(np.float32) for n in (32, 16))
        np.savez(self.data, x=self.rows)

    def convert(self, *flags):
        done = onnxquant("--activations", "static", "--calib", self.data, "--force", *flags, self.plain, self.out, timeout=300)
        assert done.status == 0, done.stderr
        return done

    def verify(self, path=None):
        done = onnxquant("verify", "--json", "--inputs", self.data, self.plain, path or self.out, timeout=120)
        return json.loads(done.stdout)

    def error(self, path=None):
        """The squared error of the outputs on unseen inputs, over their square."""
        want, got = (session(p).run(None, {"x": self.unseen})[0] for p in (self.plain, path or self.out))
        return float(((got - want) ** 2).sum() / (want ** 2).sum())

    def theirs(self, **options):
        path = self.out.with_name("theirs.onnx")
        quantize_static(str(self.plain), str(path), Feeds(self.rows), quant_format=QuantFormat.QDQ, **options)
        return self.error(path)


@pytest.fixture
def case(tmp_path):
    return lambda kind, seed: Case(tmp_path, kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_balance(case, kind):
    """Outputs are nearer to the float model's; verify applies the factors to the float model and agrees."""
    c = case(kind, 1)
    done = c.convert("--json")
    report = json.loads(done.stdout)
    static = report["plan"]["static_activations"]["balance"]
    assert 0 < static["balanced"] <= static["of"] and static["loss_after"]["damage"] < static["loss_before"]["damage"]
    checked = c.verify()
    assert checked["passed"] and checked["structure"]["balanced"] == static["balanced"] and checked["execution"]["folded_sqnr_db"] > 80
    balanced = c.error()
    c.convert("--no-balance")
    assert balanced < c.error() and balanced < c.theirs()
    assert not c.verify()["structure"].get("balanced")


def changed(path, change):
    """A copy of a model without its record, after a change."""
    m = onnx.load(path)
    kept = [p for p in m.metadata_props if p.key == "onnxquant.balance"]
    del m.metadata_props[:]
    m.metadata_props.extend(kept)
    change(m, m.metadata_props[0])
    to = path.with_name("changed.onnx")
    onnx.save(m, to)
    return to


def factors(record, change):
    """Changes the exponents of the place with the largest one."""
    all = {k: np.frombuffer(base64.b64decode(v), np.int8).copy() for k, v in json.loads(record.value).items()}
    change(all, max(all, key=lambda k: np.abs(all[k]).max()))
    record.value = json.dumps({k: base64.b64encode(v.tobytes()).decode() for k, v in all.items()})


def test_changed(case):
    """A factor on one side alone fails, and so does another record, or none."""
    c = case("convolutions", 1)
    c.convert()
    assert c.verify(changed(c.out, lambda m, record: None))["passed"]

    def larger(all, at):
        all[at][np.abs(all[at]).argmax()] //= 2

    def other(all, at):
        all["nowhere"] = all.pop(at)

    def halved(m, record):
        """Codes of a channel that a weight multiplies."""
        at = next(t for t in m.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4 and t.dims[1] > 3)
        codes = numpy_helper.to_array(at).copy()
        codes[:, np.abs(codes.astype(int)).sum(axis=(0, 2, 3)).argmax()] //= 2
        at.CopyFrom(numpy_helper.from_array(codes, at.name))

    for change in (lambda m, r: factors(r, larger), lambda m, r: factors(r, other), halved, lambda m, r: m.metadata_props.remove(r)):
        assert not c.verify(changed(c.out, change))["passed"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_outliers(tmp_path, kind):
    """The median error is at most half of quantize_static's. Prints the table of docs/activations.md."""
    rows = []
    for seed in range(50):
        c = Case(tmp_path, kind, seed)
        row = [c.theirs(), c.theirs(per_channel=True)]
        for flags in (["--no-balance"], []):
            c.convert(*flags)
            row.append(c.error())
        rows.append(row)
    medians = np.median(rows, axis=0)
    print(kind, *(f"{m:.2g}" for m in medians), f"better than both in {np.mean([r[3] < min(r[:2]) for r in rows]):.0%}")
    assert medians[3] <= min(medians[:2]) / 2
