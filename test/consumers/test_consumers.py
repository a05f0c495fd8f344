"""The outputs of presets in the programs that they are for: transformers.js under node, and onnxruntime-genai."""
import json
import os
import pathlib
import subprocess

import numpy as np
import onnxruntime_genai as genai
import pytest

import tinydecoder

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
BINARY = pathlib.Path(os.environ.get("ONNXQUANT", ROOT / "bin" / "onnxquant")).resolve()
NODE = pathlib.Path(os.environ.get("NODE_FOLDER", ROOT / "build" / "consumers"))  # where npm has installed

# The distance of logits from those of the float model, relative to their norm.
LIMITS = {"fp32": 0, "fp16": 1e-3, "q8": 0.02, "int8": 0.02, "uint8": 0.02, "q4": 0.06, "q4f16": 0.06, "q2": 0.3, "q2f16": 0.3, "bnb4": 0.06}


def onnxquant(*args):
    r = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


def distance(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("args", [[], ["--external-data", "always", "--shard-size", "1MB"]], ids=["embedded", "shards"])
def test_transformers_js(tmp_path, args):
    (tmp_path / "in" / "onnx").mkdir(parents=True)
    (tmp_path / "in" / "onnx" / "model.onnx").write_bytes((ROOT / "testmodels" / "tinygpt" / "model.onnx").read_bytes())
    (tmp_path / "in" / "config.json").write_text('{"model_type": "bert"}')  # an encoder: inputs are passed on
    onnxquant("--preset", "transformers.js", *args, tmp_path / "in", tmp_path / "out")
    script = NODE / "transformers.mjs"  # node looks for packages beside it
    script.write_text((HERE / "transformers.mjs").read_text())
    r = subprocess.run(["node", script, tmp_path, "out", *LIMITS], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    logits = json.loads(r.stdout)
    for dtype, limit in LIMITS.items():
        assert distance(logits[dtype], logits["fp32"]) <= limit, dtype


def generate(folder):
    """Logits of a prompt, and the sequence with four more tokens."""
    model = genai.Model(str(folder))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=16)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array([[5, 17, 33, 80, 6]], np.int32))
    logits = np.array(generator.get_output("logits"))
    for _ in range(4):
        generator.generate_next_token()
    return logits, len(generator.get_sequence(0))


def test_genai(tmp_path):
    tinydecoder.build(tmp_path / "float")
    onnxquant("--preset", "genai", tmp_path / "float", tmp_path / "int4")
    want, n = generate(tmp_path / "float")
    got, m = generate(tmp_path / "int4")
    assert n == m == 9
    # Random weights suffer more than trained ones: the limit is that of plain 4 bits.
    assert distance(got, want) < 0.25


@pytest.mark.parametrize("share", [False, True])
def test_genai_cache(tmp_path, share):
    """A cache of 8 bits: onnxruntime-genai takes its type from the model."""
    tinydecoder.build(tmp_path / "float")
    onnxquant("--preset", "genai", "--algorithm", "k_quant", "--kv-cache", "int8", "--calib", "self", "--samples", "8", tmp_path / "float", tmp_path / "int8")
    onnxquant("--preset", "genai", tmp_path / "float", tmp_path / "int4")
    config = tmp_path / "int8" / "genai_config.json"
    settings = json.loads(config.read_text())
    settings["search"]["past_present_share_buffer"] = share
    config.write_text(json.dumps(settings))
    want, n = generate(tmp_path / "int4")
    got, m = generate(tmp_path / "int8")
    assert n == m == 9
    assert distance(got, want) < 0.05
