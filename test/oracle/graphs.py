"""Compares a converted model with the float model it was made from.

Nodes are matched by the graph they stand in and the name of their first
output. Whatever reads, in the converted model, a value that is computed from
stored codes reads a weight that was quantized.
"""
import copy
import os
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx import AttributeProto, helper, numpy_helper

import decode


def load(path):
    """A model with its external data. Where no length is given, the shape says it."""
    model = onnx.load(path, load_external_data=False)
    for scope in scopes(model).values():
        for t in scope.stored.values():
            if t.external_data and not any(e.key == "length" for e in t.external_data):
                width = helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
                t.external_data.add(key="length", value=str(width * int(np.prod(t.dims, dtype=np.int64))))
    onnx.load_external_data_for_model(model, os.path.dirname(path))
    return model


class Scope:
    """A graph or function body, and the values that it defines or that its surroundings do."""

    def __init__(self, body, parent=None):
        self.body, self.parent = body, parent
        self.is_graph = isinstance(body, onnx.GraphProto)
        self.stored = {t.name: t for t in body.initializer} if self.is_graph else {}
        self.made = {}
        for node in body.node:
            self.made.update((o, node) for o in node.output if o)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.stored[node.output[0]] = node.attribute[0].t
        self.arguments = {v.name if self.is_graph else v for v in body.input} - set(self.stored)

    def home(self, name):
        """The scope that defines a value, or None."""
        scope = self
        while scope and name not in scope.made and name not in scope.stored:
            if name in scope.arguments:
                return None
            scope = scope.parent
        return scope

    def tensor(self, name):
        home = self.home(name)
        return home.stored.get(name) if home else None


def scopes(model):
    """Every graph and function body by its path: the nodes and attributes that lead to it."""
    found = {}

    def walk(path, body, parent):
        scope = found[path] = Scope(body, parent)
        for node in body.node:
            for attribute in node.attribute:
                subgraphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
                for i, g in enumerate(subgraphs):
                    walk(path + ((key(node), attribute.name, i),), g, scope)
    walk((), model.graph, None)
    for f in model.functions:
        walk((("function", f"{f.domain}.{f.name}", f.overload),), f, None)
    return found


def key(node):
    """What a node is recognized by: its first output."""
    return next(filter(None, node.output), "")


def domain(name):
    return "" if name == "ai.onnx" else name


def same_operator(a, b):
    return a.op_type == b.op_type and domain(a.domain) == domain(b.domain)


def opset(model):
    """The version of the default domain, 0 if the model imports none."""
    return next((o.version for o in model.opset_import if domain(o.domain) == ""), 0)


@dataclass
class Weight:
    """A weight that was quantized: its float tensor where it was a stored one, and what stands for it now."""
    name: str
    original: onnx.TensorProto | None
    decoded: decode.Decoded
    value: np.ndarray
    uses: list = field(default_factory=list)  # (scope path, node's key, input index)


def fold(model):
    """Stores what the Slices, Splits and Concats of the main graph make of stored tensors, in place of these."""
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    for node in list(graph.node):
        if node.op_type in ("Slice", "Split", "Concat") and all(i in stored for i in node.input):
            inputs = {i: numpy_helper.to_array(stored[i]) for i in node.input}
            for name, value in zip(node.output, ReferenceEvaluator(node).run(None, inputs), strict=True):
                stored[name] = numpy_helper.from_array(value, name)
            graph.node.remove(node)
    read = {i for n in graph.node for i in n.input}
    del graph.initializer[:]
    graph.initializer.extend(t for name, t in stored.items() if name in read)


