"""What forms of weights cost in ONNX Runtime: writes internal/target/costs_ort.txt.

    make costs

Each line is measured on this processor: CPU time of a form, divided by the CPU time of the same operator with
a float weight. Both have one thread and ONNX Runtime's default options, and run in turn. The median of some
rounds counts. internal/target/costs.go reads the table. Measure it on a processor with VNNI, on a quiet
machine.
"""
import pathlib
import statistics
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).parents[2]
TABLE = ROOT / "internal" / "target" / "costs_ort.txt"
KS, NS, ROWS = (64, 128, 256, 512, 1024), (16, 64, 128, 256, 512, 1024), (1, 4, 16, 128)
SLOT, ROUNDS = 0.006, 5
EVEN = 1.0  # a form is as fast as float up to this ratio
RNG = np.random.default_rng(0)


def model(nodes, weights, inputs, outputs):
    graph = helper.make_graph(nodes, "costs", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(m):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])


def spend(s, feeds, times):
    start = time.process_time()
    for _ in range(times):
        s.run(None, feeds)
    return (time.process_time() - start) / times


def ratios(sessions, feeds):
    """The ratio of each session to the first one."""
    times = []
    for s in sessions:
        s.run(None, feeds)
        times.append(max(1, int(SLOT / max(spend(s, feeds, 1), 1e-6))))
    rounds = []
    for _ in range(ROUNDS):
        took = [spend(s, feeds, n) for s, n in zip(sessions, times)]
        rounds.append([t / took[0] for t in took])
    return [statistics.median(column) for column in zip(*rounds)]


def info(name, shape, kind=T.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def products(k, n, form=None):
    """Several MatMul of one input; form: bits, block, level and whether there are zero points."""
    count = max(1, min(8, 2_000_000 // (k * n)))
    nodes, weights = [], []
    for i in range(count):
        if form is None:
            weights.append(numpy_helper.from_array(RNG.standard_normal((k, n)).astype(np.float32), f"w{i}"))
            nodes.append(helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]))
            continue
        bits, block, level, zeros = form
        blocks = -(-k // block)
        inputs = ["x", f"w{i}", f"s{i}"]
        weights.append(numpy_helper.from_array(RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8), f"w{i}"))
        weights.append(numpy_helper.from_array(RNG.random((n, blocks)).astype(np.float32), f"s{i}"))
        if zeros:
            weights.append(numpy_helper.from_array(RNG.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8), f"z{i}"))
            inputs.append(f"z{i}")
        nodes.append(helper.make_node("MatMulNBits", inputs, [f"y{i}"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block, accuracy_level=level))
    return model(nodes, weights, [info("x", ["rows", k])], [info(f"y{i}", ["rows", n]) for i in range(count)])


def product_lines():
    forms = [(bits, block, 4, zeros) for bits in (2, 4, 8) for block in (16, 32, 64, 128, 256) for zeros in (False, True)]
    forms += [(bits, block, 1, False) for bits in (2, 4, 8) for block in (32, 128)]
    found = {}
    for k in KS:
        for n in NS:
            sessions = [session(products(k, n))] + [session(products(k, n, f)) for f in forms]
            for rows in ROWS:
                feeds = {"x": RNG.standard_normal((rows, k)).astype(np.float32)}
                for form, ratio in zip(forms, ratios(sessions, feeds)[1:]):
                    found[form, k, n, rows] = ratio
            print(f"costs: {k} x {n}", file=sys.stderr)
    for form in forms:
        bits, block, level, zeros = form
        for k in KS:
            least = []
            for rows in ROWS:
                fast = "-"
                for n in reversed(NS):
                    if found[form, k, n, rows] > EVEN:
                        break
                    fast = str(n)
                least.append(fast)
            yield f"MatMulNBits {bits} {block} {level} {'zeros' if zeros else '-'} {k} " + " ".join(least)


def decoded(w, form, merged):
    """Nodes and tensors of a weight: a float, behind a DequantizeLinear, or behind Cast and Mul."""
    if form == "float":
        return [], [numpy_helper.from_array(w, "w")]
    flat = w.reshape(merged)
    codes = np.clip(np.round(flat * 40), -127, 127).astype(np.int8)
    scale = np.full((merged[0], 1), 1 / 40, np.float32)
    tensors = [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(np.array(w.shape), "shape")]
    reshape = helper.make_node("Reshape", ["d", "shape"], ["w"])
    if form == "DequantizeLinear":
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["d"], axis=0)
        return [node, reshape], [*tensors, numpy_helper.from_array(scale[:, 0], "s")]
    nodes = [helper.make_node("Cast", ["q"], ["c"], to=T.FLOAT), helper.make_node("Mul", ["c", "s"], ["d"])]
    return [*nodes, reshape], [*tensors, numpy_helper.from_array(scale, "s")]


