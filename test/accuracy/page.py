"""Writes docs/accuracy.md and its pictures: make accuracy.

Names of models as arguments leave out the others, and print instead of writing. With --kept, cells
whose results build/accuracy does not have stay empty.
"""
import json
import math
import pathlib
import sys

import front
import measure
from command import ROOT
from models import MODELS
from settings import ALGORITHMS, BY_DATA, CALIBRATED_FORMATS, FORMATS, HELD, LAYOUTS, MIXES, SHARES, SIZES, SLACK, WHOLE

DOCUMENT = ROOT / "docs" / "accuracy.md"
PEERS = pathlib.Path(__file__).with_name("peers.json")
BEGIN, END = "<!-- {}: written by make accuracy -->\n", "<!-- end of {} -->\n"


def cell(score):
    """KL with three significant digits, and top-1 in percent."""
    digits = max(0, 2 - math.floor(math.log10(max(score.kl, 1e-9))))
    return f"{score.kl:.{digits}f} · {100 * score.top1:.1f}"


def written(model):
    """The table of integer formats as it stands: KL by setting and algorithm."""
    lines = DOCUMENT.read_text().partition(BEGIN.format(part(model)))[2].partition(END.format(part(model)))[0].splitlines()
    head, _, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return {(row[0].strip("`"), name): float(c.split(" · ")[0]) for row in rows for name, c in zip(head[2:], row[2:]) if c}


def written_mixes(model):
    """The table of mixes as it stands: the bytes that a mix may have, the KL of the best uniform format, and of each mix by its name."""
    name = f"mixes of {model.name}"
    lines = DOCUMENT.read_text().partition(BEGIN.format(name))[2].partition(END.format(name))[0].strip().splitlines()
    head, _, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    kl = lambda cell: float(cell.split(": ")[-1].split(" · ")[0])
    return [(int(row[0].partition(", that")[0].replace(",", "")), kl(row[1]), {n: kl(c) for n, c in zip(head[2:], row[2:]) if c}) for row in rows]


def part(model):
    return f"integers of {model.name}"


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def measured(what, *args):
    """A result, or None where it is missing and nothing is measured."""
    try:
        return what(*args)
    except measure.Missing:
        return None


class Page:
    """All results of one model, as points of its picture and as tables."""

    def __init__(self, model, peers):
        self.model, self.points = model, []
        self.peers = [p for p in peers["results"] if p["model"] == model.name]

    def add(self, kind, label, bits, score):
        """A point of the picture, and its cell."""
        self.points.append((kind, label, bits, score.kl))
        print(f"{self.model.name}: {label}: {bits:.3f} bits, {score}", flush=True)
        return cell(score)

    def converted(self, layout, algorithm=ALGORITHMS[0]):
        return measured(measure.converted, self.model, f"{layout} {algorithm.flags}".strip(), algorithm.data)

    def integers(self):
        """A row for each layout, a column for each algorithm."""
        used = [a for a in ALGORITHMS if any(a.takes(layout, self.model) for layout in LAYOUTS)]
        rows = []
        for layout in LAYOUTS:
            cells, bits = [], None
            for a in used:
                r = self.converted(layout, a) if a.takes(layout, self.model) else None
                if r is None:
                    cells.append("")
                    continue
                bits = bits or r.bits
                kind = "data" if a.data else "search" if a.flags else "rtn"
                other = f" ({r.bits:.2f} bits)" if abs(r.bits - bits) > 0.05 else ""
                cells.append(self.add(kind, f"{layout}, {a.name}", r.bits, r.score) + other)
            rows.append([f"`{layout}`", f"{bits:.2f}" if bits else "", *cells])
        return table(["`--format`", "bits", *(a.name for a in used)], rows)

    def mixes(self):
        """The mixes for the sizes of some uniform formats, beside the best uniform one that is no larger."""
        uniform = [(layout, r) for layout in [*LAYOUTS, *FORMATS] if "--algorithm" not in layout and (r := self.converted(layout))]
        rows = []
        for size_of in SIZES:
            if not (limit := self.converted(size_of)):
                continue
            name, best = min(((n, r) for n, r in uniform if r.size <= limit.size), key=lambda x: x[1].score.kl)
            cells = []
            for mix in MIXES:
                if not (r := measured(measure.mixed, self.model, mix, limit.size)):
                    cells.append("")
                    continue
                assert r.size <= limit.size
                cells.append(f"{self.add('mix', f'mix {mix.name}', r.bits, r.score)} ({100 * (r.score.kl / best.score.kl - 1):+.0f} %)")
            rows.append([f"{limit.size:,}, that of `{size_of}`", f"`{name}`: {cell(best.score)}", *cells])
        return table(["bytes at most", "best uniform format, rtn", *(m.name for m in MIXES)], rows)


