"""Other tools on the models of docs/accuracy.md. What they reach is kept in peers.json, with versions and dates.

    .venv/bin/python test/accuracy/peers.py inputs
    python test/accuracy/peers.py make TOOL    in an environment of the tool, with onnx, onnxruntime and torch
    .venv/bin/python test/accuracy/peers.py score

with PYTHONPATH=test/oracle. The first says where models and data lie. The second writes models into
build/accuracy/peers/TOOL, but for those that are there. The third measures them, with the pinned
ONNX Runtime, and replaces what peers.json has of these tools. TOOL is one of TOOLS.
"""
import contextlib
import datetime
import importlib.metadata
import io
import json
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MADE = ROOT / "build" / "accuracy" / "peers"
KEPT = HERE / "peers.json"


def onnxruntime_nbits(config, **options):
    """MatMulNBitsQuantizer; a config that calibrates is given a reader of data."""
    def make(source, out, data):
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, matmul_nbits_quantizer as q

        class Reader(CalibrationDataReader):
            def __init__(self):
                self.samples = iter(data)

            def get_next(self):
                return next(self.samples, None)

            def __iter__(self):
                return iter(data)

        if config == "GPTQ":
            options["calibration_data_reader"] = Reader()
        chosen = getattr(q, f"{config}WeightOnlyQuantConfig")(**options)
        more = {"block_size": 32, "is_symmetric": False} if config in ("RTN", "KQuant", "GPTQ") else {}
        quantizer = q.MatMulNBitsQuantizer(onnx.load(source), algo_config=chosen, **more)
        quantizer.process()
        onnx.save(quantizer.model.model, out)
    return make


