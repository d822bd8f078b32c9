#!/usr/bin/env python3
"""optim_golden.py -- the numbers of optim_golden.h, computed by PyTorch.

    python3 tests/golden/optim_golden.py > tests/golden/optim_golden.h

Only needed to make the header again; the tests read the header. Of each row:
six parameters after updates 1, 6, 10 and 100, in float64 and then in float32,
one tensor at a time (foreach=False), as a user without options gets them. The
gradients are closed formulas of the index that float32 holds exactly, so the
tests make them themselves. Made with PyTorch 1.13.
"""

import torch

COUNT, SEEN = 6, (1, 6, 10, 100)


def spread(first, step, scale, dtype):
    """((i * step) mod 64 - 32) / scale for COUNT indices from `first` on."""
    i = torch.arange(first, first + COUNT, dtype=torch.float64)
    return (((i * step) % 64 - 32) / scale).to(dtype)


ROWS = [
    ("adamw", torch.optim.AdamW, dict(weight_decay=0.125)),
    (
        "adamw_short",
        torch.optim.AdamW,
        dict(betas=(0.75, 0.875), eps=0.0625, weight_decay=0),
    ),
    ("adam", torch.optim.Adam, dict(weight_decay=0.125)),
    ("radam", torch.optim.RAdam, dict()),
    ("radam_short", torch.optim.RAdam, dict(betas=(0.75, 0.875))),
    ("radam_decay", torch.optim.RAdam, dict(weight_decay=0.125)),
    ("descent", torch.optim.SGD, dict()),
    ("sgd", torch.optim.SGD, dict(momentum=0.875, weight_decay=0.125)),
    (
        "nesterov",
        torch.optim.SGD,
        dict(momentum=0.875, weight_decay=0.125, nesterov=True),
    ),
]


def trace(cls, options, dtype):
    """The parameters after each update of SEEN."""
    p = torch.nn.Parameter(spread(0, 13, 16, dtype))
    optim = cls([p], lr=0.0625, foreach=False, **options)
    out = []
    for t in range(1, SEEN[-1] + 1):
        p.grad = spread(COUNT * (t - 1), 29, 64, dtype)
        optim.step()
        if t in SEEN:
            out += [float(v) for v in p.detach()]
    return out


print("/* optim_golden.h -- numbers of PyTorch, made by optim_golden.py. */")
print("#ifndef SEG_OPTIM_GOLDEN_H\n#define SEG_OPTIM_GOLDEN_H")
print("// clang-format off\n")
for name, cls, options in ROWS:
    print(f"static const double golden_{name}[2][{COUNT * len(SEEN)}] = {{")
    for dtype, digits in ((torch.float64, 17), (torch.float32, 9)):
        values = trace(cls, options, dtype)
        print("    {")
        for i in range(0, len(values), 3):
            row = ", ".join(f"{v:.{digits}g}" for v in values[i : i + 3])
            print(f"        {row},")
        print("    },")
    print("};\n")
print("// clang-format on\n#endif")
