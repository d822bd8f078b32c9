"""reference.py -- shared by the PyTorch references: the steps of `export
--reference`, the arrays of `export --arrays`, the training loop and the command
line.

A reference repeats the exported steps in float64, which is the truth, and in
float32, which is the measure: segengine may be off by LIMITS, or by twice as
much as PyTorch in float32, since training amplifies rounding.
"""

import argparse
import copy
import csv
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch

LIMITS = ((1, 1e-5), (20, 1e-3), (50, 1e-2))  # steps, relative difference


def steps(folder):
    """Rows of loss.csv: dicts with step, epoch, lr, loss as text."""
    with open(folder / "loss.csv") as f:
        return list(csv.DictReader(f))


def batch(folder, row, names):
    """The inputs of one step as tensors, in the order of `names`."""
    return [
        torch.from_numpy(np.load(folder / f"step_{row['step']:0>4}_{name}.npy"))
        for name in names
    ]


def repeat(folder, rows, names, optim, dtype, step):
    """Repeats the exported steps in `dtype` with their learning rates. step(*inputs),
    with the inputs in the order of `names`, returns a loss. Yields the loss and the
    seconds of each step."""
    for row in rows:
        set_rate(optim, row["lr"])
        inputs = [x.to(dtype) for x in batch(folder, row, names)]
        began = time.perf_counter()
        loss = step(*inputs)
        yield loss, time.perf_counter() - began


def compare(folder, trace):
    """Compares the exported losses with trace(rows, dtype), which repeats the steps
    like `repeat`. Prints the line of JSON; returns the exit code."""
    rows = steps(folder)
    want = np.array([loss for loss, _ in trace(rows, torch.float64)])
    own = abs(np.array([loss for loss, _ in trace(rows, torch.float32)]) / want - 1)
    off = abs(np.array([float(row["loss"]) for row in rows]) / want - 1)
    for i in range(len(rows)):
        print(f"step {i + 1}: loss {want[i]:.6f}, off by {off[i]:.1e}; "
              f"PyTorch float32 {own[i]:.1e}", file=sys.stderr)  # fmt: skip
    good = len(rows) > 0
    for n, limit in LIMITS:
        # not for NaN
        good &= bool(off[:n].max() <= max(limit, 2 * own[:n].max()))
    print(json.dumps({
        "steps": len(rows),
        "ok": good,
        "off": {f"first {n}": off[:n].max() for n, _ in LIMITS},
        "pytorch_float32": {f"first {n}": own[:n].max() for n, _ in LIMITS},
    }))  # fmt: skip
    return 0 if good else 1


def clock(folder, trace):
    """Times the exported steps in float32: the median without the first."""
    took = [seconds for _, seconds in trace(steps(folder), torch.float32)]
    print(json.dumps({
        "torch": torch.__version__,
        "step_ms": 1000 * statistics.median(took[1:]),
        "steps": len(took) - 1,
    }))  # fmt: skip
    return 0


def part(folder, name, inputs):
    """The samples of a part of the split, a tensor for each input, and the case of
    each sample; None when the split lacks the part. Sequences are padded with 0 to
    the length of the longest."""
    if not (folder / f"{name}_case.npy").exists():
        return None

    def together(batches):
        longest = max(b.shape[-1] for b in batches)
        return np.concatenate([
            np.pad(b, [(0, 0)] * (b.ndim - 1) + [(0, longest - b.shape[-1])])
            for b in batches
        ])  # fmt: skip

    arrays = [
        together([np.load(p) for p in sorted(folder.glob(f"{name}_[0-9]*_{i}.npy"))])
        for i in inputs
    ]
    case = np.load(folder / f"{name}_case.npy").astype(int)
    assert all(len(a) == len(case) for a in arrays)
    return [torch.from_numpy(a) for a in arrays] + [case]


def standardized(folder, field):
    """Mean and standard deviation of a standardized field, from the exported steps."""
    for line in (folder / "steps.txt").read_text().splitlines():
        words = dict(w.split("=", 1) for w in line.split() if "=" in w)
        if line.startswith("standardize ") and words.get("field") == field:
            return [np.array([float(v) for v in words[k].split(",")])
                    for k in ("mean", "sd")]  # fmt: skip
    raise SystemExit(f"{folder}/steps.txt: {field} is not standardized")


