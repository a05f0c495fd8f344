"""At which opsets ONNX Runtime runs each operator of ai.onnx: internal/target/kernels_ort.txt, and for opsets that only
a newer version loads, kernels_ort_next.txt. Which of them run with bfloat16: internal/target/bfloat16_ort.txt. Which do not run with float16: spec/float_ops_ort.txt.

An operator runs if the registry of ONNX Runtime has a kernel for its definition in force, or if
a model of one such node loads: then ONNX Runtime puts the body of a function in its place,
which needs other kernels, and at some opsets has none for them. As a script it prints the table;
make kernels writes it. With a newer ONNX Runtime, --next writes the table of its opsets, and says where it runs less
than the pinned one at the others.

    python test/oracle/kernels.py [--write] [--next]
"""
import sys
from collections import defaultdict

import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import defs, helper
from onnxruntime.capi import onnxruntime_pybind11_state as native

from command import ROOT

FILE = ROOT / "internal/target/kernels_ort.txt"
HALVES = ROOT / "internal/target/bfloat16_ort.txt"
FLOAT_OPS = ROOT / "spec/float_ops_ort.txt"
NEXT = ROOT / "internal/target/kernels_ort_next.txt"
OLDEST, NEWEST = 7, 26  # the opsets that the command raises from, and that the pinned ONNX Runtime loads
LAST = 28  # that a newer one loads

# Nodes that ONNX Runtime does not look a kernel up for.
BUILT_IN = {"Constant"}
# Operators that only sequences of their own make sense of, all at one opset; one whose attributes depend on each other.
NOT_ASKED = {"SequenceMap", "LinearAttention"}

BFLOAT16 = "tensor(bfloat16)"
ENDLESS = 2**31 - 1
NO_KERNEL = "Could not find an implementation"
TYPES = {"tensor(float)": T.FLOAT, "tensor(int64)": T.INT64, "tensor(bool)": T.BOOL, "tensor(string)": T.STRING, "tensor(uint8)": T.UINT8}
INTEGERS = {"tensor(int64)": T.INT64, "tensor(uint8)": T.UINT8, "tensor(bool)": T.BOOL, "tensor(int32)": T.INT32}
ATTRIBUTES = {onnx.AttributeProto.INT: 1, onnx.AttributeProto.FLOAT: 1.0, onnx.AttributeProto.STRING: b"x", onnx.AttributeProto.INTS: [1, 1]}


def registered():
    """The opsets of the kernels of each operator, first and last."""
    kernels = defaultdict(set)
    for k in native.get_all_opkernel_def():
        if k.domain == "" and k.provider == "CPUExecutionProvider":
            kernels[k.op_name].add(k.version_range)
    return kernels


def has_kernel(ranges, since):
    """A kernel without an end is for the definition at its first opset, and no later one."""
    return any(first == since or first < since <= last != ENDLESS for first, last in ranges)


def node_model(schema, opset, types=TYPES):
    """A model of one node, whose inputs are the graph's, with as little as the schema allows."""
    def type_of(value):
        allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == value.type_str), [value.type_str])
        return next(types[t] for t in types if t in allowed)

    inputs = [helper.make_tensor_value_info(f"i{i}", type_of(v), None) for i, v in enumerate(schema.inputs[:max(schema.min_input, len(schema.inputs) > 0)])]
    outputs = [helper.make_value_info(f"o{i}", onnx.TypeProto()) for i in range(schema.min_output)]
    attributes = {a.name: ATTRIBUTES[a.type.value] for a in schema.attributes.values() if a.required}
    node = helper.make_node(schema.name, [v.name for v in inputs], [v.name for v in outputs], **attributes)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=min(helper.find_min_ir_version_for(imports), 13))


def loads(model):
    try:
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except native.NotImplemented as e:
        if NO_KERNEL not in str(e):
            raise
        return False
    return True


def schema_at(op, opset):
    """The definition in force, or None."""
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def runs(op, opset, ranges):
    schema = schema_at(op, opset)
    if schema is None:  # ONNX Runtime has definitions of its own, such as LayerNormalization before opset 17
        return any(first <= opset <= last != ENDLESS for first, last in ranges)
    return op in BUILT_IN or has_kernel(ranges, schema.since_version) or loads(node_model(schema, opset))


def spans(numbers):
    """Runs of consecutive numbers: 10-21."""
    text, first = [], None
    for n in numbers:
        first = n if first is None else first
        if n + 1 not in numbers:
            text.append(f"{first}-{n}")
            first = None
    return text


