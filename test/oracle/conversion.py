"""One run of the command on one model, and what must hold of it whatever the model."""
import copy
import hashlib
from functools import cached_property

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import graphs
import runtime
from command import onnxquant


# Models of the corpus that are compared with what becomes of them when Slice, Split and Concat are computed.
FOLDED = {"behind_slice", "behind_split", "behind_concat"}


class Conversion:
    def __init__(self, source, folder, args):
        self.source, self.args = source, args
        self.path = folder / "out.onnx"
        digest = self._digest()
        self.result = onnxquant(*args, "--no-provenance", source, self.path)
        self.input_kept = self._digest() == digest

    def _digest(self):
        return {p: hashlib.sha256(p.read_bytes()).digest() for p in sorted(self.source.parent.rglob("*")) if p.is_file()}

    @cached_property
    def pair(self):
        """The models before and after, with their external data; nothing to look at if the command failed."""
        if self.result.status:
            pytest.skip("not converted")
        original = graphs.load(self.source)
        if self.source.parent.name in FOLDED:
            graphs.fold(original)
        return graphs.Pair(original, graphs.load(self.path))

    def check_converted(self):
        r = self.result
        assert r.status == 0, r.stderr
        assert self.input_kept, "the input was written to"
        assert not r.stdout, "standard output is for what was asked for"
        data = [self.path.name, self.path.name + ".data"]
        assert {p.name for p in self.path.parent.iterdir()} <= set(data), "other files are left"

    def check_valid(self, full=True, strange=None):
        """The checker passes, and the versions are neither lowered nor raised without need.

        A strange operator is one of the original that the checker refuses; the rest has to pass.
        """
        pair = self.pair
        if strange:
            onnx.checker.check_model(elsewhere(pair.converted, strange))
        else:
            onnx.checker.check_model(self.path, full_check=full)
        before, after = graphs.opset(pair.original), graphs.opset(pair.converted)
        needed = needed_opset(pair)
        assert after == max(before, needed), f"opset {before} became {after}, needed is {needed}"
        for f, g in zip(pair.original.functions, pair.converted.functions, strict=True):
            assert graphs.opset(g) in (graphs.opset(f), after), f"function {g.name} has opset {graphs.opset(g)}, the model {after}"
        least = onnx.helper.OP_SET_ID_VERSION_MAP["ai.onnx", after] if pair.weights else 0
        before, after = pair.original.ir_version, pair.converted.ir_version
        assert after == max(before, least), f"IR {before} became {after}, needed is {least}"

    def check_nothing_lost(self):
        """Names, documentation, metadata, unknown fields, order: all as it was, but for the quantized weights."""
        pair = self.pair
        different = graphs.differences(*pair.undo())
        assert not different, "\n".join(different)
        quantized = {id(w.original) for w in pair.weights}
        made = {name for s in pair.after.values() for name in s.made}
        stored = {name for s in pair.after.values() for name in s.stored}
        nodes = {n.name for s in pair.after.values() for n in s.body.node}
        for scope in pair.before.values():
            read = {name for n in scope.body.node for name in n.input}
            for name in scope.made.keys() & read - scope.stored.keys():
                assert name in made, f"{name!r} is no longer computed"
            for node in scope.body.node:
                assert node.name in nodes or node.op_type == "Constant", f"no node is called {node.name!r} any more"
            for name, tensor in scope.stored.items():
                assert name in stored or id(tensor) in quantized, f"{name!r} is gone"

    def check_weights(self):
        """Each quantized weight is stored once, near its float values, and its float values are not kept for nothing."""
        pair = self.pair
        for w in pair.weights:
            twins = [v for v in pair.weights if v.original is w.original and v.original is not None]
            assert all(v.decoded is twins[0].decoded for v in twins), f"{w.name!r} is stored more than once"
            if w.original is None:
                continue
            x = numpy_helper.to_array(w.original)
            assert w.value.shape == x.shape and w.value.dtype == x.dtype, f"{w.name!r}: {w.value.dtype}{w.value.shape}"
            assert_near(w, x.astype(np.float64))
        readers = {i for s in pair.after.values() for n in s.body.node for i in n.input}
        ends = {o.name for s in pair.after.values() if s.is_graph for o in s.body.output}
        for w in pair.weights:
            assert pair.after[()].tensor(w.name) is None or w.name in readers | ends, f"{w.name!r} is kept for nobody"

    def check_runs(self, feeds, runner="onnxruntime", fused=True):
        """The outputs are those of the float model with the decoded weights put back. Returns them."""
        pair = self.pair
        want = runtime.run(pair.put_back(), feeds, runner)
        got = runtime.run(self.path, feeds, runner, fused)
        runtime.assert_same(got, want)
        return got


def elsewhere(model, operator):
    """The model with an operator in a domain that the checker does not know."""
    moved = copy.deepcopy(model)
    moved.opset_import.add(domain="elsewhere", version=1)
    for node in moved.graph.node:
        if node.op_type == operator:
            node.domain = "elsewhere"
    return moved


def assert_near(weight, x):
    """No value is further from its float one than rounding to a code allows.

    Half a step, and with a zero point, which is rounded itself, a whole one.
    The division by the step is done in the weight's type, whose last bit is
    worth something where codes are large.
    """
    d = weight.decoded
    half = 1.0 if d.zero_point is not None else 0.5
    fraction_bits = {TensorProto.FLOAT16: 10, TensorProto.BFLOAT16: 7}.get(weight.original.data_type, 23)
    slack = 2.0 ** (d.bits - fraction_bits)
    step = np.abs(d.step()).reshape(x.shape)
    over = np.abs(weight.value.astype(np.float64) - x) > (half + slack) * step + np.abs(x) * 2.0 ** -fraction_bits
    at = np.argwhere(over)
    if len(at):
        i = tuple(at[0])
        raise AssertionError(f"{weight.name!r}: {len(at)} values too far off; at {i} {x[i]:.9g} became {weight.value[i]:.9g}, step {step[i]:.3g}")


def needed_opset(pair):
    """The least opset of the default domain that the new DequantizeLinear nodes need."""
    needed = 0
    for w in pair.weights:
        d = w.decoded
        reasons = [(True, 10), (d.scale.ndim == 1, 13), (d.scale.dtype != np.float32, 19),
                   (d.block_size > 0, 21), (d.bits == 4, 21), (d.bits == 2, 25)]
        needed = max(needed, *(version for holds, version in reasons if holds))
    return needed
