#!/usr/bin/env python3
"""brain_unet.py -- the twin of scripts/brain_unet.lua in PyTorch.

    segengine scripts/brain_unet.lua export --twin DIR --steps 20
    brain_unet.py DIR                 repeat these steps, compare the losses

    segengine scripts/brain_unet.lua export --arrays DIR --data ... --preset quick
    brain_unet.py --train DIR --epochs 25 --seed 1
                                      train on its own, on the same split

The first reads nothing but what `export` wrote and fails (exit 1) when the
losses part from those in double by more than LIMITS. Training amplifies
rounding, at full size beyond any fixed limit, so PyTorch in float32 goes the
same way beside it: twice its own distance is allowed too.

The second is the judge of parity: AdamW with cosine over all epochs, flips and
intensity changes as the recipe's, BCE + batch Dice, the weights of the best
epoch by validation (of the last without such a part); its result is the Dice
of whole test patients (3-D, threshold 0.5).

Both close with one line of JSON on stdout; progress goes to stderr.
"""

import argparse
import csv
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import unet_torch as peer

LIMITS = ((20, 1e-3), (50, 1e-2))  # steps, relative difference of the loss


def features(base):
    return [base, 2 * base, 4 * base, 8 * base]


# The same steps --------------------------------------------------------------


def trace(folder, rows, decay, dtype):
    """Losses of the exported steps, computed in `dtype`."""
    weights, losses = peer.load_tensors(folder / "init.safetensors"), []
    net = peer.UNet(features(weights["head.weight"].shape[1])).to(dtype)
    peer.load_engine(net, weights)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=decay)
    for row in rows:
        image, mask = (
            torch.from_numpy(np.load(folder / f"step_{row['step']:0>4}_{name}.npy"))
            for name in ("image", "mask")
        )
        for group in optim.param_groups:
            group["lr"] = float(row["lr"])
        optim.zero_grad()
        loss = peer.bce_dice(net(image.to(dtype)), mask.to(dtype))
        loss.backward()
        optim.step()
        losses.append(loss.item())
    return np.array(losses)


def compare(folder, decay):
    with open(folder / "loss.csv") as f:
        rows = list(csv.DictReader(f))
    want = trace(folder, rows, decay, torch.float64)
    own = abs(trace(folder, rows, decay, torch.float32) / want - 1)
    off = abs(np.array([float(row["loss"]) for row in rows]) / want - 1)
    for i in range(len(rows)):
        print(f"step {i + 1}: loss {want[i]:.6f}, off by {off[i]:.1e}; "
              f"PyTorch float32 {own[i]:.1e}", file=sys.stderr)  # fmt: skip
    good = len(rows) > 0
    for steps, limit in LIMITS:
        # not for NaN
        good &= bool(off[:steps].max() <= max(limit, 2 * own[:steps].max()))
    print(json.dumps({
        "steps": len(rows),
        "ok": good,
        "off": {f"first {n}": off[:n].max() for n, _ in LIMITS},
        "pytorch_float32": {f"first {n}": own[:n].max() for n, _ in LIMITS},
    }))  # fmt: skip
    return 0 if good else 1


# Training by itself ----------------------------------------------------------


def load_part(folder, part):
    """image and mask (N, 1, H, W), and the case of each slice; None when the
    split has no such part."""
    if not (folder / f"{part}_case.npy").exists():
        return None
    image, mask = (
        np.concatenate([np.load(p) for p in
                        sorted(folder.glob(f"{part}_[0-9]*_{name}.npy"))])
        for name in ("image", "mask")
    )  # fmt: skip
    case = np.load(folder / f"{part}_case.npy").astype(int)
    assert len(case) == len(image) == len(mask)
    return torch.from_numpy(image), torch.from_numpy(mask), case


