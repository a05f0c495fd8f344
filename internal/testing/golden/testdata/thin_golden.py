#!/usr/bin/env python3
"""Make a small copy of golden data: of each kind of case, one.

usage: thin_golden.py FULL OUT [--limit BYTES] [--most BYTES] [family ...]

A case is of one kind by its function, types and numbers of axes, tags, failure
and parameters, and of another by the same with the distribution of its values in
place of axis and block size. Of each kind the largest case whose arrays fit into
the limit stays, or else the smallest, but that not of the kinds by values. A case
of more bytes than --most is left out. Models that cases name come along.
"""
import argparse
import json
import os
import re
import shutil

# Names go function/shape_distribution_..._b<block>_..., or speak for themselves.
NAME = re.compile(r".*?/(?:3d_)?\d+(?:x\d+)+_([a-z0-9]+)_.*?(?:_b(-?\d+)(?:_|$)|$)")


def arrays(case):
    return [*case["inputs"].values(), *case.get("outputs", {}).values()]


def kinds(case):
    if "func" not in case:  # an encoding, of which each case is one of a kind
        yield case["name"]
        return
    named = {**case["inputs"], **case.get("outputs", {})}
    types = {name: [a["dtype"], len(a.get("shape", ()))] for name, a in named.items()}
    params = {k: v for k, v in case["params"].items() if not k.startswith("block_size") and "shape" not in k}
    call = [case["func"], types, case.get("tags"), "error" in case, params]
    name = NAME.match(case["name"])
    if not name:
        yield case["name"]
        return
    values, block = name.groups()
    yield json.dumps([*call, "block", block], sort_keys=True)
    params = {k: v for k, v in params.items() if not k.endswith("axis")}
    yield json.dumps([*call[:-1], params, "values", values], sort_keys=True)


def size(case):
    return sum(a.get("bytes", 0) for a in arrays(case))


def pick(cases, limit):
    fitting = [c for c in cases if size(c) <= limit]
    return max(fitting, key=size) if fitting else min(cases, key=size)


def by_values(kind):
    return kind.startswith("[") and json.loads(kind)[-2] == "values"


def thin(source, target, limit, most):
    with open(os.path.join(source, "cases.json")) as f:
        doc = json.load(f)
    with open(os.path.join(source, "data.bin"), "rb") as f:
        data = f.read()
    groups = {}
    for case in doc["cases"]:
        if size(case) > most:
            continue
        for kind in kinds(case):
            groups.setdefault(kind, []).append(case)
    picks = {kind: pick(cases, limit) for kind, cases in groups.items()}
    chosen = {c["name"] for kind, c in picks.items() if size(c) <= limit or not by_values(kind)}
    cases = [c for c in doc["cases"] if c["name"] in chosen]

    out, places = bytearray(), {}
    for a in (a for case in cases for a in arrays(case) if a.get("bytes")):
        raw = data[a["offset"] : a["offset"] + a["bytes"]]
        if raw not in places:
            out += bytes(-len(out) % 64)
            places[raw] = len(out)
            out += raw
        a["offset"] = places[raw]

    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "data.bin"), "wb") as f:
        f.write(out)
    head = {k: v for k, v in doc.items() if k != "cases"}
    with open(os.path.join(target, "cases.json"), "w") as f:
        f.write(json.dumps(head, separators=(",", ":"))[:-1] + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
    for model in {c["params"]["model"] for c in cases if "model" in c.get("params", {})}:
        shutil.copyfile(os.path.join(source, model), os.path.join(target, model))
    print(f"{os.path.basename(target)}: {len(cases)} of {len(doc['cases'])} cases, {len(out)} bytes of data")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("full")
    ap.add_argument("out")
    ap.add_argument("family", nargs="*", default=["int_quant", "pack", "meta", "e2e", "nvfp4", "mx", "casts", "onnx_qdq"])
    ap.add_argument("--limit", type=int, default=2500)
    ap.add_argument("--most", type=int, default=100000)
    args = ap.parse_args()
    for family in args.family:
        thin(os.path.join(args.full, family), os.path.join(args.out, family), args.limit, args.most)


if __name__ == "__main__":
    main()