def table(first=OLDEST, last=NEWEST):
    kernels = registered()
    lines = [f"# ONNX Runtime {ort.__version__} on a CPU: the opsets, from {first} to {last}, at which it runs each operator of ai.onnx.",
             "# Made by make kernels (test/oracle/kernels.py)."]
    for op in sorted({s.name for s in defs.get_all_schemas_with_history() if s.domain == ""} - NOT_ASKED):
        if any(schema_at(op, o) for o in range(first, last + 1)):
            lines.append(" ".join([op, *spans([o for o in range(first, last + 1) if runs(op, o, kernels[op])])]))
    return "\n".join(lines) + "\n"


def takes_bfloat16(op, opset):
    return any(BFLOAT16 in c.allowed_type_strs for c in schema_at(op, opset).type_constraints)


def halves():
    """Operators that run with bfloat16: the registry says so or, of those without any kernel, a model loads."""
    kernels = defaultdict(set)
    for k in native.get_all_opkernel_def():
        if k.provider == "CPUExecutionProvider":
            kernels[f"{k.domain}.{k.op_name}".removeprefix(".")].update(t for allowed in k.type_constraints.values() for t in allowed)
    lines = [f"# ONNX Runtime {ort.__version__} on a CPU: the operators of ai.onnx and com.microsoft that it runs with bfloat16.",
             "# Made by make kernels (test/oracle/kernels.py)."]
    for line in FILE.read_text().splitlines():
        op, *opsets = line.split()
        if op == "#" or not opsets:
            continue
        newest = int(opsets[-1].split("-")[1])
        if takes_bfloat16(op, newest) and (op in BUILT_IN or any(BFLOAT16 in t for t in kernels.get(op, ())) or op not in kernels and
                                           loads(node_model(schema_at(op, newest), newest, {BFLOAT16: T.BFLOAT16} | TYPES))):
            lines.append(op)
    lines += sorted(op for op, types in kernels.items() if op.startswith("com.microsoft.") and BFLOAT16 in types)
    return "\n".join(lines) + "\n"


# Attributes that name the type of an output.
TYPE_ATTRIBUTES = {"dtype", "output_datatype", "output_dtype", "to"}


def made(schema, opset, dtype, types):
    """A model of one node that makes a type, from inputs of the types."""
    model = node_model(schema, opset, types)
    node = model.graph.node[0]
    named = TYPE_ATTRIBUTES & set(schema.attributes)
    kept = [a for a in node.attribute if a.name not in named]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, dtype) for name in named)])
    return model


def runs_as(schema, opset, dtype, types):
    """Whether a node loads; False if there is no such node."""
    try:
        ort.InferenceSession(made(schema, opset, dtype, types).SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # of node_model, or any that ONNX Runtime has
        return False
    return True


def float_ops():
    """Operators that take float16, and load with float32 but not with float16: ONNX Runtime inserts no Casts."""
    found = []
    for op in sorted({s.name for s in defs.get_all_schemas_with_history() if s.domain == ""} - NOT_ASKED):
        for opset in range(OLDEST, NEWEST + 1):
            schema = schema_at(op, opset)
            if schema is None or not any("tensor(float16)" in c.allowed_type_strs for c in schema.type_constraints):
                continue
            inputs = [(TYPES, {"tensor(float16)": T.FLOAT16} | TYPES), (INTEGERS, INTEGERS)]
            if any(runs_as(schema, opset, T.FLOAT, float32) and not runs_as(schema, opset, T.FLOAT16, float16) for float32, float16 in inputs):
                found.append(op)
                break
    lines = [f"# ONNX Runtime {ort.__version__} on a CPU: operators of ai.onnx that it runs with float32 but not with float16.",
             "# Made by make kernels (test/oracle/kernels.py)."]
    return "\n".join(lines + found) + "\n"


def lost():
    """Operators that the pinned ONNX Runtime runs at an opset where this one does not."""
    at = {line.split()[0]: line for line in table().splitlines()}
    return [line for line in FILE.read_text().splitlines() if not line.startswith("#") and at.get(line.split()[0]) != line]


if __name__ == "__main__":
    ort.set_default_logger_severity(4)
    if "--next" in sys.argv:
        NEXT.write_text(table(NEWEST + 1, LAST))
        sys.exit("\n".join(["other opsets than with the pinned version:", *lost()]) if lost() else 0)
    if "--write" in sys.argv:
        FILE.write_text(table())
        HALVES.write_text(halves())
        FLOAT_OPS.write_text(float_ops())
    else:
        print(table() + halves() + float_ops(), end="")
