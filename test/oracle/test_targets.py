"""The table of targets (docs/targets.md) against the runtimes.

ONNX Runtime and OpenVINO run what is made for them. Of ONNX Runtime it is also
checked which forms it fuses: the plan must tell. TensorRT is not run: what is
made for it is compared with what its documentation says that it takes.
"""
import io
import json

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import openvino
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import graphs
import grid
import runtime
from command import CORPUS, TINYGPT, onnxquant

STRUCTURES = CORPUS / "structures"
CASES = {c["case"]: c for c in json.loads((STRUCTURES / "INDEX.json").read_text())
         if c["runner"] != "none" and any(w["want"] != "keep" for w in c["weights"])}


def convert(source, out, *args):
    """What became of the float tensors, by name."""
    r = onnxquant("--json", *args, source, out)
    assert r.status == 0, r.stderr
    return {t["name"]: t for t in json.loads(r.stdout)["plan"]["tensors"]}


def stored(case, kind):
    files = sorted((STRUCTURES / case / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [np.array(numpy_helper.to_array(onnx.load_tensor(p))) for p in files]


# ONNX Runtime


def model(nodes, shape, inputs, dtype=T.FLOAT, outputs=("y",), opset=21):
    """A model of nodes that read a weight w of that shape."""
    w = np.random.default_rng(5).standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes], "g",
        [helper.make_tensor_value_info("x", T.INT64 if inputs == "indices" else dtype, inputs if inputs != "indices" else [3])],
        [helper.make_tensor_value_info(o, dtype, None) for o in outputs],
        [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset < 23 else 13)


def branching(inside):
    """A product in a branch, with the weight in there too or outside."""
    m = model([("ReduceMax", ["x"], ["m"], {"keepdims": 0}), ("Cast", ["m"], ["c"], {"to": T.BOOL})], [128, 96], [2, 128])
    b = helper.make_tensor_value_info("b", T.FLOAT, None)
    then, other = (helper.make_graph([n], "branch", [], [b]) for n in (helper.make_node("MatMul", ["x", "w"], ["b"]), helper.make_node("Identity", ["x"], ["b"])))
    if inside:
        then.initializer.append(m.graph.initializer.pop())
    m.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    return m


PRODUCT = [("MatMul", ["x", "w"], ["y"])]
GEMM_T = [("Gemm", ["x", "w"], ["y"], {"transB": 1})]
TURNED = [("Transpose", ["w"], ["t"]), ("MatMul", ["x", "t"], ["y"])]

# Models, and whether ONNX Runtime fuses their DequantizeLinear.
ORT_MODELS = {
    "product": (model(PRODUCT, [128, 96], [2, 128]), "", True),
    "short last block": (model(PRODUCT, [130, 96], [2, 130]), "--block 32", True),
    "one block": (model(PRODUCT, [20, 40], [2, 20]), "--block 32", True),
    "one column": (model(PRODUCT, [64, 1], [2, 64]), "--block 64", True),
    "zero points": (model(PRODUCT, [128, 95], [2, 128]), "--zero-point --block 16", True),
    "channel": (model(PRODUCT, [300, 96], [2, 300]), "--block -1", True),
    "8 bits": (model(PRODUCT, [128, 96], [2, 128]), "--bits 8 --block 256", True),
    "2 bits": (model(PRODUCT, [128, 96], [2, 128], opset=25), "--bits 2 --block 32", True),
    "2 bits, 95 columns": (model(PRODUCT, [128, 95], [2, 128], opset=25), "--bits 2 --block 32", False),
    "2 bits, 94 columns, channel": (model(PRODUCT, [128, 94], [2, 128], opset=25), "--bits 2 --block -1", False),
    "float16": (model(PRODUCT, [128, 96], [2, 128], T.FLOAT16), "", True),
    "Gemm": (model([("Gemm", ["x", "w"], ["y"])], [128, 96], [2, 128]), "", True),
    "Gemm transB": (model(GEMM_T, [96, 128], [2, 128]), "", False),
    "Gemm transB, channel": (model(GEMM_T, [96, 128], [2, 128]), "--bits 8 --block -1", False),
    "Transpose": (model(TURNED, [96, 128], [2, 128]), "", False),
    "two readers": (model(PRODUCT + [("MatMul", ["x", "w"], ["z"])], [128, 96], [2, 128], outputs=("y", "z")), "", False),
    "left": (model([("MatMul", ["w", "x"], ["y"])], [96, 128], [128, 2]), "", False),
    "embedding": (model([("Gather", ["w", "x"], ["y"])], [50, 128], "indices"), "--ops all", False),
    "block of 48": (model(PRODUCT, [192, 96], [2, 192]), "--block 48", False),
    "block of 512": (model(PRODUCT, [1024, 96], [2, 1024]), "--block 512", False),
    "three axes": (model(PRODUCT, [2, 128, 96], [2, 2, 128]), "", False),
    "from outside of a branch": (branching(inside=False), "", False),
    "in a branch": (branching(inside=True), "", True),
}


def optimized_nodes(path, folder):
    """The nodes that a model has in ONNX Runtime."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    scopes = graphs.scopes(onnx.load(options.optimized_model_filepath))
    return [n for scope in scopes.values() for n in scope.body.node]


def optimized(path, folder):
    """The operators of these."""
    return {n.op_type for n in optimized_nodes(path, folder)}


@pytest.mark.parametrize("name", ORT_MODELS)
def test_onnxruntime(name, tmp_path):
    """What is not fused, or not as fast as float, becomes MatMulNBits or is folded when the model is loaded."""
    float_model, args, fused = ORT_MODELS[name]
    source, plain, best = (tmp_path / f for f in ("in.onnx", "dq.onnx", "ort.onnx"))
    onnx.save(float_model, source)
    args = args.split()
    convert(source, plain, "--style", "dq", *args)
    told, = (t for name, t in convert(source, best, "--target", "ort", *args).items() if name.endswith("w"))
    feeds = runtime.random_feeds(source)
    want = runtime.run(plain, feeds, fused=False)

    assert ("DequantizeLinear" not in optimized(plain, tmp_path)) == fused
    runtime.assert_same(runtime.run(plain, feeds), want)
    assert told["form"] in ("Cast and Mul", "MatMulNBits", "DequantizeLinear"), told
    assert told["form"] != "DequantizeLinear" or fused
    assert optimized(best, tmp_path) - {"MatMulNBits"} <= optimized(source, tmp_path)
    runtime.assert_same(runtime.run(best, feeds), want)


@pytest.mark.parametrize("columns", [96, 95])
@pytest.mark.parametrize("nodes", [PRODUCT, [("Gemm", ["x", "w"], ["y"])], GEMM_T], ids=["MatMul", "Gemm", "Gemm transB"])
def test_onnxruntime_2_bits(nodes, columns, tmp_path):
    """2 bits raise no opset: MatMulNBits reads them at any."""
    source, plain, best = (tmp_path / f for f in ("in.onnx", "dq.onnx", "ort.onnx"))
    onnx.save(model(nodes, [columns, 128] if nodes is GEMM_T else [128, columns], [2, 128], opset=13), source)
    convert(source, plain, "--bits", "2", "--block", "32")
    convert(source, best, "--bits", "2", "--block", "32", "--target", "ort")
    assert [o.version for o in onnx.load(best).opset_import if o.domain == ""] == [13]
    assert "DequantizeLinear" not in optimized(best, tmp_path)
    feeds = runtime.random_feeds(source)
    runtime.assert_same(runtime.run(best, feeds), runtime.run(plain, feeds, fused=False))


@pytest.mark.parametrize("args", ["", "--zero-point", "--bits 2 --block 32", "--bits 8", "--block -1"])
@pytest.mark.parametrize("k", [96, 100, 128])
@pytest.mark.parametrize("nodes", [[("MatMul", ["x", "w"], ["p"]), ("Add", ["p", "b"], ["y"])], [("Gemm", ["x", "w", "b"], ["y"])], [("Gemm", ["x", "w", "b"], ["y"], {"transB": 1})]],
                         ids=["MatMul", "Gemm", "Gemm transB"])
def test_onnxruntime_web(nodes, k, args, tmp_path):
    """The native WebGPU kernel computes MatMulNBits of 2, 4 and 8 bits, with a bias and a short last block: test/consumers runs them there."""
    m = model(nodes, [40, k] if len(nodes[0]) > 3 else [k, 40], [2, k])
    m.graph.initializer.append(numpy_helper.from_array(np.linspace(-1, 1, 40, dtype=np.float32), "b"))
    source, out, decoded = (tmp_path / f for f in ("in.onnx", "out.onnx", "float.onnx"))
    onnx.save(m, source)
    told = convert(source, out, "--target", "ort-web", *args.split())["w"]
    products = [n for n in onnx.load(out).graph.node if n.op_type == "MatMulNBits"]
    assert len(products) == 1 and told["form"] == "MatMulNBits"
    assert len(products[0].input) == 6 and bool(products[0].input[3]) == (args == "--zero-point")
    assert onnxquant("dequantize", out, decoded).status == 0
    feeds = runtime.random_feeds(source)
    runtime.assert_same(runtime.run(out, feeds, fused=False), runtime.run(decoded, feeds))


@pytest.mark.parametrize("case", ["bf16_cast"])
def test_onnxruntime_bfloat16(case, tmp_path):
    """bfloat16 that is only cast is decoded to by ONNX Runtime with a Cast."""
    source, out = STRUCTURES / case / "model.onnx", tmp_path / "out.onnx"
    assert convert(source, tmp_path / "portable.onnx")["w"]["decision"] == "keep"
    assert convert(source, out, "--target", "ort")["w"]["decision"] == "quantize"
    feeds = stored(case, "input")
    runtime.assert_same(runtime.run(out, feeds), runtime.run(out, feeds, "onnx-reference"))
    assert runtime.relative_error(runtime.run(out, feeds), stored(case, "output")) < 0.2


# OpenVINO


def tensor(a):
    return openvino.Tensor(a.view(np.uint16), a.shape, openvino.Type.bf16) if a.dtype.name == "bfloat16" else a


def run_openvino(model, feeds):
    """The outputs of a model, or of the one at a path, computed as exactly as OpenVINO can."""
    core = openvino.Core()
    source = io.BytesIO(model.SerializeToString()) if isinstance(model, onnx.ModelProto) else model
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0", "INFERENCE_NUM_THREADS": "1"}
    request = core.compile_model(core.read_model(source), "CPU", exact).create_infer_request()
    request.infer([tensor(f) for f in feeds])
    got = []
    for i in range(len(request.model_outputs)):
        t = request.get_output_tensor(i)
        got.append(t.data.view(ml_dtypes.bfloat16) if t.element_type == openvino.Type.bf16 else t.data)
    return got


# Float models that OpenVINO 2026.4 does not run, or computes otherwise.
NOT_IN_OPENVINO = {
    "batched_3d_broadcast", "domain_ai_onnx", "custom_domain", "custom_domain_matmul", "custom_domain_shared",
    "function_and_matmul", "function_const_weight", "function_nested_attr", "function_other_opset", "function_weight_input",
    "metadata_function", "ml_domain", "lstm_peephole_op7", "opset18", "opset19", "no_shape", "other_dtypes",
    "sparse_2d", "sparse_flat", "val_denormal", "val_min_denormal", "ext_no_length", "ext_empty_tensor",
    "up_softmax_axis1_op11", "up_reducelogsum_op13", "ms_multi_head",
}

# What the evaluator of the onnx package does not run: the formats that ONNX
# Runtime does not run either are left out there.
NOT_EVALUATED = {"conv_transpose_group", "ms_attention", "ms_embed", "ms_fused", "ms_ops", "no_default_opset", "up_pad_neg_op10"}

OPENVINO = {
    "int4": "--conv-format int4",
    "int4-channel": "--block -1 --conv-format int4",
    "uint4": "--zero-point --block 16 --conv-format uint4",
    "int8": "--bits 8",
    "fp8": "--format fp8-e4m3 --block 32",
    "nvfp4": "--format nvfp4 --conv-format nvfp4",
    "mxfp8": "--format mxfp8",
    "nf4": "--format nf4 --conv-format nf4",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case, settings", grid.turns(sorted(CASES.keys() - NOT_IN_OPENVINO), OPENVINO))
def test_openvino(case, settings, tmp_path):
    """What is made for OpenVINO runs there, and computes what the codes say."""
    try:
        openvino.Core().compile_model(str(STRUCTURES / case / "model.onnx"), "CPU")
    except RuntimeError as e:
        pytest.skip(f"OpenVINO refuses the float model: {str(e).splitlines()[-1]}")
    source, feeds = STRUCTURES / case / "model.onnx", stored(case, "input")
    for name, args in ((name, OPENVINO[name]) for name in settings):
        out = tmp_path / f"{name}.onnx"
        plan = convert(source, out, "--target", "openvino", "--ops", "all", *args.split())
        if not any(t["decision"] == "quantize" for t in plan.values()):
            continue
        evaluated = name in ("nvfp4", "mxfp8") or "bf16" in case or CASES[case]["runner"] != "onnxruntime"
        if evaluated and (case in NOT_EVALUATED or not CASES[case].get("reference_agrees", True)):
            continue
        want = runtime.run(out, feeds, "onnx-reference" if evaluated else "onnxruntime", fused=False)
        off = runtime.relative_error(run_openvino(out, feeds), want)
        assert off < 1e-2, f"{name}: outputs are off by {off:.2g}"


def test_openvino_multi_head():
    """What docs/targets.md says of MultiHeadAttention: the float model's outputs are other ones, until the bias is gone."""
    case = "ms_multi_head"
    feeds, m = stored(case, "input"), onnx.load(STRUCTURES / case / "model.onnx")
    assert runtime.relative_error(run_openvino(m, feeds), runtime.run(m, feeds)) > 0.1
    attention, = (n for n in m.graph.node if n.op_type == "MultiHeadAttention")
    del attention.input[3:]
    assert runtime.relative_error(run_openvino(m, feeds), runtime.run(m, feeds)) < 1e-5


# Shapes, with many rows to multiply: four rows and forty go different ways.
@pytest.mark.parametrize("args", OPENVINO.values(), ids=OPENVINO)
@pytest.mark.parametrize("k", [20, 48, 63, 100, 129, 240, 256])
@pytest.mark.parametrize("nodes", [PRODUCT, GEMM_T], ids=["MatMul", "Gemm transB"])
def test_openvino_shapes(nodes, k, args, tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, [k, 33] if nodes is PRODUCT else [33, k], [40, k]), source)
    told = convert(source, out, "--target", "openvino", *args.split())["w"]
    if told["decision"] == "keep":
        assert k % 32, told
        return
    feeds = runtime.random_feeds(source)
    assert runtime.relative_error(run_openvino(out, feeds), runtime.run(out, feeds, "onnx-reference")) < 1e-5