def set_rate(optim, lr):
    for group in optim.param_groups:
        group["lr"] = float(lr)


def update(net, optim, loss, clip=None):
    """One optimiser step for `loss`, gradients clipped to a norm of `clip`. Returns
    the loss."""
    optim.zero_grad(set_to_none=True)
    loss.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
    optim.step()
    return loss.item()


class Average:
    """The recipe's `ema`: moving average of weights and running statistics over
    all updates of `net`, as in lua/train/average.lua."""

    def __init__(self, net, limit):
        self.net, self.limit, self.updates = copy.deepcopy(net), limit, 0

    def update(self, net):
        self.updates += 1
        keep = min(self.limit, (1 + self.updates) / (10 + self.updates))
        now = net.state_dict()
        for name, x in self.net.state_dict().items():
            if x.is_floating_point():
                x.lerp_(now[name], 1 - keep)
            else:
                x.copy_(now[name])


def course(a, count, net, step, measure, measured=None, sign=1):
    """Trains `net` for a.epochs of `count` samples, a.batch in a step.

    step(pick, epoch, rng) takes a step with the samples `pick` and returns its
    loss; measure() returns the metric after an epoch, None when the split has no
    validation part: then the last epoch counts. sign: -1 when less is better.
    `measured` (or net) ends with the weights of the best epoch. Returns the facts
    about the training for the line of JSON."""
    measured = net if measured is None else measured
    rng, started = np.random.default_rng(a.seed), time.time()
    best, best_rank, best_epoch, kept = None, -math.inf, 0, None
    for epoch in range(1, a.epochs + 1):
        net.train()
        order, total = rng.permutation(count), 0.0
        for at in range(0, count, a.batch):
            pick = order[at : at + a.batch]
            total += step(pick, epoch, rng) * len(pick)
        value = measure()
        rank = epoch if value is None else sign * value
        if rank > best_rank:
            best, best_rank, best_epoch = value, rank, epoch
            kept = {k: v.clone() for k, v in measured.state_dict().items()}
        said = "" if value is None else f" valid {value:.4f}"
        print(f"epoch {epoch}/{a.epochs} loss {total / count:.4f}{said} "
              f"{time.time() - started:.0f} s", file=sys.stderr)  # fmt: skip
    measured.load_state_dict(kept)
    return {
        "torch": torch.__version__,
        "seed": a.seed,
        "epochs": a.epochs,
        "best_epoch": best_epoch,
        "valid": best,
        "valid_last": value,
        "seconds": round(time.time() - started, 1),
    }


def judged(parts):
    """The part for the result: test, or valid when a fold has no test part."""
    return "test" if parts["test"] else "valid"


def cosine(a, epoch):
    """Learning rate of an epoch (from 1): a cosine from a.lr to 0 over all epochs."""
    return a.lr * (1 + math.cos(math.pi * (epoch - 1) / a.epochs)) / 2


def main(doc, defaults, train, trace):
    """The command line of a reference. defaults: its options, each of the type of
    its default (False: a flag; a list: whole numbers with commas).
    train(folder, a) returns facts for the line of JSON; trace(folder, a, rows,
    dtype) repeats the exported steps in dtype, like `repeat`."""
    ap = argparse.ArgumentParser(description=doc.splitlines()[0])
    ap.add_argument("folder", type=pathlib.Path)
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--clock", action="store_true")
    for name, value in {"threads": 2, "seed": 1, **defaults}.items():
        if value is False:
            ap.add_argument(f"--{name}", action="store_true")
        else:
            kind = type(value)
            if kind is list:
                kind = lambda text: [int(v) for v in text.split(",")]  # noqa: E731
            ap.add_argument(f"--{name}", type=kind, default=value)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    if not a.train:
        task = clock if a.clock else compare
        return task(a.folder, lambda rows, t: trace(a.folder, a, rows, t))
    print(json.dumps(train(a.folder, a)))
    return 0
