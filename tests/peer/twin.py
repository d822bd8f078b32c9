"""twin.py -- what the twins in this folder share: the same steps, and parts.

A twin gives the network, its loss and how a batch is fed; the rest is alike.
What `export --twin` wrote is init.safetensors, loss.csv and a .npy for each
input of each step; what `export --arrays` wrote a .npy for each input of each
batch of a part and PART_case.npy with the case of each sample.
"""

import csv
import json
import pathlib
import sys

import numpy as np
import torch
import unet_torch as peer

LIMITS = ((20, 1e-3), (50, 1e-2))  # steps, relative difference of the loss
FIRST = 1e-5  # of the first step


def rows_of(folder):
    with open(folder / "loss.csv") as f:
        return list(csv.DictReader(f))


def trace(folder, rows, make, optimiser, loss, names, dtype, clip=0):
    """Losses of the exported steps in `dtype`. make(weights) -> network with
    these weights; optimiser(parameters); loss(network, {name: batch})."""
    net = make(peer.load_tensors(folder / "init.safetensors")).to(dtype)
    net.train()
    optim, losses = optimiser(net.parameters()), []
    for row in rows:
        batch = {
            name: torch.from_numpy(
                np.load(folder / f"step_{row['step']:0>4}_{name}.npy")
            ).to(dtype)
            for name in names
        }
        for group in optim.param_groups:
            group["lr"] = float(row["lr"])
        optim.zero_grad()
        value = loss(net, batch)
        value.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optim.step()
        losses.append(value.item())
    return np.array(losses)


def compare(folder, *how, **more):
    """The same steps in double, the truth, and in float, the measure: ours may
    be off by LIMITS or by twice what PyTorch in float is. -> exit code"""
    rows = rows_of(folder)
    want = trace(folder, rows, *how, torch.float64, **more)
    own = abs(trace(folder, rows, *how, torch.float32, **more) / want - 1)
    off = abs(np.array([float(row["loss"]) for row in rows]) / want - 1)
    for i in range(len(rows)):
        print(f"step {i + 1}: loss {want[i]:.6f}, off by {off[i]:.1e}; "
              f"PyTorch float32 {own[i]:.1e}", file=sys.stderr)  # fmt: skip
    good = len(rows) > 0 and bool(off[0] <= max(FIRST, 2 * own[0]))
    for steps, limit in LIMITS:
        # not for NaN
        good &= bool(off[:steps].max() <= max(limit, 2 * own[:steps].max()))
    print(json.dumps({
        "steps": len(rows),
        "ok": good,
        "off": {f"first {n}": off[:n].max() for n in (1, 20, 50)},
        "pytorch_float32": {f"first {n}": own[:n].max() for n in (1, 20, 50)},
    }))  # fmt: skip
    return 0 if good else 1


def load_part(folder, part, names=("image", "mask")):
    """{name: samples}, and the case of each; None when there is no such part."""
    folder = pathlib.Path(folder)
    if not (folder / f"{part}_case.npy").exists():
        return None
    arrays = {
        name: torch.from_numpy(np.concatenate([
            np.load(p) for p in sorted(folder.glob(f"{part}_[0-9]*_{name}.npy"))
        ]))
        for name in names
    }  # fmt: skip
    case = np.load(folder / f"{part}_case.npy").astype(int)
    assert all(len(a) == len(case) for a in arrays.values())
    return arrays, case
