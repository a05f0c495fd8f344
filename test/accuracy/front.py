"""Draws KL divergence against bits per weight, as SVG: shapes tell kinds apart, colours follow the page's scheme."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 86

STYLE = """
  svg { font: 12px sans-serif; --ink: #1c1c1c; --dim: #767676; --grid: #e0e0e0; --theirs: #b3430b; --ours: #0b5fb3; }
  @media (prefers-color-scheme: dark) { svg { --ink: #ececec; --dim: #a0a0a0; --grid: #444; --theirs: #f2a66f; --ours: #7db8f2; } }
  text { fill: var(--ink); } .dim { fill: var(--dim); } .grid { stroke: var(--grid); }
  .front { fill: none; stroke: var(--ink); stroke-width: 1.5; }
  .ours { fill: none; stroke: var(--ours); stroke-width: 1.6; } .theirs { fill: none; stroke: var(--theirs); stroke-width: 1.6; }
"""

# Kind: what it is called, its class, the path of its mark around (0, 0).
KINDS = {
    "rtn": ("rtn; formats with one rule", "ours", "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0"),
    "search": ("other algorithms, without data", "ours", "M0 -5L5 4H-5Z"),
    "data": ("with data", "ours", "M-4 -4H4V4H-4Z"),
    "mix": ("mixes of formats", "ours", "M0 -6L6 0L0 6L-6 0Z"),
    "peer": ("other tools", "theirs", "M-4 -4L4 4M-4 4L4 -4"),
}


def front(points):
    """Those points (kind, label, bits, kl) that no other beats in both, by bits."""
    best, kept = math.inf, []
    for p in sorted(points, key=lambda p: (p[2], p[3])):
        if p[3] < best:
            best = p[3]
            kept.append(p)
    return kept


def svg(title, points):
    """points are (kind, label, bits, kl). Marks have their labels as tooltips."""
    bits = [p[2] for p in points]
    low, high = math.floor(min(bits)), math.ceil(max(bits))
    least, most = (math.log10(f(p[3] for p in points)) for f in (min, max))
    bottom, top = math.floor(least * 2) / 2, math.ceil(most * 2) / 2

    def x(b):
        return LEFT + (b - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(kl):
        return TOP + (top - math.log10(kl)) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             f"<title>{escape(title)}: KL divergence against bits per weight</title>", f"<style>{STYLE}</style>"]
    for b in range(low, high + 1):
        parts.append(f'<path class="grid" d="M{x(b):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
                     f'<text x="{x(b):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{b}</text>')
    for power in range(math.floor(bottom), math.ceil(top) + 1):
        for digit in (1, 2, 5):
            kl = digit * 10.0 ** power
            if bottom <= math.log10(kl) <= top:
                parts.append(f'<path class="grid" d="M{LEFT} {y(kl):.1f}H{WIDTH - RIGHT}"/>'
                             f'<text x="{LEFT - 6}" y="{y(kl) + 4:.1f}" text-anchor="end">{kl:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">bits per weight</text>')
    parts.append(f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">KL divergence, nats</text>')
    steps = [f"{x(p[2]):.1f} {y(p[3]):.1f}" for p in front(points)]
    parts.append(f'<path class="front" d="M{"L".join(steps)}"/>')
    for kind, label, b, kl in points:
        _, css, mark = KINDS[kind]
        parts.append(f'<path class="{css}" transform="translate({x(b):.1f} {y(kl):.1f})" d="{mark}"><title>{escape(label)}: {b:.2f} bits, {kl:.5f}</title></path>')
    for i, kind in enumerate(k for k in KINDS if any(p[0] == k for p in points)):
        name, css, mark = KINDS[kind]
        at = (LEFT + 10 + i % 3 * 235, HEIGHT - 26 + i // 3 * 18)
        parts.append(f'<path class="{css}" transform="translate({at[0]} {at[1]})" d="{mark}"/><text x="{at[0] + 12}" y="{at[1] + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
