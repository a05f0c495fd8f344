"""Ranges of activations, and quantize_static with the same ones."""
import hashlib
import json
import logging
import re

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize_static
from onnxruntime.quantization.calibrate import TensorsData, create_calibrator, save_tensors_data
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

logging.disable(logging.WARNING)

TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8, "int16": QuantType.QInt16, "uint16": QuantType.QUInt16}
# What both append to the name of a tensor. quantize_static numbers copies of the bias cb, we what they decode to.
SUFFIX = re.compile(r"_DequantizeLinear_Output(_\d+)?$|_QuantizeLinear_Input$|(?<=^cb)\d$")


class Feeds(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def calibrate(path, feeds, folder):
    """Finds the ranges with ONNX Runtime. Returns a file of ours and one of quantize_static's."""
    c = create_calibrator(path, None, str(folder / "augmented.onnx"))
    c.collect_data(Feeds(feeds))
    found = {name: (np.float32(np.min(t.lowest)), np.float32(np.max(t.highest))) for name, t in c.compute_data().items()}
    return write(path, found, folder)


def write(path, found, folder):
    ours, theirs = folder / "ranges.json", folder / "cache.json"
    ours.write_text(json.dumps({
        "version": 1, "model": {"file": str(path), "sha256": hashlib.sha256(open(path, "rb").read()).hexdigest()}, "method": "minmax",
        "tensors": {name: {"min": float(lo), "max": float(hi)} for name, (lo, hi) in found.items()}}))
    arrays = {name: (np.array(lo, np.float32), np.array(hi, np.float32)) for name, (lo, hi) in found.items()}
    save_tensors_data(TensorsData(CalibrationMethod.MinMax, arrays), theirs)
    return ours, theirs


def peer(source, target, cache, activations="uint8", weights="int8", per_channel=False, reduce_range=False, ops=None, nodes_to_exclude=None, nodes_to_quantize=None, **extra):
    quantize_static(source, target, None, calibration_cache_path=cache, op_types_to_quantize=ops, per_channel=per_channel,
                    reduce_range=reduce_range, activation_type=TYPES[activations], weight_type=TYPES[weights], extra_options=extra,
                    nodes_to_exclude=nodes_to_exclude, nodes_to_quantize=nodes_to_quantize)


def bare(name):
    return SUFFIX.sub("", name)


def quantized(path):
    """By tensor: scale and zero point of activations; codes, too, of stored tensors."""
    g = onnx.load(path).graph
    stored = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    found = {}
    for n in g.node:
        if n.op_type == "QuantizeLinear":
            tensor, parts = bare(n.input[0]), n.input[1:]
        elif n.op_type == "DequantizeLinear" and n.input[0] in stored:
            tensor, parts = bare(n.output[0]), n.input
        else:
            continue
        axis = [a.i for a in n.attribute if a.name == "axis"]
        arrays = [stored[p] for p in parts]
        found.setdefault(tensor, []).append((*((a.dtype.name, a.tobytes()) for a in arrays), axis if arrays[-1].size > 1 else []))
    return found


def same(ours, theirs):
    """Checks that both quantize the same tensors with the same contents. Returns how many."""
    a, b = quantized(ours), quantized(theirs)
    assert sorted(a) == sorted(b)
    for name in a:
        assert sorted(a[name]) == sorted(b[name]), name
    return len(a)


def run(path, feed, optimized=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feed)


def qnn_peer(source, target, cache, activations, weights, per_channel):
    c = get_qnn_qdq_config(source, Feeds([]), activation_type=TYPES[activations], weight_type=TYPES[weights], per_channel=per_channel)
    quantize_static(source, target, None, calibration_cache_path=cache, op_types_to_quantize=c.op_types_to_quantize, per_channel=c.per_channel,
                    activation_type=c.activation_type, weight_type=c.weight_type, extra_options=c.extra_options)
