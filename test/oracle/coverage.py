"""Writes the table of coverage into docs/conversion.md: make coverage.

It takes the real models that lie beside the project, and none where they do not.
"""
import json
import sys
from collections import Counter

from command import ROOT, SHARED, onnxquant

BEGIN, END = "<!-- coverage: written by make coverage -->\n", "<!-- end of coverage -->\n"
DOCUMENT = ROOT / "docs" / "conversion.md"
MODELS = sorted((SHARED / "models" / "real").glob("*/model.onnx"))
SETTING = ["--bits", "8", "--ops", "all"]
LEAST = 0.01  # share of the bytes of float tensors from which on a reason is told


def row(path):
    r = onnxquant(*SETTING, "--dry-run", "--json", path)
    assert r.status == 0, r.stderr
    plan = json.loads(r.stdout)
    total = sum(t["bytes"] for t in plan["tensors"])
    kept = Counter()
    for t in plan["tensors"]:
        if t["decision"] != "quantize":
            kept[t["reason"].split(" and ")[0]] += t["bytes"]
    rest = [f"{size / total:.1%} {reason}" for reason, size in kept.most_common() if size >= LEAST * total]
    return (f"| {path.parent.name} | {total / 1e6:.2f} MB | {plan['coverage']:.1%} "
            f"| {plan['in_bytes'] / plan['out_bytes']:.1f} | {'; '.join(rest) or '–'} |").replace("%", " %")


def main():
    if not MODELS:
        sys.exit("no real models lie beside the project")
    table = ["| model | float tensors | quantized | times smaller | what stays, from 1 % on |", "|---|---|---|---|---|", *map(row, MODELS)]
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(before + BEGIN + "\n".join(table) + "\n" + END + after)


if __name__ == "__main__":
    main()