def onnxruntime_dynamic(**options):
    def make(source, out, data):
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantize_dynamic(source, out, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"], **options)
    return make


def modelopt(method, **options):
    def make(source, out, data):
        import onnx
        from modelopt.onnx.quantization.int4 import quantize
        model = onnx.load(source)
        if model.opset_import[0].version < 21:
            model = onnx.version_converter.convert_version(model, 21)
        given = {} if method == "rtn_dq" else {"calibration_data_reader": data}
        onnx.save(quantize(model, calibration_method=method, calibration_eps=["cpu"], **given, **options), out)
    return make


def nncf(mode, **options):
    def make(source, out, data):
        import nncf
        import onnx
        model = onnx.load(source)
        if model.opset_import[0].version < 21:
            model = onnx.version_converter.convert_version(model, 21)
        onnx.save(nncf.compress_weights(model, mode=nncf.CompressWeightsMode[mode], ratio=1.0, group_size=32, all_layers=True,
                                        ignored_scope=nncf.IgnoredScope(types=["Gather"], validate=False), dataset=nncf.Dataset(data) if options else None, **options), out)
    return make


def neural_compressor(algorithm, **options):
    def make(source, out, data):
        import onnx
        from neural_compressor.adaptor.ox_utils import weight_only
        config = {n.name: {"bits": 4, "group_size": 32, "scheme": "asym"} for n in onnx.load(source).graph.node if n.op_type == "MatMul"}
        loader = [(d, None) for d in data]
        if algorithm == "rtn":
            made = weight_only.rtn_quantize(onnx.load(source), config, num_bits=4, group_size=32, scheme="asym", **options)
        else:
            class Loader(list):
                batch_size = 1
            made = getattr(weight_only, f"{algorithm}_quantize")(source, Loader(loader), config, num_bits=4, group_size=32, scheme="asym", n_samples=len(loader), **options)
        onnx.save(getattr(made, "model", made), out)
    return make


TOOLS = {
    "onnxruntime": {
        "DEFAULT, symmetric, 32": onnxruntime_nbits("Default", block_size=32, is_symmetric=True),
        "DEFAULT, asymmetric, 32": onnxruntime_nbits("Default", block_size=32),
        "DEFAULT, symmetric, 128": onnxruntime_nbits("Default", block_size=128, is_symmetric=True),
        "HQQ, 32": onnxruntime_nbits("HQQ", block_size=32),
        "RTN, asymmetric": onnxruntime_nbits("RTN"),
        "k_quant": onnxruntime_nbits("KQuant"),
        "GPTQ, asymmetric": onnxruntime_nbits("GPTQ", actorder=True),
        "quantize_dynamic, int8": onnxruntime_dynamic(),
        "quantize_dynamic, int8, per channel": onnxruntime_dynamic(per_channel=True),
    },
    "nvidia-modelopt": {
        "rtn_dq, 32": modelopt("rtn_dq", block_size=32),
        "awq_lite, 32": modelopt("awq_lite", block_size=32),
        "awq_lite with zero points, 32": modelopt("awq_lite", block_size=32, use_zero_point=True),
        "awq_clip, 32": modelopt("awq_clip", block_size=32),
    },
    "nncf": {
        "INT4_SYM, 32": nncf("INT4_SYM"),
        "INT4_ASYM, 32": nncf("INT4_ASYM"),
        "INT4_SYM, 32, awq": nncf("INT4_SYM", awq=True),
        "INT4_SYM, 32, scale_estimation": nncf("INT4_SYM", scale_estimation=True),
        "INT4_ASYM, 32, awq, scale_estimation": nncf("INT4_ASYM", awq=True, scale_estimation=True),
        "INT4_SYM, 32, gptq": nncf("INT4_SYM", gptq=True),
    },
    "neural-compressor": {
        "RTN, asymmetric, 32": neural_compressor("rtn"),
        "GPTQ, asymmetric, 32": neural_compressor("gptq", actorder=True),
        "AWQ, asymmetric, 32": neural_compressor("awq"),
    },
}


def inputs():
    """(name, file, calibration samples) of each model."""
    import numpy as np
    for line in json.loads((MADE / "inputs.json").read_text()):
        with np.load(line["calibration"]) as arrays:
            [(name, array)] = arrays.items()
        yield line["model"], line["path"], [{line["input"]: array[i:i + 1]} for i in range(len(array))]


def make(tool):
    made = MADE / tool / "made.json"
    made.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(made.read_text()) if made.exists() else []
    done = {(r["setting"], r["model"]) for r in results}
    for model, path, data in inputs():
        for setting, make_one in TOOLS[tool].items():
            if (setting, model) in done:
                continue
            out = made.with_name(f"{model}-{len(results)}.onnx")
            said = {"tool": tool, "version": importlib.metadata.version(tool), "setting": setting, "model": model,
                    "date": datetime.date.today().isoformat()}
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    make_one(path, str(out), data)
                said["file"] = out.name
            except Exception as error:  # what a tool raises is what the page tells
                traceback.print_exc()
                said["why"] = first_line(type(error).__name__, error)
            print(said, flush=True)
            results.append(said)
            made.write_text(json.dumps(results, indent=1))


def first_line(who, error):
    lines = str(error).strip().splitlines() or [""]
    return f"{who}: {lines[0]}"[:200]


def score():
    from dataclasses import asdict

    import onnxruntime

    import measure
    from models import MODELS
    kept = json.loads(KEPT.read_text())
    for made in sorted(MADE.glob("*/made.json")):
        tool = made.parent.name
        results, failures = [], []
        for said in json.loads(made.read_text()):
            if "file" in said:
                model = next(m for m in MODELS if m.name == said["model"])
                path = made.with_name(said.pop("file"))
                try:
                    bits = measure.bits(model, path)
                    if bits > 31:
                        said["why"] = "all weights stay in float"
                    else:
                        said |= {"bits": round(bits, 4), "size": path.stat().st_size, "score": asdict(measure.score(model, path))}
                except Exception as error:
                    said["why"] = first_line(f"ONNX Runtime {onnxruntime.__version__}", error)
            (failures if "why" in said else results).append(said)
            print(said, flush=True)
        for name, new in (("results", results), ("failures", failures)):
            kept[name] = [r for r in kept[name] if r["tool"] != tool] + new
    lines = [f' "{name}": [\n' + ",\n".join("  " + json.dumps(r) for r in kept[name]) + "\n ]" for name in ("results", "failures")]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_inputs():
    import onnx
    from models import MODELS
    MADE.mkdir(parents=True, exist_ok=True)
    lines = []
    for m in MODELS:
        [name] = [i.name for i in onnx.load(m.path).graph.input]
        lines.append({"model": m.name, "path": str(m.path), "calibration": str(m.calibration), "input": name})
    (MADE / "inputs.json").write_text(json.dumps(lines))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", tool] if tool in TOOLS:
            make(tool)
        case ["inputs"]:
            write_inputs()
        case ["score"]:
            score()
        case _:
            sys.exit(__doc__)