def check(model):
    """Holds what docs/analysis.md says of mixes."""
    for size, most in HELD.get(model.name, {}).items():
        r = measured(measure.mixed, model, MIXES[-1], size)
        if r and (r.size > size or r.score.kl > SLACK * most):
            sys.exit(f"accuracy: {model.name}: the mix of {r.size} bytes has a KL of {r.score.kl:.3g}; want {size} bytes, {most}")


def whole(model):
    """A model with labels, all of its weights quantized."""
    everything = ("--ops", "all")
    size = model.path.stat().st_size
    made = [(f"`{layout}`", measured(measure.converted, model, f"{layout} {' '.join(everything)}")) for layout in WHOLE]
    made += [(f"mix {mix.name}, at most {share:.0%}", measured(measure.mixed, model, mix, int(share * size), *everything)) for share in SHARES for mix in MIXES]
    rows = [["float", "1", "", f"{100 * model.score(model.path).read:.1f} %"]]
    for name, r in made:
        print(f"{model.name}: all operators, {name}: {r}", flush=True)
        rows.append([name, f"{r.size / size:.3f}", cell(r.score), f"{100 * r.score.read:.1f} %"] if r else [name, "", "", ""])
    return table(["setting", "size of float's", "KL · top-1", "characters"], rows)


def formats(pages):
    rows = []
    for layout, algorithm in [*((f, ALGORITHMS[0]) for f in FORMATS), *((f, BY_DATA) for f in CALIBRATED_FORMATS)]:
        cells, bits, kind = [], "", "data" if algorithm.data else "rtn"
        setting = " ".join([layout, *algorithm.flags.split(), *["--calib DATA"] * bool(algorithm.data)])
        for page in pages:
            r = page.converted(layout, algorithm)
            cells.append(page.add(kind, setting, r.bits, r.score) if r else "")
            bits = bits or (f"{r.bits:.2f}" if r else "")
        rows.append([f"`{setting}`", bits, *cells])
    return table(["`--format`", "bits", *(p.model.name for p in pages)], rows)


def others(pages, peers):
    """What other tools wrote: kept, not measured here."""
    rows = []
    for tool, setting in dict.fromkeys((r["tool"], r["setting"]) for r in peers["results"]):
        cells = []
        for page in pages:
            found = [r for r in page.peers if (r["tool"], r["setting"]) == (tool, setting)]
            cells.append(" ".join(f"{r['bits']:.2f}: {page.add('peer', f'{tool}, {setting}', r['bits'], measure.models.Score(**r['score']))}" for r in found))
        rows.append([tool, setting, *cells])
    return table(["tool", "setting", *(p.model.name for p in pages)], rows)


def failures(peers):
    """Peers that did not run, by what they said."""
    said = {}
    for f in peers["failures"]:
        said.setdefault((f["tool"], f["model"], f["why"]), []).append(f["setting"])
    return table(["tool", "settings", "model", "what happened"], [[tool, "; ".join(settings), model, why] for (tool, model, why), settings in said.items()])


def put(text, name, lines):
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    assert found and closed, f"{DOCUMENT} has no place for {name}"
    return before + begin + "\n".join(lines) + "\n" + end + after


def main():
    wanted = sys.argv[1:]
    if "--kept" in wanted:
        wanted.remove("--kept")
        measure.measuring = False
    if unknown := set(wanted) - {m.name for m in MODELS}:
        sys.exit(f"accuracy: {' '.join(unknown)} is none of: {' '.join(m.name for m in MODELS)}")
    peers = json.loads(PEERS.read_text())
    pages = [Page(m, peers) for m in MODELS if m.name in wanted or not wanted]
    parts = {}
    for page in pages:
        parts[part(page.model)] = list(page.integers())
    parts["formats"] = list(formats(pages))
    for page in pages:
        parts[f"mixes of {page.model.name}"] = list(page.mixes())
        check(page.model)
    for page in pages:
        if page.model.labels:
            parts["characters"] = list(whole(page.model))
    parts["peers"] = list(others(pages, peers))
    parts["failures"] = list(failures(peers))
    if wanted:
        for name, lines in parts.items():
            print(f"\n{name}\n\n" + "\n".join(lines))
        return
    text = DOCUMENT.read_text()
    for name, lines in parts.items():
        text = put(text, name, lines)
    for page in pages:
        (DOCUMENT.parent / f"accuracy-{page.model.name}.svg").write_text(front.svg(page.model.title, page.points))
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
