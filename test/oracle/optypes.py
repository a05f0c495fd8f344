"""Element types that operators take and give, from the schemas of onnx and ONNX Runtime.

As a script it writes internal/optypes/optypes.txt; test_optypes.py holds the file.

    python3 test/oracle/optypes.py --write
"""
import pathlib
import sys

import onnx.defs
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as runtime

FILE = pathlib.Path(__file__).parents[2] / "internal" / "optypes" / "optypes.txt"
FLOATS = {"tensor(float16)": "h", "tensor(bfloat16)": "b", "tensor(float)": "f", "tensor(double)": "d"}

HEAD = f"""\
# Element types of operators, from onnx {onnx.__version__} and ONNX Runtime {onnxruntime.__version__}: make optypes.
#
# domain operator since inputs > outputs variables
#
# An input or output is an element type or a variable of the operator, with * behind it if it
# may repeat, ** if each repetition has a type of its own. A variable's floating point types:
# h float16, b bfloat16, f float32, d float64; s: it may also be a sequence or optional.
#
# Then the attributes, with a dot: i INT, f FLOAT, s STRING, t TENSOR, g GRAPH, p TYPE_PROTO, e SPARSE_TENSOR,
# in capitals if there may be several; ! if the attribute is required.
"""

LETTERS = {"INT": "i", "FLOAT": "f", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "TYPE_PROTO": "p", "SPARSE_TENSOR": "e"}


def attributes(schema):
    """The attributes of an operator: .to=i!"""
    def letter(kind):
        return LETTERS[kind] if kind in LETTERS else LETTERS[kind.removesuffix("S")].upper()
    return [f".{name}={letter(str(a.type).split('.')[-1])}{'!' * a.required}" for name, a in sorted(schema.attributes.items())]


def signature(name, since, inputs, outputs, variables, attributes):
    names = {}

    def params(ps):
        out = []
        for typ, variadic, same in ps:
            allowed = variables.get(typ, [typ])
            if len(allowed) == 1 and allowed[0].startswith("tensor("):
                text = allowed[0].removeprefix("tensor(").removesuffix(")")
            elif typ not in variables:
                text = "other"
            else:
                names[typ] = "".join(FLOATS[t] for t in FLOATS if t in allowed) + "s" * any(not t.startswith("tensor(") for t in allowed)
                text = "$" + typ
            out.append(text + ("*" if variadic else "") + ("*" if variadic and not same else ""))
        return ",".join(out) or "-"

    left, right = params(inputs), params(outputs)
    bound = [f"{v}={f}" for v, f in names.items()]
    return " ".join([name, str(since), left, ">", right, *bound, *attributes])


def standard():
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain not in ("", "ai.onnx.ml"):
            continue
        variables = {c.type_param_str: list(c.allowed_type_strs) for c in s.type_constraints}
        ps = lambda ps: [(p.type_str, str(p.option).endswith("Variadic"), p.is_homogeneous) for p in ps]
        yield s.domain or "onnx", signature(s.name, s.since_version, ps(s.inputs), ps(s.outputs), variables, attributes(s))


def contrib():
    for s in runtime.get_all_operator_schema():
        if s.domain != "com.microsoft":
            continue
        variables = {c.type_param_str: list(c.allowed_type_strs) for c in s.type_constraints}
        ps = lambda ps: [(p.typeStr, str(p.option).endswith("Variadic"), p.isHomogeneous) for p in ps]
        yield s.domain, signature(s.name, s.since_version, ps(s.inputs), ps(s.outputs), variables, attributes(s))


def text():
    lines = sorted({f"{domain} {line}" for source in (standard(), contrib()) for domain, line in source},
                   key=lambda l: (*l.split()[:2], int(l.split()[2])))
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(text())
    elif FILE.read_text() != text():
        sys.exit(f"{FILE} is not what the schemas say: make optypes")
