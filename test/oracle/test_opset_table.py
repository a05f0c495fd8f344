"""The table of operators in internal/opset against the schemas of the onnx package."""
from collections import defaultdict

import onnx
import pytest
from onnx import defs, helper

import opsets

SCHEMAS = defaultdict(list)
for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
    if schema.domain == "":
        SCHEMAS[schema.name].append(schema)

STEPS = [(a, b) for history in SCHEMAS.values() for a, b in zip(history, history[1:]) if b.since_version > opsets.OLDEST]


def test_newest():
    assert defs.onnx_opset_version() == opsets.NEWEST


def test_no_operator_is_made_up():
    assert opsets.table().keys() <= SCHEMAS.keys()


@pytest.mark.parametrize("op", sorted(SCHEMAS))
def test_every_version_is_declared(op):
    assert sorted(opsets.table().get(op, {})) == [s.since_version for s in SCHEMAS[op]]


def attributes(schema):
    """Name: type and default. Those that must be given have no default."""
    values = {}
    for a in schema.attributes.values():
        given = a.default_value.type != onnx.AttributeProto.UNDEFINED
        values[a.name] = (a.type, helper.get_attribute_value(a.default_value) if given else None)
    return values


def types(schema, value):
    for constraint in schema.type_constraints:
        if constraint.type_param_str == value.type_str:
            return set(constraint.allowed_type_strs)
    return {value.type_str}


@pytest.mark.parametrize("old, new", STEPS, ids=lambda s: f"{s.name}-{s.since_version}")
def test_a_step_without_an_adapter_takes_every_node(old, new):
    """Such a step removes and changes nothing that a node can have: it only adds what may be left out."""
    if opsets.table()[new.name][new.since_version]:
        pytest.skip("has an adapter")
    assert not new.deprecated
    before, after = attributes(old), attributes(new)
    assert before.items() <= after.items(), "attributes removed or changed"
    added = [new.attributes[name] for name in after.keys() - before.keys()]
    assert not any(a.required for a in added), "attributes that must be given"
    for was, now in ((old.inputs, new.inputs), (old.outputs, new.outputs)):
        for i, (w, n) in enumerate(zip(was, now)):
            assert types(old, w) <= types(new, n), f"types of value {i} removed"
            assert n.option == w.option or n.option == defs.OpSchema.FormalParameterOption.Optional, f"value {i} differs"
        assert len(was) <= len(now), "values removed"
        assert all(n.option == defs.OpSchema.FormalParameterOption.Optional for n in now[len(was):]), "values that must be given"


def test_defaults_of_attributes():
    """Those that are numbers or words, and never changed."""
    want = {}
    for op, history in SCHEMAS.items():
        values = defaultdict(set)
        for schema in history:
            for name, (_, default) in attributes(schema).items():
                if isinstance(default, (int, float, bytes)):
                    values[name].add(default.decode() if isinstance(default, bytes) else f"{default:.9g}")
        words = [f"{name}={value.pop()}" for name, value in sorted(values.items()) if len(value) == 1]
        if words:
            want[op] = words
    assert opsets.defaults() == want
