"""Counts what verify says of honest conversions: of the corpora, of real models, and of random graphs.

    python test/oracle/honest.py [--graphs N] [--seed S] [--each N]

Each model of the corpus is converted in a setting, in turn, real ones in `--each`, and N random graphs (default 200) in one.
verify compares them with the record of what was written, and without any record, as a model of another tool. A false
alarm is a verdict of failed. Where codes have 8 bits or floats 16, so is poor. `make honest` prints the counts.
"""
import argparse
import collections
import json
import pathlib
import random
import tempfile

import onnx

import edits
import mutations
from command import CORPUS, SHARED, TINYDOC, TINYGPT, onnxquant
from graphs import load
from random_graphs import network

SETTINGS = edits.SETTINGS + [["--bits", "3", "--block", "32", "--ops", "all"], ["--bits", "4", "--block", "64", "--algorithm", "hqq", "--zero-point"],
                             ["--bits", "4", "--block", "32", "--algorithm", "mse", "--ops", "all"], ["--bits", "4", "--block", "32", "--algorithm", "k_quant", "--zero-point"],
                             ["--format", "mxfp4", "--ops", "all"], ["--format", "nvfp4", "--ops", "all"], ["--format", "q6_k", "--ops", "all"], ["--format", "q3_k", "--ops", "all"],
                             ["--bits", "8", "--ops", "all"], ["--bits", "8", "--calib", "DATA", "--ops", "all"], ["--bits", "2", "--block", "32", "--algorithm", "best", "--calib", "DATA"]]


def fine(setting):
    """A setting whose outputs are near to those of the float model."""
    text = " ".join(setting)
    return ("--bits 8" in text or setting in (["--float16"],)) and "static" not in text and "--bits 4" not in text


def models(each, rng):
    """(label, path, settings)"""
    for i, path in enumerate(sorted((CORPUS / "structures").glob("*/model.onnx"))):
        yield path.parent.name, path, [SETTINGS[i * 7 % len(SETTINGS)]]
    real = sorted((SHARED / "models" / "real").glob("*/model.onnx")) if SHARED.exists() else []
    for path in [*real, TINYGPT / "model.onnx", TINYDOC / "model.onnx"]:
        yield path.parent.name, path, rng.sample(SETTINGS, each)


def said(source, out):
    done = onnxquant("verify", "--json", *edits.LIBRARY, source, out, timeout=600)
    return json.loads(done.stdout) if done.stdout else {"verdict": "error", "failures": [done.stderr.strip()], "weights": [], "poor": []}


class Count:
    def __init__(self):
        self.verdicts, self.alarms, self.weights = collections.Counter(), [], []

    def one(self, group, label, source, setting, folder, records=(True, False)):
        out = pathlib.Path(folder, "out.onnx")
        try:
            if not mutations.convert(source, setting, folder, out):
                return
            model = load(out)
        except Exception:  # noqa: BLE001 - not every type has a kernel
            return
        label = f"{label}: {' '.join(map(str, setting))}"
        for record in records:
            if not record:
                del model.metadata_props[:]
                out = out.with_name("bare.onnx")
                onnx.save(model, out)
            report = said(source, out)
            verdict = report["verdict"]
            self.verdicts[group, record, verdict] += 1
            # What the limits of weights were chosen by.
            self.weights += [(group, label, record, w["name"], w["code_type"], w["sqnr_db"], w["gain"], w["misfit_db"], w.get("stray"), w.get("clipped")) for w in report["weights"] if w.get("code_type")]
            if verdict in ("failed", "error") or verdict == "poor" and fine(setting):
                why = (report["failures"] + (report.get("poor") or []))[:2]
                self.alarms.append(f"{group}, {'with' if record else 'without'} record: {label}: {verdict}: {'; '.join(why)}")
                print(self.alarms[-1], flush=True)


    def graph(self, seed, setting, folder, **kwargs):
        path = pathlib.Path(folder, "random.onnx")
        onnx.save(network(seed)[0], path)
        self.one("random", f"graph {seed}", path, setting, folder, **kwargs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graphs", type=int, default=200)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--each", type=int, default=8)
    p.add_argument("--only", default="", help="models with this in their name")
    p.add_argument("--weights", type=pathlib.Path, help="file for the numbers of all weights")
    args = p.parse_args()
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        for label, path, settings in models(args.each, random.Random(args.seed)):
            if args.only in label:
                for setting in settings:
                    group = "corpus" if "structures" in str(path) else "real"
                    count.one(group, label, path, setting, folder)
        for i in range(args.graphs):
            count.graph(args.seed * 10_000 + i, SETTINGS[i % len(SETTINGS)], folder)
    for (group, record, verdict), n in sorted(count.verdicts.items()):
        print(f"{group}, {'with' if record else 'without'} record: {verdict} {n}")
    print(f"{len(count.alarms)} false alarms")
    if args.weights:
        args.weights.write_text(json.dumps(count.weights))


if __name__ == "__main__":
    main()
