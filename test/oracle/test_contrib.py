"""The pure Go engine computes the operators of com.microsoft as ONNX Runtime does."""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from test_evaluate import evaluate

RNG = np.random.default_rng(3)


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def codes(*dims):
    return RNG.integers(0, 256, dims).astype(np.uint8)


def scales(*dims):
    return np.asarray(RNG.random(dims) / 8 + 0.01, np.float32)


def nbits(bits, n=24, k=72, block=32, zeros=None, bias=False):
    blocks = -(-k // block)
    stored = [codes(n, blocks, block * bits // 8), scales(n, blocks)]
    if zeros == "packed":
        stored.append(codes(n, -(-blocks * bits // 8)))
    elif zeros == "float":
        stored.append((RNG.random((n, blocks)) * 2**bits).astype(np.float32))
    elif bias:
        stored.append(None)
    if bias:
        stored += [None, floats(n)]
    return "MatMulNBits", [floats(2, 5, k)], stored, dict(bits=bits, N=n, K=k, block_size=block, accuracy_level=1)


def gathered(bits, zeros=False):
    rows, n, block = 20, 96, 32
    stored = [codes(rows, n * bits // 8), np.array([[3, 0, -1], [7, 7, 19]], np.int64), scales(rows, n // block)]
    if zeros:
        stored.append(codes(rows, -(-(n // block) * bits // 8)))
    return "GatherBlockQuantized", [], stored, dict(bits=bits, block_size=block, gather_axis=0, quantize_axis=1)


def experts(bits=4, block=32, activation="silu", zeros=False):
    count, hidden, inner = 4, 64, 96
    wide = inner * (2 if activation == "swiglu" else 1)
    stored = [codes(count, wide, hidden * bits // 8), scales(count, wide, hidden // block), floats(count, wide),
              codes(count, hidden, inner * bits // 8), scales(count, hidden, inner // block), floats(count, hidden)]
    attributes = dict(k=2, activation_type=activation, expert_weight_bits=bits, block_size=block, normalize_routing_weights=1)
    if activation == "swiglu":
        attributes.update(swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0)
    if zeros:
        stored += [None] * 3 + [codes(count, wide, -(-hidden // block * bits // 8)), codes(count, hidden, -(-inner // block * bits // 8))]
    return "QMoE", [floats(6, hidden), floats(6, count)], stored, attributes


def grouped(rotary=0, past=0, window=-1, packed=False):
    heads, groups, size, batch, length = 4, 2, 16, 2, 1 if past else 3
    qkv = [floats(batch, length, heads * size), floats(batch, length, groups * size), floats(batch, length, groups * size)]
    if packed:
        qkv = [np.concatenate(qkv, -1), None, None]
    angles = floats(32, size // 2)
    inputs = qkv + [floats(batch, groups, past, size), floats(batch, groups, past, size), np.full(batch, past + length - 1, np.int32),
                    np.array(past + length, np.int32), np.cos(angles), np.sin(angles)]
    return "GroupQueryAttention", inputs, [], dict(num_heads=heads, kv_num_heads=groups, do_rotary=rotary, local_window_size=window), 3


def sliding(capacity, past, length=1, window=3, **attributes):
    """A cache of a window: 7 positions were before. Its rows are those of the last ones."""
    op, inputs, stored, given, n = grouped(rotary=1, past=capacity, window=window)
    size = inputs[0].shape[-1] // 4
    inputs[:3] = [floats(1, length, heads * size) for heads in (4, 2, 2)]
    inputs[3:7] = floats(1, 2, capacity, size), floats(1, 2, capacity, size), np.full(1, past + length - 1, np.int32), np.array(past + length, np.int32)
    return op, inputs, stored, given | dict(sliding_window_cache=1) | attributes, n


def sinks():
    op, inputs, *rest = grouped(rotary=1, past=4)
    return op, [*inputs, None, None, floats(4)], *rest


def coded(how, count):
    op, inputs, stored, attributes, n = grouped(rotary=1, past=4)
    inputs[3:5] = (RNG.integers(-128, 128, inputs[3].shape).astype("int8") for _ in "kv")
    scales = [np.abs(floats(*([1] if count == 1 else [1, 2, 1, 16]))) / 40 + 0.01 for _ in "kv"]
    return op, [*inputs, None, None, None, *scales], stored, attributes | dict(k_quant_type=how, v_quant_type=how, kv_cache_bit_width=8), n


def many(*more, **attributes):
    return "MultiHeadAttention", [floats(2, 5, 32), floats(2, 7, 32), floats(2, 7, 32), *more], [], dict(num_heads=4, **attributes)


def linear(op, *dims, **attributes):
    """An operator on codes, of its own scale and zero point each."""
    inputs = [v for d in dims for v in (codes(*d), scales(), np.array(RNG.integers(100, 150), np.uint8))]
    return op, [*inputs, np.asarray(scales() * 4), np.array(120, np.uint8)], [], attributes


def lstm(directions=1, batch=1, per_channel=False, signed=True, **attributes):
    """Weights are codes of 7 bits: products of 8 bits saturate on some processors."""
    hidden, inputs, length = 24, 20, 5

    def weights(k):
        dims = (directions, 4 * hidden) if per_channel else (directions,)
        zero, kind = (0, np.int8) if signed else (60, np.uint8)
        return (RNG.integers(-64, 64, (directions, k, 4 * hidden)) + (0 if signed else 64)).astype(kind), scales(*dims) / 8, np.full(dims, zero, kind)

    (w, ws, wz), (r, rs, rz) = weights(inputs), weights(hidden)
    stored = [w, r, floats(directions, 8 * hidden), None, floats(directions, batch, hidden), floats(directions, batch, hidden), None, ws, wz, rs, rz]
    return "DynamicQuantizeLSTM", [floats(length, batch, inputs)], stored, dict(hidden_size=hidden, **attributes), 3


CASES = {
    "lstm": lstm(),
    "lstm-batch": lstm(batch=3),
    "lstm-unsigned": lstm(signed=False),
    "lstm-channels-reverse": lstm(per_channel=True, direction="reverse"),
    "lstm-both": lstm(directions=2, direction="bidirectional"),
    "qlinear-add": linear("QLinearAdd", (2, 3, 40), (40,)),
    "qlinear-mul": linear("QLinearMul", (2, 3, 40), (3, 1)),
    "qlinear-leaky": linear("QLinearLeakyRelu", (2, 3, 40), alpha=0.1),
    "qlinear-sigmoid": linear("QLinearSigmoid", (2, 3, 40)),
    **{f"nbits{bits}-{zeros}": nbits(bits, zeros=zeros) for bits in (2, 4, 8) for zeros in (None, "packed")},
    "nbits-float-zeros": nbits(4, zeros="float"),
    "nbits-bias": nbits(4, bias=True),
    "nbits-one-row": nbits(4, n=40, k=64, block=16),
    **{f"gather{bits}-{zeros}": gathered(bits, zeros) for bits in (4, 8) for zeros in (False, True)},
    "experts": experts(),
    "experts8": experts(bits=8),
    "experts-zeros": experts(zeros=True),
    "experts-swiglu": experts(activation="swiglu"),
    "bias-gelu": ("BiasGelu", [floats(3, 8), floats(8)], [], {}),
    "gelu": ("Gelu", [floats(3, 8)], [], {}),
    "fast-gelu": ("FastGelu", [floats(3, 8), floats(8)], [], {}),
    "quick-gelu": ("QuickGelu", [floats(3, 8)], [], dict(alpha=1.7)),
    "skip": ("SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)], [], dict(epsilon=1e-5)),
    "skip-simplified": ("SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8)], [], dict(epsilon=1e-5)),
    "embed": ("EmbedLayerNormalization", [np.array([[1, 2, 3], [4, 5, 6]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32)],
              [floats(9, 8), floats(5, 8), floats(2, 8), floats(8), floats(8)], {}, 2),
    "fused-matmul": ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], [], dict(transA=1, transB=1, alpha=0.5)),
    "fused-gemm": ("FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], [], dict(transB=1, activation="LeakyRelu", activation_alpha=0.2)),
    "fused-conv": ("FusedConv", [floats(1, 4, 6, 6), floats(8, 4, 3, 3), floats(8)], [], dict(activation="Relu", kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    "attention": ("Attention", [floats(2, 5, 16)], [floats(16, 48), floats(48), np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)], dict(num_heads=4)),
    "attention-causal": ("Attention", [floats(2, 5, 16)], [floats(16, 48), floats(48)], dict(num_heads=4, unidirectional=1)),
    "many-heads": many(),
    "many-heads-bias": many(floats(96), np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]], np.int32), floats(1, 4, 5, 7)),
    "grouped": grouped(),
    "grouped-rotary-past": grouped(rotary=1, past=4),
    "grouped-window-packed": grouped(rotary=1, past=4, window=3, packed=True),
    "grouped-codes": coded("PER_TENSOR", 1),
    "grouped-codes-channels": coded("PER_CHANNEL", 32),
    "grouped-sinks": sinks(),
    "grouped-smooth": (*sinks()[:1], sinks()[1][:9], [], sinks()[3] | dict(smooth_softmax=1), 3),
    "grouped-sliding": sliding(3, 7),
    "grouped-sliding-slack": sliding(5, 7),
    "grouped-sliding-many": sliding(5, 7, length=4),
    "grouped-sliding-first": sliding(4, 0, length=4),
    "rotary": ("RotaryEmbedding", [floats(2, 3, 32), np.array([[0, 1, 2], [4, 5, 6]], np.int64), floats(8, 4), floats(8, 4)], [], {}),
}


# ONNX Runtime computes 8-bit experts with int8 activations: 0.5 % from its own MoE with the decoded weights, which is ours.
# It computes with quotients of scales, so a code may be another one.
ROUGH = {"experts8": 0.02, "qlinear-add": 1 / 255, "qlinear-mul": 1 / 255}


@pytest.mark.parametrize("name", CASES)
def test_contrib(name, tmp_path):
    op, inputs, stored, attributes, *outputs = CASES[name]
    values = [(f"x{i}", v) for i, v in enumerate(inputs)] + [(f"w{i}", v) for i, v in enumerate(stored)]
    made = [f"y{i}" for i in range(outputs[0] if outputs else 1)]
    node = helper.make_node(op, [n if v is not None else "" for n, v in values], made, domain="com.microsoft", **attributes)
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in values[:len(inputs)] if v is not None]
    tensors = [numpy_helper.from_array(v, n) for n, v in values[len(inputs):] if v is not None]
    typed = [onnx.ValueInfoProto(name=y) for y in made]
    model = helper.make_model(helper.make_graph([node], "g", info, typed, tensors), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    onnx.save(model, tmp_path / "model.onnx")
    feeds = {n: v for n, v in values[:len(inputs)] if v is not None}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # DynamicQuantizeLSTM divides a batch among threads: each part has a scale of its own.
    want = ort.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    got = evaluate(tmp_path / "model.onnx", feeds, tmp_path)["pure Go"]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=ROUGH.get(name, 0) * abs(b).max() + 2e-5)
