#!/usr/bin/env python3
"""ops_golden.py -- the numbers of ops_golden.h, computed by PyTorch.

    python3 tests/golden/ops_golden.py > tests/golden/ops_golden.h

Only needed to make the header again; the tests read the header. Losses and
gelu are computed in float64. Inputs are closed formulas of the index that
float32 holds exactly, so the tests make them themselves. Made with PyTorch 1.13.
"""

import torch
import torch.nn.functional as F


def emit(name, values, ctype="double"):
    """Prints one C array; 17 digits are exact for a double, 9 for a float."""
    digits = 17 if ctype == "double" else 9
    flat = [float(v) for v in torch.as_tensor(values).reshape(-1)]
    suffix = "" if ctype == "double" else "F"
    print(f"static const {ctype} {name}[{len(flat)}] = {{")
    for v in flat:
        text = f"{v:.{digits}g}"
        if "." not in text and "e" not in text:
            text += ".0"
        print(f"    {text}{suffix},")
    print("};\n")


def spread(count, step, scale):
    """((i * step) mod 64 - 32) / scale for i = 0 .. count-1."""
    return ((torch.arange(count, dtype=torch.float64) * step) % 64 - 32) / scale


def loss(name, fn, x):
    """Value and gradient of a loss at x, in the order of x."""
    x = x.clone().requires_grad_(True)
    value = fn(x)
    value.backward()
    emit(f"golden_{name}", value.detach())
    emit(f"golden_{name}_grad", x.grad)


def losses():
    # bce: 12 logits, targets that repeat 0, 1/4, 1/2, 3/4, 1
    x = spread(12, 7, 4)
    t = (torch.arange(12, dtype=torch.float64) % 5) / 4
    pos = torch.tensor(3.0, dtype=torch.float64)
    loss(
        "bce",
        lambda z: F.binary_cross_entropy_with_logits(z, t, pos_weight=pos),
        x,
    )
    # cross entropy: 2 samples, 3 positions, 4 classes; memory order is
    # (n, w, c), PyTorch needs (n, c, w); one position is ignored
    x = spread(24, 11, 8).reshape(2, 3, 4)
    t = torch.tensor([[0, 3, 1], [2, -100, 3]])
    loss("cross_entropy", lambda z: F.cross_entropy(z.permute(0, 2, 1), t), x)
    # huber: delta 1.5, errors on both sides of it
    x, t = spread(12, 5, 8), spread(12, 3, 16)
    loss("huber", lambda z: F.huber_loss(z, t, delta=1.5), x)
    loss("mae", lambda z: F.l1_loss(z, t), x)
    loss("mse", lambda z: F.mse_loss(z, t), x)
    # dvh: 2 samples of 6 voxels, 3 structures of weights 0, 1/2 and 1; the
    # second sample lacks the first structure, both samples lack the third
    x, t = spread(12, 5, 8).reshape(2, 6) + 4, spread(12, 3, 16).reshape(2, 6) + 4
    parts = ((torch.arange(36, dtype=torch.float64) * 7) % 3 / 2).reshape(2, 6, 3)
    parts[1, :, 0] = 0
    parts[:, :, 2] = 0
    loss("dvh", lambda z: dvh(z, t, parts, width=0.5, steep=1.5, bins=16), x)


def dvh(x, t, parts, width, steep, bins):
    """Squared difference of two dose-volume histograms, mean over the bins and the
    structures that a sample has."""
    at = torch.arange(1, bins + 1, dtype=torch.float64) * width

    def histogram(dose, inside):  # share of the structure at each dose or more
        over = torch.sigmoid(steep / width * (dose[:, None] - at))
        return (over * inside[:, None]).sum(0) / inside.sum()

    apart = [
        (histogram(x[n], m) - histogram(t[n], m)) ** 2
        for n in range(len(x))
        for m in parts[n].T
        if m.sum() > 0
    ]
    return torch.stack(apart).mean()


def activations():
    for name, fn in [
        ("gelu", F.gelu),
        ("silu", F.silu),
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
    ]:
        x = spread(16, 5, 8).requires_grad_(True)
        y = fn(x)
        y.sum().backward()
        emit(f"golden_{name}", y.detach())
        emit(f"golden_{name}_grad", x.grad)


print("/* ops_golden.h -- numbers of PyTorch, made by ops_golden.py. */")
print("#ifndef SEG_OPS_GOLDEN_H\n#define SEG_OPS_GOLDEN_H")
print("// clang-format off\n")
losses()
activations()
print("// clang-format on\n#endif")
