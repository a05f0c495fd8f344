"""Quantizers of other tools for the table in docs/activations.md: each turns a float model and samples into a model.

    python static_peers.py SETTING MODEL SAMPLES OUT

runs in an environment of the tool. SAMPLES is a folder of .npz files. The last line of what it prints says the time and the
memory that this took.
"""
import contextlib
import hashlib
import json
import logging
import pathlib
import resource
import shutil
import sys
import time

import numpy as np
import onnx

logging.disable(logging.WARNING)


def feeds(samples):
    for path in sorted(samples.glob("*.npz")):
        with np.load(path) as arrays:
            yield dict(arrays)


def digest(model, samples):
    h = hashlib.sha256(model.read_bytes())
    for path in sorted(samples.glob("*.npz")):
        h.update(path.read_bytes())
    return h.hexdigest()[:12]


def reader(samples):
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rewind()

        def rewind(self):
            self.left = feeds(samples)

        def get_next(self):
            return next(self.left, None)
    return Reader()


def prepared(model, folder):
    """What quant_pre_process makes, with all of it that works; of an opset that per-channel scales need, if it converts."""
    from onnxruntime.quantization.shape_inference import quant_pre_process
    ready = folder / "ready.onnx"
    if ready.exists():
        return ready
    proto, source = onnx.load(model), str(model)
    if next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")) < 13:
        try:
            source = str(folder / "raised.onnx")
            onnx.save(onnx.version_converter.convert_version(proto, 13), source)
        except Exception as error:
            source = str(model)
            print("opset", str(error)[:200])
    for skip in ({}, {"skip_symbolic_shape": True}, {"skip_symbolic_shape": True, "skip_optimization": True}):
        try:
            quant_pre_process(source, str(ready), **skip)
            return ready
        except Exception as error:
            print("quant_pre_process", skip, str(error)[:200])
    shutil.copy(source, ready)
    return ready


def static(method, per_channel):
    def make(model, samples, out):
        from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static
        folder = out.parent / f"ready-{digest(model, samples)}"  # with the ranges, which settings share
        folder.mkdir(exist_ok=True)
        with contextlib.chdir(folder):  # the shape inference writes into it
            quantize_static(str(prepared(model, folder)), str(out), reader(samples), per_channel=per_channel, activation_type=QuantType.QUInt8,
                            weight_type=QuantType.QInt8, calibrate_method=CalibrationMethod[method], calibration_cache_path=folder / f"{method}.json")
    return make


def dynamic(per_channel):
    def make(model, samples, out):
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantize_dynamic(str(model), str(out), weight_type=QuantType.QInt8, per_channel=per_channel)
    return make


def nncf(**options):
    def make(model, samples, out):
        import nncf
        proto = onnx.load(model)
        if next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")) < 13:
            proto = onnx.version_converter.convert_version(proto, 13)
        data = list(feeds(samples))
        kind = {"model_type": nncf.ModelType.TRANSFORMER} if options.get("transformer") else {}
        onnx.save(nncf.quantize(proto, nncf.Dataset(data), subset_size=len(data), **kind), out)
    return make


def quark(name):
    def make(model, samples, out):
        from quark.onnx import ModelQuantizer
        from quark.onnx.quantization.config.config import Config
        from quark.onnx.quantization.config.custom_config import get_default_config
        config = get_default_config(name)
        ModelQuantizer(Config(global_quant_config=config)).quantize_model(str(model), str(out), reader(samples))
    return make


SETTINGS = {
    **{f"static {method.lower()} {'channel' if channel else 'tensor'}": ("onnxruntime", static(method, channel))
       for method in ("MinMax", "Percentile", "Entropy") for channel in (False, True)},
    "dynamic tensor": ("onnxruntime", dynamic(False)),
    "dynamic channel": ("onnxruntime", dynamic(True)),
    "nncf": ("nncf", nncf()),
    "nncf transformer": ("nncf", nncf(transformer=True)),
    "quark U8S8_AAWS": ("quark", quark("U8S8_AAWS")),
    "quark INT8_CNN_DEFAULT": ("quark", quark("INT8_CNN_DEFAULT")),
}


def main(setting, model, samples, out):
    start = time.process_time()
    SETTINGS[setting][1](*(pathlib.Path(p).resolve() for p in (model, samples, out)))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.process_time() - start, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
