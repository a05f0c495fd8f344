"""Writes golden.json beside it: what PyTorch's fake_quantize makes of values, and its gradients.

Run once by hand with any PyTorch (CPU) from 1.13 on; the Go tests read the file.
"""
import json
import pathlib

import torch

torch.manual_seed(11)


def case(name, x, scale, zero, lo, hi, axis=None):
    x = x.detach().clone().requires_grad_(True)
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(x, scale[0].item(), int(zero[0]), lo, hi)
    else:
        y = torch.fake_quantize_per_channel_affine(x, scale, zero, axis, lo, hi)
    grad = torch.randn_like(x)
    y.backward(grad)
    values = {k: [float(f"{float(v):.9g}") for v in t.detach().flatten()] for k, t in {"x": x, "y": y, "dy": grad, "dx": x.grad}.items()}
    return {"name": name, "channels": x.shape[0] if axis is not None else 1, "scale": [float(f"{float(s):.9g}") for s in scale],
            "zero": [int(z) for z in zero], "lo": lo, "hi": hi, **values}


def main():
    cases = []
    for bits in (2, 4, 8):
        half, top = 2 ** (bits - 1), 2 ** bits - 1
        for lo, hi, zero, mode in ((1 - half, half - 1, 0, "symmetric"), (0, top, top // 3, "asymmetric")):
            x = torch.randn(8, 50) * 2
            scale = torch.tensor([4.0 / top])
            cases.append(case(f"{bits} bits {mode}", x, scale, torch.tensor([zero], dtype=torch.int32), lo, hi))
            # Values on ties and on the ends of the range, where only the product decides.
            ties = (torch.arange(-2 * top, 2 * top + 1) * 0.5 * scale).reshape(1, -1)
            cases.append(case(f"{bits} bits {mode}, ties", ties, scale, torch.tensor([zero], dtype=torch.int32), lo, hi))
            scales = torch.rand(8) * 0.3 + 0.01
            zeros = torch.randint(lo, hi + 1, (8,), dtype=torch.int32) if mode == "asymmetric" else torch.zeros(8, dtype=torch.int32)
            cases.append(case(f"{bits} bits {mode} per channel", x, scales, zeros, lo, hi, axis=0))
    out = {"torch": torch.__version__, "cases": cases}
    (pathlib.Path(__file__).parent / "golden.json").write_text(json.dumps(out) + "\n")


main()