def augment(image, mask, rng):
    """The recipe's changes: flip along w; contrast, brightness, gamma, noise,
    each drawn for each slice."""
    image, mask = image.clone(), mask.clone()
    for x, t in zip(image, mask):
        if rng.random() < 0.5:
            x.copy_(x.flip(-1))
            t.copy_(t.flip(-1))
        mean = x.mean()
        x.sub_(mean).mul_(rng.uniform(0.9, 1.1)).add_(mean)
        x.add_(0.1 * rng.uniform(-1, 1))
        if rng.random() < 0.3:
            low, span = x.min(), x.max() - x.min()
            if span > 0:
                g = rng.uniform(0.9, 1.1)
                x.sub_(low).div_(span).pow_(g).mul_(span).add_(low)
        if rng.random() < 0.3:
            noise = rng.normal(0, 0.05, x.shape).astype("f4")
            x.add_(torch.from_numpy(noise))
    return image, mask


def dice_by_case(net, part, batch):
    """Dice of each whole case; a case without truth and prediction is left
    out, as the recipe's metric does."""
    image, mask, case = part
    counts = {}
    net.eval()
    with torch.no_grad():
        for at in range(0, len(image), batch):
            p = net(image[at : at + batch]) > 0  # probability over 0.5
            t = mask[at : at + batch] > 0.5
            for one, true, c in zip(p, t, case[at : at + batch]):
                sums = counts.setdefault(c, [0, 0])
                sums[0] += 2 * int((one & true).sum())
                sums[1] += int(one.sum()) + int(true.sum())
    return {int(c): a / b for c, (a, b) in counts.items() if b}


def train(folder, a):
    parts = {p: load_part(folder, p) for p in ("train", "valid", "test")}
    image, mask, _ = parts["train"]
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    net = peer.UNet(features(a.base)).to(memory_format=torch.channels_last)
    optim = torch.optim.AdamW(net.parameters(), lr=a.lr, weight_decay=a.decay)
    started, best, best_epoch, kept = time.time(), -1.0, 0, None
    for epoch in range(1, a.epochs + 1):
        rate = a.lr * (1 + math.cos(math.pi * (epoch - 1) / a.epochs)) / 2
        for group in optim.param_groups:
            group["lr"] = rate
        net.train()
        order, total = rng.permutation(len(image)), 0.0
        for at in range(0, len(order), a.batch):
            pick = torch.from_numpy(order[at : at + a.batch])
            x, t = augment(image[pick], mask[pick], rng)
            optim.zero_grad(set_to_none=True)
            loss = peer.bce_dice(net(x), t)
            loss.backward()
            optim.step()
            total += loss.item() * len(x)
        line = f"epoch {epoch}/{a.epochs} loss {total / len(image):.4f}"
        # without a validation part the last epoch counts
        value = float(epoch)
        if parts["valid"]:
            dice = dice_by_case(net, parts["valid"], a.batch)
            value = statistics.mean(dice.values()) if dice else 0.0
            line += f" valid {value:.4f}"
        if value > best:
            best, best_epoch = value, epoch
            kept = {k: v.clone() for k, v in net.state_dict().items()}
        print(f"{line} {time.time() - started:.0f} s", file=sys.stderr)
    net.load_state_dict(kept)
    # a fold has no test part: its valid one is measured
    part = "test" if parts["test"] else "valid"
    cases = dice_by_case(net, parts[part], a.batch)
    dice = list(cases.values())
    print(json.dumps({
        "torch": torch.__version__,
        "seed": a.seed,
        "epochs": a.epochs,
        "best_epoch": best_epoch,
        "valid_dice": best if parts["valid"] else None,
        "part": part,
        "test_dice_mean": statistics.mean(dice) if dice else None,
        "test_dice_median": statistics.median(dice) if dice else None,
        "test_dice": {c: round(v, 4) for c, v in cases.items()},
        "seconds": round(time.time() - started, 1),
    }))  # fmt: skip
    return 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("folder", type=pathlib.Path)
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--decay", type=float, default=1e-4)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--epochs", type=int, default=25)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--base", type=int, default=32)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    if a.train:
        return train(a.folder, a)
    return compare(a.folder, a.decay)


if __name__ == "__main__":
    sys.exit(main())