def operators():
    """Operators whose weights no operator of ONNX Runtime reads as codes: name, weight, rows of it, node, inputs."""
    def conv(kernel, channels, side):
        w = RNG.standard_normal((channels, channels, kernel, kernel)).astype(np.float32)
        return w, (channels, -1), helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4), (1, channels, side, side)

    for kernel, channels, side in ((1, 64, 56), (3, 16, 112), (3, 64, 56), (3, 256, 14), (5, 32, 28)):
        yield f"Conv {kernel}x{kernel},{channels}x{channels},{side}x{side}", *conv(kernel, channels, side)
    w = RNG.standard_normal((64, 32, 2, 2)).astype(np.float32)
    yield "ConvTranspose 2x2,64x32,28x28", w, (64, -1), helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), (1, 64, 28, 28)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps in (1, 32):
            w = RNG.standard_normal((1, gates * 128, 128)).astype(np.float32)
            yield f"{op} 128x128,{steps}", w, (gates * 128, -1), helper.make_node(op, ["x", "w", "w"], ["y"], hidden_size=128), (steps, 1, 128)
    w = RNG.standard_normal((256, 256)).astype(np.float32)
    for rows in (1, 128):
        yield f"Gemm,transB 256x256,{rows}", w, (256, -1), helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), (rows, 256)
    w = RNG.standard_normal((4, 256, 256)).astype(np.float32)
    yield "MatMul,batched 4x256x256,16", w, (4, -1), helper.make_node("MatMul", ["x", "w"], ["y"]), (4, 16, 256)
    yield "Einsum 256x256,16", w[0], (256, -1), helper.make_node("Einsum", ["x", "w"], ["y"], equation="bk,kn->bn"), (16, 256)
    w = RNG.standard_normal((8192, 256)).astype(np.float32)
    yield "Gather 8192x256,128", w, (8192, -1), helper.make_node("Gather", ["w", "x"], ["y"]), (128,)


def operator_lines():
    for name, w, merged, node, shape in operators():
        lookup = node.op_type == "Gather"
        sessions = []
        for form in ("float", "DequantizeLinear", "folded"):
            nodes, weights = decoded(w, form, merged)
            sessions.append(session(model([*nodes, node], weights, [info("x", shape, T.INT64 if lookup else T.FLOAT)], [info("y", None)])))
        x = RNG.integers(0, len(w), shape) if lookup else RNG.standard_normal(shape).astype(np.float32)
        _, dq, folded = ratios(sessions, {"x": x})
        yield f"{name} {dq:.2f} {folded:.2f}"
        print(f"costs: {name}", file=sys.stderr)


def main():
    head = f"""# ONNX Runtime {ort.__version__} on a CPU with VNNI, one thread, default options. Made by test/bench/costs.py.
#
# MatMulNBits: bits, block size, accuracy_level, zero points, K, and for {', '.join(map(str, ROWS))} rows the least number of
# columns from which it takes no more CPU time than MatMul; -: none.
# Others: CPU time of the operator behind a DequantizeLinear, and behind Cast and Mul, which ONNX Runtime
# folds when it loads the model; float is 1.
"""
    lines = [*operator_lines(), *product_lines()]
    TABLE.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
