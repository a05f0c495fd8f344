"""No model of the corpora has a larger error with `--activations static --calib` than with the best of quantize_static.

    python test/oracle/static_floor.py [NAME ...]

Corpora: structures, and public models where they lie beside the project. Inputs are random where no others are known. Prints a line
for each model that both quantize, and lists those that are above.
"""
import pathlib
import sys

import numpy as np
import onnx

import static_errors
from command import CORPUS, SHARED, TINYDOC, TINYGPT

SAMPLES, HELD_OUT = 32, 8
SLACK = 1.02  # quotients up to this are equal: rounding of codes is a matter of chance
TINY = 1e-4  # errors below do not matter


def models():
    found = {p.parent.name: p for p in sorted((SHARED / "models" / "real").glob("*/model.onnx"))}
    found |= {p.parent.name: p for p in (TINYGPT / "model.onnx", TINYDOC / "model.onnx")}
    return found | {f"structures/{p.parent.name}": p for p in sorted((CORPUS / "structures").glob("*/model.onnx"))}


# Inputs that random numbers do not fit.
def special(name, rng):
    import test_real
    given = dict(test_real.FEEDS.get(name, {}))
    if name == "silero_vad_op18_ifless":
        given["input"] = (rng.standard_normal((1, 576)) * 0.1).astype(np.float32)
    if name == "magika_v1":
        given["bytes"] = rng.integers(0, 256, (1, 1536)).astype(np.float32)
    if name == "mujoco_apollo_policy":
        model = onnx.load(test_real.MODELS[name])
        stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        mean, deviation = stored[model.graph.node[0].input[1]], 1 / stored[model.graph.node[1].input[1]]
        given["obs"] = (mean + deviation * rng.standard_normal((1, mean.size))).astype(np.float32)
    return given


def feed(session, name, seed):
    rng, made = np.random.default_rng(seed), {}
    given = special(name, rng)
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) and d > 0 else 0 if "past" in str(d) else 4 for d in i.shape]
        kind = i.type.removeprefix("tensor(").removesuffix(")")
        floats = {"float": np.float32, "float16": np.float16, "double": np.float64}
        if i.name in given:
            made[i.name] = given[i.name]
        elif kind in floats:
            made[i.name] = rng.standard_normal(shape).astype(floats[kind])
        elif kind == "bool":
            made[i.name] = np.ones(shape, bool)
        else:
            made[i.name] = rng.integers(0, 8, shape).astype(np.int32 if kind == "int32" else np.int64)
    return made


def compare(name, path):
    s = static_errors.session(path)
    return static_errors.compare(path, [feed(s, name, i) for i in range(SAMPLES)], [feed(s, name, 1000 + i) for i in range(HELD_OUT)])


def main(names):
    above, both, failed = [], 0, []
    for name, path in models().items():
        if names and name not in names:
            continue
        try:
            ours, theirs = compare(name, path)
        except Exception as error:  # models that ONNX Runtime does not load, without inputs of numbers, or of other types
            failed.append(f"{name}: {' '.join(str(error).split())[:160]}")
            continue
        best = min(theirs, key=theirs.get)
        if theirs[best] == float("inf"):
            continue
        both += 1
        print(f"{name}: {ours:.5f}, quantize_static {theirs[best]:.5f} ({best})", flush=True)
        if ours > max(SLACK * theirs[best], TINY):
            above.append(f"{name} ({ours:.5f}, {theirs[best]:.5f} with {best})")
    print(f"{both} models that both quantize, {len(above)} above quantize_static:", *above, sep="\n  ")
    print(f"{len(failed)} not compared:", *failed, sep="\n  ")
    return above


if __name__ == "__main__":
    main(sys.argv[1:])