class Pair:
    """A float model and what it was converted to. Both hold their external data."""

    def __init__(self, original, converted):
        self.original, self.converted = original, converted
        self.before, self.after = scopes(original), scopes(converted)
        self.raised = opset(original) != opset(converted)
        self.weights = []
        self._decoded = {}
        self._find()

    def twin(self, scope):
        """(path, scope) of the original that a scope of the converted model comes from. An
        adapter for another opset may wrap a graph in a new one; then the nodes tell."""
        for path, s in self.after.items():
            if s is scope and path in self.before:
                return path, self.before[path]
        for path, s in self.before.items():
            if self.raised and s.made.keys() & scope.made.keys():
                return path, s
        return None, None

    def _find(self):
        for scope in self.after.values():
            path, twin_scope = self.twin(scope)
            if twin_scope is None:
                assert self.raised, "a graph is new"
                continue
            for node in scope.body.node:
                twin = twin_scope.made.get(key(node))
                if twin is None or not same_operator(node, twin):
                    continue
                for i, (old, new) in enumerate(zip(twin.input, node.input)):
                    self._use(scope, twin_scope, old, new, (path, key(node), i))
            for old in twin_scope.body.output:
                name = old.name if scope.is_graph else old
                self._use(scope, twin_scope, name, name, (path, None, name))

    def _use(self, scope, twin_scope, old, new, use):
        got = self.decoded(scope, new)
        if got is None:
            return
        d, value = got
        for w in self.weights:
            if w.name == old and w.decoded is d:
                w.uses.append(use)
                return
        self.weights.append(Weight(old, twin_scope.tensor(old), d, value, [use]))

    def decoded(self, scope, name):
        """(Decoded, value) if the converted model computes name from codes that the original does not have."""
        home = scope.home(name)
        node = home.made.get(name) if home else None
        if node is None:
            return None
        _, twin = self.twin(home)
        if twin and name in twin.made and name not in twin.stored:
            return None  # the original computes it too
        if id(node) not in self._decoded:
            self._decoded[id(node)] = self._compute(home, node)
        return self._decoded[id(node)]

    def _compute(self, scope, node):
        if node.op_type == "DequantizeLinear":
            tensors = [scope.tensor(i) for i in node.input if i]
            assert all(tensors), f"{node.name} does not decode stored tensors"
            d = decode.Decoded(node, tensors)
            return d, d.value
        inner = self.decoded(scope, node.input[0]) if node.input else None
        if inner is None:
            return None
        d, value = inner
        if node.op_type == "Cast":
            return d, value.astype(helper.tensor_dtype_to_np_dtype(node.attribute[0].i))
        if node.op_type == "Identity":
            return inner
        if node.op_type == "Reshape":
            return d, value.reshape(numpy_helper.to_array(scope.tensor(node.input[1])))
        if node.op_type == "Transpose":
            return d, value.transpose(next((list(a.ints) for a in node.attribute if a.name == "perm"), None))
        raise AssertionError(f"{node.op_type} {node.name!r} between a DequantizeLinear and its reader")

    def put_back(self):
        """The original with every use of a quantized weight reading the decoded values instead."""
        model = copy.deepcopy(self.original)
        model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs
        where = scopes(model)
        for number, w in enumerate(self.weights):
            name = f"decoded {number}"
            for path, node, index in w.uses:
                scope = where[path]
                if node is None:  # an output of the graph: the tensor itself
                    scope.stored[index].CopyFrom(numpy_helper.from_array(w.value, index))
                    continue
                scope.made[node].input[index] = name
                if name not in scope.stored:
                    scope.stored[name] = _store(scope, numpy_helper.from_array(w.value, name))
        return model

    def undo(self):
        """(original, converted) without what differs because weights were quantized.

        Both lose the weights; the converted one loses the nodes and tensors
        that decode them, and its nodes read again what they read before. What
        remains is equal if nothing else was changed. Where the opset was
        raised, nodes may rightly differ: then they are left out.
        """
        a, b = copy.deepcopy(self.original), copy.deepcopy(self.converted)
        before, after = scopes(a), scopes(b)
        for w in self.weights:
            for path, node, index in w.uses:
                if node is not None and not self.raised:
                    after[path].made[node].input[index] = w.name
        for path, scope in sorted(before.items(), key=lambda item: -len(item[0])):  # the inner ones first
            twin = after.get(path, Scope(type(scope.body)()))
            gone = {n for n in scope.stored if twin.tensor(n) is None}
            for n in scope.body.node:
                if n.domain and not domain(n.domain):  # the output spells it ""
                    n.ClearField("domain")
            for body in (scope.body, twin.body):
                _replace(body.node, [n for n in body.node if not self.raised and key(n) in scope.made and key(n) not in gone])
                if scope.is_graph:
                    _drop(body, set(scope.stored) - gone, gone)
        if a.ir_version < 4 <= b.ir_version:  # initializers had to be inputs, as constants
            stored = {t.name for t in a.graph.initializer}
            _replace(a.graph.input, [v for v in a.graph.input if v.name not in stored])
        for m in (a, b):
            m.ir_version = 0
            for owner in (m, *m.functions):
                _replace(owner.opset_import, [o for o in owner.opset_import if domain(o.domain)])
            if self.raised:
                _replace(m.functions, [])
            for tensor in list(_tensors(m)):
                _canonical(tensor)
        return a, b


def _tensors(message):
    """Every tensor below a message."""
    for f, value in message.ListFields():
        if f.message_type:
            for m in value if f.is_repeated else [value]:
                if isinstance(m, onnx.TensorProto):
                    yield m
                else:
                    yield from _tensors(m)


def _canonical(tensor):
    """Puts the values of a tensor into raw_data: they count, not the field that holds them."""
    tensor.ClearField("data_location")
    if tensor.data_type != onnx.TensorProto.STRING:
        values = numpy_helper.to_array(tensor)
        for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(name)
        tensor.raw_data = numpy_helper.from_array(values).raw_data


def _store(scope, tensor):
    """Adds a tensor to a scope: as an initializer, or in a function as a Constant node."""
    if scope.is_graph:
        scope.body.initializer.append(tensor)
        return scope.body.initializer[-1]
    scope.body.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    return scope.body.node[0].attribute[0].t


def _replace(repeated, items):
    items = [copy.deepcopy(i) for i in items]
    del repeated[:]
    repeated.extend(items)


def _drop(graph, names, gone):
    """Leaves the initializers called names, and nothing that speaks of those that are gone."""
    _replace(graph.initializer, [t for t in graph.initializer if t.name in names])
    _replace(graph.input, [v for v in graph.input if v.name not in gone])
    _replace(graph.value_info, [v for v in graph.value_info if v.name not in gone])
    _replace(graph.quantization_annotation, [q for q in graph.quantization_annotation if q.tensor_name not in gone])


def differences(a, b, path=""):
    """The paths of the fields in which two messages differ."""
    if a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True):
        return []
    found = []
    fields = {f.name: f for m in (a, b) for f, _ in m.ListFields()}
    for name, f in fields.items():
        x, y = getattr(a, name), getattr(b, name)
        if f.is_repeated and f.message_type:
            if len(x) != len(y):
                found.append(f"{path}{name}: {len(x)} became {len(y)}")
            else:
                for i, (p, q) in enumerate(zip(x, y)):
                    found += differences(p, q, f"{path}{name}[{i}].")
        elif f.message_type:
            found += differences(x, y, f"{path}{name}.")
        elif x != y:
            found.append(f"{path}{name}: {str(x)[:60]!r} became {str(y)[:60]!r}")
    return found or [f"{path}: unknown fields differ"]
