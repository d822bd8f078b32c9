#!/usr/bin/env python3
"""schedule_golden.py -- rates of PyTorch's schedulers for schedule_golden.lua.

    python3 tests/golden/schedule_golden.py > tests/golden/schedule_golden.lua

Only needed to make the table again; tests/lua/train/schedule.lua reads it. Each row has
the learning rates of 100 steps of an optimiser with rate 0.125. Made with PyTorch
1.13; PolynomialLR, which this version lacks, by its formula.
"""

import torch
from torch.optim import lr_scheduler as s

LR, STEPS = 0.125, 100


def watched(i):
    """The metric for plateau after step i: it falls, jumps and stays constant."""
    return 1 / (1 + min(i, 40)) + ((i * 37) % 64) / 640


def rates(make, told=None):
    p = torch.nn.Parameter(torch.zeros(1))
    optim = torch.optim.SGD([p], lr=LR)
    schedule = make(optim)
    out = []
    for i in range(STEPS):
        out.append(optim.param_groups[0]["lr"])
        optim.step()
        schedule.step(*([told(i)] if told else []))
    return out


def warm(o, n):
    return s.LinearLR(o, start_factor=1 / n, total_iters=n - 1)


ROWS = [
    ("cosine", lambda o: s.CosineAnnealingLR(o, 100)),
    ("cosine_floor", lambda o: s.CosineAnnealingLR(o, 50, eta_min=0.01)),
    ("step", lambda o: s.StepLR(o, 30, 0.5)),
    ("multistep", lambda o: s.MultiStepLR(o, [10, 50, 55], 0.1)),
    ("exponential", lambda o: s.ExponentialLR(o, 0.95)),
    ("poly", lambda o: s.LambdaLR(o, lambda i: (1 - i / STEPS) ** 0.9)),
    ("warmup", lambda o: warm(o, 20)),
    (
        "warm_cosine",
        lambda o: s.SequentialLR(
            o, [warm(o, 10), s.CosineAnnealingLR(o, 90)], [10]
        ),
    ),
    (
        "chain",
        lambda o: s.SequentialLR(
            o,
            [warm(o, 10), s.StepLR(o, 20, 0.5), s.ExponentialLR(o, 0.9)],
            [10, 70],
        ),
    ),
    (
        "product",
        lambda o: s.ChainedScheduler(
            [warm(o, 20), s.ExponentialLR(o, 0.98), s.StepLR(o, 40, 0.5)]
        ),
    ),
    ("onecycle", lambda o: s.OneCycleLR(o, LR, STEPS, cycle_momentum=False)),
    (
        "onecycle_linear",
        lambda o: s.OneCycleLR(
            o, LR, STEPS, pct_start=0.4, anneal_strategy="linear",
            div_factor=10, final_div_factor=100, cycle_momentum=False,
        ),
    ),
    (
        "onecycle_three",
        lambda o: s.OneCycleLR(
            o, LR, STEPS, pct_start=0.25, three_phase=True,
            cycle_momentum=False,
        ),
    ),
    (
        "plateau",
        lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=3),
        watched,
    ),
    (
        "plateau_absolute",
        lambda o: s.ReduceLROnPlateau(
            o, "min", factor=0.25, patience=5, threshold=0.02,
            threshold_mode="abs", cooldown=4, min_lr=0.001,
        ),
        watched,
    ),
    (
        "plateau_max",
        lambda o: s.ReduceLROnPlateau(o, "max", patience=2, cooldown=1),
        lambda i: 1 - watched(i),
    ),
]

print("-- schedule_golden.lua -- rates of PyTorch, made by schedule_golden.py.")
print("return {")
for name, make, *told in ROWS:
    print(f"  {name} = {{")
    row = [f"{v:.9g}" for v in rates(make, *told)]
    for i in range(0, STEPS, 5):
        print("    " + ", ".join(row[i : i + 5]) + ",")
    print("  },")
print("}")