# Operators that sum over an odd number of elements, and the shapes of their weight and x.
ODD = {
    "Conv": ([("Conv", ["x", "w"], ["y"])], [32, 27, 3, 3], [1, 27, 9, 7]),
    "Conv 1x1": ([("Conv", ["x", "w"], ["y"])], [32, 27, 1, 1], [1, 27, 9, 7]),
    "ConvTranspose": ([("ConvTranspose", ["x", "w"], ["y"])], [27, 16, 2, 2], [1, 27, 9, 7]),
    "Gather": ([("Gather", ["w", "x"], ["y"])], [64, 27], "indices"),
    "LSTM": ([("LSTM", ["x", "w", "w"], ["y"], {"hidden_size": 27})], [1, 108, 27], [9, 5, 27]),
    "GRU": ([("GRU", ["x", "w", "w"], ["y"], {"hidden_size": 27})], [1, 81, 27], [9, 5, 27]),
    "RNN": ([("RNN", ["x", "w", "w"], ["y"], {"hidden_size": 27})], [1, 27, 27], [9, 5, 27]),
}


@pytest.mark.parametrize("args", ["", "--zero-point"])
@pytest.mark.parametrize("op", ODD)
def test_openvino_odd_sums(op, args, tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(*ODD[op]), source)
    told = convert(source, out, "--target", "openvino", "--ops", "all", "--conv-format", "int4", *args.split())["w"]
    assert told["decision"] == "quantize" and told["format"].endswith("int4"), told
    feeds = runtime.random_feeds(source)
    assert runtime.relative_error(run_openvino(out, feeds), runtime.run(out, feeds, fused=False)) < 1e-5


