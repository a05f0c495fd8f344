"""Decoders as optimum's merge_decoders makes them of two: an If whose branches hold all nodes."""
import onnx
from onnx import TensorProto, helper


def renamed(nodes, kept, prefix):
    """Copies of nodes whose values and names begin with prefix, but for the values that are kept."""
    name = lambda v: v if v == "" or v in kept else prefix + v
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        copy.input[:] = [name(v) for v in node.input]
        copy.output[:] = [name(v) for v in node.output]
        copies.append(copy)
    return copies


def merge(model):
    """The model in both branches of an If on use_cache_branch, which share the initializers."""
    g = model.graph
    outside = {i.name for i in g.input} | {t.name for t in g.initializer} | {o.name for o in g.output}
    branches = {}
    for branch, prefix in {"then_branch": "with_past/", "else_branch": ""}.items():
        branches[branch] = helper.make_graph(renamed(g.node, outside, prefix), branch, [], g.output)
    names = [o.name for o in g.output]
    choose = helper.make_node("If", ["use_cache_branch"], names, name="optimum::if", **branches)
    inputs = [*g.input, helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])]
    graph = helper.make_graph([choose], "merged", inputs, g.output, g.initializer)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version, functions=model.functions)
