"""Small models whose weights reach their operators through Loop, Scan, If, Slice, Split and Concat.

Each is text for onnx.parser, the shapes of its initializers, and the float tensors that the command
should report: none for a quantized one, else the reason why it stays.
"""
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser


class Followed(NamedTuple):
    text: str  # inputs => outputs { nodes }
    stored: dict  # name: shape of an initializer, or its value; names in a branch follow its attribute and a slash
    tensors: dict  # name: why it stays in float, None if it is quantized
    opset: int = 17
    fake: dict = {}  # what differs in tensors with the style qdq
    compared: tuple = ()  # the weights that verify compares, where they have other names in the model


LOOP = "trips = Constant<value = int64 {3}>()\nyes = Constant<value = bool {1}>()\n"
NEVER = LOOP.replace("{3}", "{0}")

CARRIED = {
    # tf2onnx makes LSTMs like this.
    "loop": Followed("""float[2,32] x => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Identity(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_itself": Followed("""float[2,32] x => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_same_name": Followed("""float[2,32] x => float[2,32] y {%s
        m = MatMul(x, w)
        y, last = Loop(trips, yes, m, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] w)
            => (bool c2, float[2,32] s2, float[32,32] w2) { c2 = Identity(c) h = MatMul(s, w) s2 = Tanh(h) w2 = Identity(w) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_behind": Followed("""float[2,32] x => float[2,16] y {%s
        s, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,16] v)
            => (bool c2, float[2,32] s2, float[32,16] v2) { c2 = Identity(c) s2 = Tanh(s) v2 = Identity(v) }>
        y = MatMul(s, last)
    }""" % LOOP, {"w": [32, 16]}, {"w": None}),
    "loop_never": Followed("""float[2,32] x => float[2,32] y {%s
        s, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) { c2 = Identity(c) s2 = MatMul(s, v) v2 = Identity(v) }>
        y = MatMul(s, last)
    }""" % NEVER, {"w": [32, 32]}, {"w": None}),
    "loop_in_loop": Followed("""float[2,32] x => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s3, float[32,32] v3) {
                c2 = Identity(c)
                s2, v2 = Loop(trips, yes, s, v) <body = d (int64 j, bool e, float[2,32] t, float[32,32] u)
                    => (bool e2, float[2,32] t2, float[32,32] u2) { e2 = Identity(e) h = MatMul(t, u) t2 = Tanh(h) u2 = Identity(u) }>
                s3 = Identity(s2) v3 = Identity(v2)
            }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_through_if": Followed("""float[2,32] x, bool q => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) {
                c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h)
                v2 = If(q) <then_branch = tb () => (float[32,32] t) { t = Identity(v) }, else_branch = eb () => (float[32,32] e) { e = Identity(v) }>
            }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_transposed": Followed("""float[2,32] x => float[2,32] y {%s
        wt = Transpose<perm = [1, 0]>(w)
        y, last = Loop(trips, yes, x, wt) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Identity(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": None}),
    "loop_two": Followed("""float[2,32] x => float[2,32] y {%s
        y, a2, b2 = Loop(trips, yes, x, a, b) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v, float[32,32] u)
            => (bool c2, float[2,32] s2, float[32,32] v2, float[32,32] u2) {
                c2 = Identity(c) h = MatMul(s, v) s2 = MatMul(h, u) v2 = Identity(v) u2 = Identity(u) }>
    }""" % LOOP, {"a": [32, 32], "b": [32, 32]}, {"a": None, "b": None}),
    "scan": Followed("""float[2,32] s0, float[3,2,32] x => float[2,32] y, float[3,2,32] all {
        y, last, all = Scan(s0, w, x) <num_scan_inputs = 1, body = b (float[2,32] s, float[32,32] v, float[2,32] xi)
            => (float[2,32] s2, float[32,32] v2, float[2,32] o) { h = MatMul(s, v) a = Add(h, xi) s2 = Tanh(a) o = Identity(s2) v2 = Identity(v) }>
    }""", {"w": [32, 32]}, {"w": None}),
    "if_else_weights": Followed("""float[2,32] x, bool q => float[2,16] y {
        w = If(q) <then_branch = tb () => (float[32,16] t) { t = Identity(a) }, else_branch = eb () => (float[32,16] e) { e = Identity(b) }>
        y = MatMul(x, w)
    }""", {"a": [32, 16], "b": [32, 16]}, {"a": None, "b": None}),
    "if_constant": Followed("""float[2,32] x => float[2,16] y {
        q = Constant<value = bool {1}>()
        w = If(q) <then_branch = tb () => (float[32,16] t) { t = Identity(a) }, else_branch = eb () => (float[32,16] e) { e = Identity(b) }>
        y = MatMul(x, w)
    }""", {"a": [32, 16], "b": [32, 16]}, {"a": None, "b": None}),
    "if_own_weight": Followed("""float[2,32] x, bool q => float[2,16] y {
        w = If(q) <then_branch = tb () => (float[32,16] t) { }, else_branch = eb () => (float[32,16] e) { e = Identity(b) }>
        y = MatMul(x, w)
    }""", {"then_branch/t": [32, 16], "b": [32, 16]}, {"then_branch/t": None, "b": None}, fake={"then_branch/t": "its graph returns it"}),
    # What follows must stay as it is.
    "loop_changes": Followed("""float[2,32] x => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Neg(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": "read by Loop:3"}),
    "loop_swaps": Followed("""float[2,32] x => float[2,32] y {%s
        m = MatMul(x, a)
        y, a2, b2 = Loop(trips, yes, m, a, b) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v, float[32,32] u)
            => (bool c2, float[2,32] s2, float[32,32] u2, float[32,32] v2) { c2 = Identity(c) s2 = MatMul(s, v) v2 = Identity(v) u2 = Identity(u) }>
    }""" % LOOP, {"a": [32, 32], "b": [32, 32]}, {"a": "also read by Loop:3", "b": "read by Loop:4"}),
    "loop_scanned_too": Followed("""float[2,32] x => float[2,32] y, float[3,32,32] every {%s
        y, last, every = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2, float[32,32] v3) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Identity(v) v3 = Identity(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": "read by Loop:3"}),
    "loop_also_scanned_turned": Followed("""float[2,32] x => float[2,32] y, float[3,32,32] every {%s
        y, last, every = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2, float[32,32] v3) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Identity(v) v3 = Transpose<perm = [1, 0]>(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": "also read by Transpose:0"}),
    "loop_output": Followed("""float[2,32] x => float[2,32] y, float[32,32] last {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s2, float[32,32] v2) { c2 = Identity(c) h = MatMul(s, v) s2 = Tanh(h) v2 = Identity(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": "graph output"}),
    "loop_added": Followed("""float[2,32] x => float[2,32] y {%s
        y, last = Loop(trips, yes, x, w) <body = b (int64 i, bool c, float[2,32] s, float[32,32] v)
            => (bool c2, float[2,32] s3, float[32,32] v2) { c2 = Identity(c) h = MatMul(s, v) n = Neg(v) s2 = MatMul(h, n) s3 = Tanh(s2) v2 = Identity(v) }>
    }""" % LOOP, {"w": [32, 32]}, {"w": "also read by Neg:0"}),
}

INTS = dict(o=np.array([0]), p=np.array([32]), q=np.array([64]), one=np.array([1]), two=np.array([2]), low=np.array([-32]), most=np.array([2**31 - 1]))


def ints(*names):
    return {name: INTS[name] for name in names}


FOLDED = {
    # Stored tensors that are cut and joined: what results is stored, and quantized.
    "slice": Followed("float[2,32] x => float[2,16] y { v = Slice(w, o, p, o) y = MatMul(x, v) }", {"w": [64, 16], **ints("o", "p")}, {"v": None}),
    "slice_inner": Followed("float[2,64] x => float[2,32] y { v = Slice(w, low, most, one) y = MatMul(x, v) }",
                            {"w": [64, 96], **ints("low", "most", "one")}, {"v": None}),
    "slice_steps": Followed("float[2,32] x => float[2,16] y { v = Slice(w, one, q, o, two) y = MatMul(x, v) }",
                            {"w": [64, 16], **ints("o", "q", "one", "two")}, {"v": None}),
    "slice_attributes": Followed("float[2,32] x => float[2,16] y { v = Slice<axes = [0], starts = [32], ends = [1000]>(w) y = MatMul(x, v) }",
                                 {"w": [64, 16]}, {"v": None}, 9),
    "split": Followed("float[2,32] x => float[2,16] y { a, b = Split<axis = 1>(w) h = MatMul(x, a) g = MatMul(x, b) y = Add(h, g) }", {"w": [32, 32]}, {"a": None, "b": None}),
    "split_sizes": Followed("float[2,32] x => float[2,48] y { a, b = Split<axis = 1>(w, s) h = MatMul(x, a) g = MatMul(x, b) y = Concat<axis = 1>(h, g) }",
                            {"w": [32, 48], "s": np.array([16, 32])}, {"a": None, "b": None}),
    "split_rest": Followed("float[2,32] x => float[2,40] y { a, b, c = Split<axis = 1, num_outputs = 3>(w) h = MatMul(x, a) g = MatMul(x, b) f = MatMul(x, c) y = Concat<axis = 1>(h, g, f) }",
                           {"w": [32, 40]}, {"a": None, "b": None, "c": None}, 18),
    "concat": Followed("float[2,64] x => float[2,24] y { v = Concat<axis = 1>(a, b) y = MatMul(x, v) }", {"a": [64, 8], "b": [64, 16]}, {"v": None}),
    "concat_rows": Followed("float[2,64] x => float[2,16] y { v = Concat<axis = -2>(a, b) y = Gemm(x, v) }", {"a": [16, 16], "b": [48, 16]}, {"v": None}),
    "transposed_behind": Followed("float[2,32] x => float[2,32] y { v = Slice(w, o, p, o) t = Transpose<perm = [1, 0]>(v) y = MatMul(x, t) }",
                                  {"w": [64, 32], **ints("o", "p")}, {"v": None}),
    "backwards": Followed("float[2,32] x => float[2,16] y { v = Slice(w, m, n, o, m) y = MatMul(x, v) }",
                          {"w": [32, 16], "m": np.array([-1]), "n": np.array([-1000]), **ints("o")}, {"v": None}),
    "backwards_by_threes": Followed("float[2,32] x => float[2,21] y { v = Slice(w, last, one, one, by) y = MatMul(x, v) }",
                                    {"w": [32, 64], "last": np.array([1000]), "by": np.array([-3]), **ints("one")}, {"v": None}),
    "turned_slice": Followed("float[2,32] x => float[2,24] y { t = Transpose<perm = [1, 0]>(w) v = Slice(t, o, p, o) y = MatMul(x, v) }",
                             {"w": [24, 64], **ints("o", "p")}, {"v": None}),
    "turned_backwards": Followed("float[2,64] x => float[2,24] y { t = Transpose(w) v = Slice(t, m, n, o, m) y = MatMul(x, v) }",
                                 {"w": [24, 64], "m": np.array([-1]), "n": np.array([-1000]), **ints("o")}, {"v": None}),
    "turned_split": Followed("float[2,32] x => float[2,16] y { t = Transpose<perm = [1, 0]>(w) a, b = Split<axis = 1>(t) h = MatMul(x, a) g = MatMul(x, b) y = Add(h, g) }",
                             {"w": [32, 32]}, {"a": None, "b": None}),
    "turned_and_joined": Followed("float[2,32] x => float[2,40] y { t = Transpose<perm = [1, 0]>(a) v = Concat<axis = 1>(b, t) y = MatMul(x, v) }",
                                  {"a": [24, 32], "b": [32, 16]}, {"v": None}),
    "turned_rank_3": Followed("float[2,8] x => float[5,2,12] y { t = Transpose<perm = [1, 2, 0]>(w) v = Slice(t, o, twelve, two) y = MatMul(x, v) }",
                              {"w": [24, 5, 8], "twelve": np.array([12]), **ints("o", "two")}, {"v": None}),
    "turned_both_ways": Followed("float[2,16] x => float[2,32] y { s = Slice(w, o, p, o) t = Transpose(s) v = Slice(t, o, sixteen, o) y = MatMul(x, v) }",
                                 {"w": [64, 24], "sixteen": np.array([16]), **ints("o", "p")}, {"v": None}),
    "constant_node": Followed("float[2,4] x => float[2,2] y { w = Constant<value = float[4,4] {%s}>() v = Slice(w, o, two, one) y = MatMul(x, v) }" % ", ".join(f"{i / 4}" for i in range(1, 17)),
                              {**ints("o", "one", "two")}, {"v": None}),
    # PyTorch's exporter changes the order of an LSTM's gates so.
    "lstm_gates": Followed("""float[3,2,32] x => float[3,1,2,16] y {
        wi = Slice(w, a0, a1, o) wo = Slice(w, a3, a4, o) wf = Slice(w, a1, a3, o)
        wiofc = Concat<axis = 0>(wi, wo, wf) wu = Unsqueeze(wiofc, o)
        ri = Slice(r, a0, a1, o) ro = Slice(r, a3, a4, o) rf = Slice(r, a1, a3, o)
        riofc = Concat<axis = 0>(ri, ro, rf) ru = Unsqueeze(riofc, o)
        y = LSTM<hidden_size = 16>(x, wu, ru)
    }""", {"w": [64, 32], "r": [64, 16], "a0": np.array([0]), "a1": np.array([16]), "a3": np.array([48]), "a4": np.array([64]), **ints("o")},
        {"wiofc": None, "riofc": None}),
    "reshaped_between": Followed("float[2,32] x => float[2,16] y { r = Reshape(w, s) f = Slice(r, o, one, o) v = Squeeze(f, o) y = MatMul(x, v) }",
                                 {"w": [64, 16], "s": np.array([2, 32, 16]), **ints("o", "one")}, {"f": None}),
    "in_branch": Followed("""float[2,32] x, bool q => float[2,16] y {
        y = If(q) <then_branch = tb () => (float[2,16] t) { v = Slice(w, o, p, o) t = MatMul(x, v) },
                   else_branch = eb () => (float[2,16] e) { u = Slice(w, p, q2, o) e = MatMul(x, u) }>
    }""", {"w": [64, 16], **ints("o", "p"), "q2": np.array([64])}, {"v_1": None, "u_1": None}, compared=("then_branch/v", "else_branch/u")),
    "twice_in_branches": Followed("""float[2,32] x, bool q => float[2,16] y {
        y = If(q) <then_branch = tb () => (float[2,16] t) { v = Slice(w, o, p, o) m = MatMul(x, v) t = Neg(m) },
                   else_branch = eb () => (float[2,16] e) { v = Slice(w, o, p, o) e = MatMul(x, v) }>
    }""", {"w": [32, 16], **ints("o", "p")}, {"v_1": None}, compared=("then_branch/v", "else_branch/v")),
    "shadowed_name": Followed("""float[2,32] x, bool q => float[2,16] y {
        y = If(q) <then_branch = tb () => (float[2,16] t) { v = Slice(w, o, p, o) t = MatMul(x, v) },
                   else_branch = eb () => (float[2,16] e) { v = Neg(x) u = Slice(w, o, p, o) e = MatMul(v, u) }>
    }""", {"w": [32, 16], **ints("o", "p")}, {"v_1": None}, compared=("then_branch/v", "else_branch/u")),
    "bias_along": Followed("float[2,32] x => float[2,16] y { m, b = Split<axis = 0>(w, s) v = MatMul(x, m) y = Add(v, b) }",
                           {"w": [33, 16], "s": np.array([32, 1])}, {"m": None, "b": "read by Add:1"}),
    "in_loop_body": Followed("""float[2,32] x => float[2,32] y {%s
        y = Loop(trips, yes, x) <body = b (int64 i, bool c, float[2,32] s)
            => (bool c2, float[2,32] s2) { c2 = Identity(c) v = Slice(w, o, p, o) h = MatMul(s, v) s2 = Tanh(h) }>
    }""" % LOOP, {"w": [64, 32], **ints("o", "p")}, {"v_1": None}, compared=("body/v",)),
    # What follows must stay as it is.
    "whole_is_read": Followed("float[2,32] x => float[2,16] y, float[64,16] n { v = Slice(w, o, p, o) y = MatMul(x, v) n = Neg(w) }",
                              {"w": [64, 16], **ints("o", "p")}, {"w": "read by Neg:0, Slice:0"}),
    "would_grow": Followed("float[2,64] x => float[2,16] y { v = Concat<axis = 0>(w, w) y = MatMul(x, v) }", {"w": [32, 16]}, {"w": "read by Concat:0, Concat:1"}),
    "no_weight": Followed("float[2,16] x => float[2,16] y { v = Slice(b, o, one, o) y = Add(x, v) }", {"b": [2, 16], **ints("o", "one")}, {"b": "read by Slice:0"}),
    "chosen_at_run": Followed("float[2,32] x, int64[1] i => float[2,16] y { j = Sub(i, i) v = Slice(w, j, p, o) y = MatMul(x, v) }",
                              {"w": [32, 16], **ints("o", "p")}, {"w": "read by Slice:0"}),
    "turned_is_read": Followed("float[2,64] x, float[2,32] z => float[2,24] y { t = Transpose<perm = [1, 0]>(w) v = Slice(t, o, p, o) h = MatMul(x, t) g = MatMul(z, v) y = Add(h, g) }",
                               {"w": [24, 64], **ints("o", "p")}, {"w": "also read by Slice:0"}),
    "part_is_output": Followed("float[2,32] x => float[2,16] y, float[32,16] v { v = Slice(w, o, p, o) y = MatMul(x, v) }",
                               {"w": [64, 16], **ints("o", "p")}, {"w": "read by Slice:0"}),
}


def model(case, seed=7):
    """The case as a model, with random weights."""
    ins, rest = case.text.split("=>", 1)
    outs, nodes = rest.split("{", 1)
    ir = helper.find_min_ir_version_for([helper.make_opsetid("", case.opset)])
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {case.opset}]>\ng ({ins}) => ({outs}) {{{nodes}')
    rng = np.random.default_rng(seed)
    for name, value in case.stored.items():
        branch, _, name = name.rpartition("/")
        if isinstance(value, list):
            value = (rng.standard_normal(value) * value[0] ** -0.5).astype(np.float32)
        graph = next(a.g for n in made.graph.node for a in n.attribute if a.name == branch) if branch else made.graph
        graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.checker.check_model(made, full_check=True)
    return made