@pytest.mark.parametrize("nodes", [PRODUCT, GEMM_T], ids=["MatMul", "Gemm transB"])
def test_openvino_odd_products(nodes, tmp_path):
    """Why these stay in float: the portable form is computed wrongly."""
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, [27, 64] if nodes is PRODUCT else [64, 27], [9, 27]), source)
    feeds = runtime.random_feeds(source)
    convert(source, out, "--block", "-1")
    assert runtime.relative_error(run_openvino(out, feeds), runtime.run(out, feeds, fused=False)) > 0.1
    told = convert(source, out, "--target", "openvino")["w"]
    assert "an odd number" in told["reason"], told


def test_openvino_tinygpt(tmp_path):
    out = tmp_path / "out.onnx"
    convert(TINYGPT / "model.onnx", out, "--target", "openvino", "--ops", "all")
    feeds = runtime.random_feeds(TINYGPT / "model.onnx")
    assert runtime.relative_error(run_openvino(out, feeds), runtime.run(out, feeds, fused=False)) < 5e-3


# Which weights OpenVINO keeps compressed: the type of the weight in the operator that reads it.
GATHER = [("Gather", ["w", "x"], ["y"])]
CONV = [("Conv", ["x", "w"], ["y"])]
COMPRESSED = {
    "MatMul": (PRODUCT, [256, 96], [2, 256]),
    "Relu behind": ([("MatMul", ["x", "w"], ["t"]), ("Relu", ["t"], ["r"]), ("Neg", ["r"], ["y"])], [256, 96], [2, 256]),
    "residual": ([("MatMul", ["x", "w"], ["t"]), ("Add", ["t", "x"], ["y"])], [256, 256], [2, 256]),
    "two readers": ([*PRODUCT, ("MatMul", ["y", "w"], ["z"])], [256, 256], [2, 256]),
    "Gemm transB": (GEMM_T, [96, 256], [2, 256]),
    "Transpose": (TURNED, [96, 256], [2, 256]),
    "Gather": (GATHER, [96, 256], "indices"),
    "Conv": (CONV, [64, 32, 3, 3], [1, 32, 8, 8]),
}
KEPT_AS = {
    "--block 128": "i4", "--block -1": "i4", "--zero-point --block 32": "u4", "--bits 8 --block 32": "i8", "--bits 8 --zero-point --block -1": "u8",
    "--format nvfp4": "f4e2m1", "--format mxfp4": "f4e2m1", "--format mxfp8": "f32", "--format fp8-e4m3": "f32", "--format nf4": "f32",
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_openvino_compressed(name, tmp_path):
    """What docs/targets.md says of weights that stay compressed."""
    nodes, shape, inputs = COMPRESSED[name]
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, shape, inputs), source)
    for args, codes in KEPT_AS.items():
        convert(source, out, "--target", "openvino", "--ops", "all", *args.split())
        compiled = openvino.Core().compile_model(str(out), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        weight = {"FullyConnected": 1, "Gather": 0, "Convolution": 1}  # which input it is
        types = {op.input(weight[kind]).get_element_type().get_type_name()
                 for op in compiled.get_runtime_model().get_ops() if (kind := op.get_rt_info()["layerType"].get()) in weight}
        decoded = name == "Conv" or name == "Gather" and "--block -1" not in args
        assert types == {"f32" if decoded else codes}, args


# Why the table adapts weights: what OpenVINO refuses of the portable form.
REFUSED = {
    "short last block": (model(PRODUCT, [130, 96], [2, 130]), "--block 32"),
    "2 bits": (model(PRODUCT, [128, 96], [2, 128], opset=25), "--bits 2"),
    "Scan": (STRUCTURES / "scan_outer_weight" / "model.onnx", "--block 32"),
    "one axis": (STRUCTURES / "weight_1d" / "model.onnx", "--block 16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_openvino_refuses(name, tmp_path):
    source, args = REFUSED[name]
    if not hasattr(source, "exists"):
        onnx.save(source, tmp_path / "in.onnx")
        source = tmp_path / "in.onnx"
    convert(source, tmp_path / "out.onnx", *args.split())
    with pytest.raises(Exception, match="converted|Unsupported type"):
        openvino.Core().read_model(tmp_path / "out.onnx")


# TensorRT

TENSORRT_BLOCKS = {T.INT4: {64, 128}, T.FLOAT4E2M1: {16}, T.FLOAT8E4M3FN: {32}}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("args", ["", "--bits 8", "--format fp8-e4m3", "--format nvfp4", "--format mxfp8"])
def test_tensorrt(args, tmp_path):
    """Every DequantizeLinear is one that the documentation allows. Not run."""
    seen = set()
    for case in sorted(CASES):
        out = tmp_path / "out.onnx"
        convert(STRUCTURES / case / "model.onnx", out, "--target", "tensorrt", "--ops", "all", *args.split())
        before = onnx.load(STRUCTURES / case / "model.onnx", load_external_data=False)
        if any(n.op_type == "DequantizeLinear" for n in before.graph.node):
            continue  # its own are not ours
        graph = onnx.load(out).graph
        stored = {t.name: t for t in graph.initializer}
        for n in graph.node:
            if n.op_type != "DequantizeLinear":
                continue
            codes = stored[n.input[0]]
            assert len(n.input) == 2, "a zero point"
            attributes = {a.name: a.i for a in n.attribute}
            seen.add(codes.data_type)
            if "block_size" not in attributes:
                assert codes.data_type in (T.INT8, T.FLOAT8E4M3FN)
                continue
            block, k = attributes["block_size"], codes.dims[attributes["axis"]]
            if block == k and codes.data_type in (T.INT8, T.FLOAT8E4M3FN):
                continue  # one scale per channel of a weight of more than two axes
            assert block in TENSORRT_BLOCKS[codes.data_type] and k % block == 0, f"{case}: {codes.name}"
            if codes.data_type in (T.INT4, T.FLOAT4E2M1):
                assert codes.dims[-1] % 2 == 0
    assert seen


@pytest.mark.parametrize("k, block, runs", [(192, None, True), (96, None, True), (80, None, True), (192, 128, False), (100, 32, False), (128, 128, True)])
def test_openvino_short_blocks(k, block, runs, tmp_path):
    """OpenVINO refuses a short last block. By default none is written where a usual size divides; a hint names those that were asked for."""
    w = np.random.default_rng(k).standard_normal((k, 48)).astype(np.float32)
    value = lambda name, n: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, n])
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", k)], [value("y", 48)], [onnx.numpy_helper.from_array(w, "w")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), tmp_path / "in.onnx")
    r = onnxquant("-bits", "4", *(["--block", block] if block else []), tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert r.status == 0, r.stderr
    assert ("OpenVINO and TensorRT refuse this model" in " ".join(r.stderr.split())) == (not runs)
    if runs:
        openvino.Core().compile_model(str(tmp_path / "out.onnx"), "CPU")
    else:
        with pytest.raises(RuntimeError):
            openvino.Core().compile_model(str(tmp_path / "out.onnx"), "CPU")
