"""Prints the newest opset and IR version that ONNX Runtime loads, and what internal/target/target.go says of them."""
import pathlib
import re

import onnxruntime
from onnx import TensorProto, helper

onnxruntime.set_default_logger_severity(4)
MOST = 60


def loads(opset, ir):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return True
    except Exception:  # ONNX Runtime has many types of errors
        return False


opset = max(n for n in range(7, MOST) if loads(n, 8))
ir = max(n for n in range(3, MOST) if loads(17, n))
text = (pathlib.Path(__file__).parents[2] / "internal/target/target.go").read_text()
entry = text[text.index(" on a CPU"):]
told = [int(re.search(rf"{name}:\s+(\d+)", entry).group(1)) for name in ("Opset", "IR")]
print(f"ONNX Runtime {onnxruntime.__version__} loads opsets up to {opset} and IR versions up to {ir}; internal/target/target.go says {told[0]} and {told[1]}")
