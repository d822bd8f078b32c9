"""twin.py -- what twins share: the steps of `export --twin`, and the arrays of
`export --arrays`.

A twin repeats the exported steps in float64, which is the truth, and in
float32, which is the measure: ours may be off by LIMITS, or by twice what
PyTorch in float32 is, since training amplifies rounding.
"""

import csv
import json
import sys

import numpy as np
import torch

LIMITS = ((1, 1e-5), (20, 1e-3), (50, 1e-2))  # steps, relative difference


def steps(folder):
    """Rows of loss.csv: dicts with step, epoch, lr, loss as text."""
    with open(folder / "loss.csv") as f:
        return list(csv.DictReader(f))


def batch(folder, row, names):
    """The inputs of that step as tensors, in the order of `names`."""
    return [
        torch.from_numpy(np.load(folder / f"step_{row['step']:0>4}_{name}.npy"))
        for name in names
    ]


def compare(folder, trace):
    """trace(rows, dtype) -> losses of these steps. Prints the line of JSON;
    returns the exit code."""
    rows = steps(folder)
    want = np.array(trace(rows, torch.float64))
    own = abs(np.array(trace(rows, torch.float32)) / want - 1)
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


def part(folder, name, inputs):
    """The samples of a part, a tensor for each input, and the case of each;
    None when the split has no such part."""
    if not (folder / f"{name}_case.npy").exists():
        return None
    arrays = [
        np.concatenate([np.load(p) for p in
                        sorted(folder.glob(f"{name}_[0-9]*_{i}.npy"))])
        for i in inputs
    ]  # fmt: skip
    case = np.load(folder / f"{name}_case.npy").astype(int)
    assert all(len(a) == len(case) for a in arrays)
    return [torch.from_numpy(a) for a in arrays] + [case]


def standardized(folder, field):
    """mean and sd of a standardized field, from the exported steps."""
    for line in (folder / "steps.txt").read_text().splitlines():
        words = dict(w.split("=", 1) for w in line.split() if "=" in w)
        if line.startswith("standardize ") and words.get("field") == field:
            return [np.array([float(v) for v in words[k].split(",")])
                    for k in ("mean", "sd")]  # fmt: skip
    raise SystemExit(f"{folder}/steps.txt: {field} is not standardized")
