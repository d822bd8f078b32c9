#!/usr/bin/env python3
"""brain_unet.py -- the PyTorch reference of scripts/brain_unet.lua.

    segengine scripts/brain_unet.lua export --reference DIR --steps 20
    brain_unet.py DIR                 repeat these steps, compare the losses

    segengine scripts/brain_unet.lua export --arrays DIR --data ... --preset quick
    brain_unet.py --train DIR --epochs 25 --seed 1
                                      train independently, on the same split

The first form reads only the files of `export` and fails (exit 1) when the
exported losses differ from losses in float64 by more than LIMITS. Training
amplifies rounding, at full size beyond any fixed limit, so PyTorch in float32
repeats the steps as well: twice its difference is also allowed.

The second form trains a reference for parity: AdamW with a cosine schedule over
all epochs, the recipe's flips and intensity changes, BCE + batch Dice, the
weights of the best epoch by validation (of the last epoch without a validation
part); its result is the Dice of whole test patients (3-D, threshold 0.5).

Both end with one line of JSON on stdout; progress goes to stderr.
"""

import statistics
import sys

import numpy as np
import torch
import reference
import unet_torch as peer

NAMES = ("image", "mask")


def features(base):
    return [base, 2 * base, 4 * base, 8 * base]


def step(net, optim, image, mask):
    loss = peer.bce_dice(net(image), mask)
    return reference.update(net, optim, loss)


# The same steps --------------------------------------------------------------


def trace(folder, a, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    weights = peer.load_tensors(folder / "init.safetensors")
    net = peer.UNet(features(weights["head.weight"].shape[1])).to(dtype)
    net = net.to(memory_format=torch.channels_last)
    peer.load_engine(net, weights)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)
    return reference.repeat(folder, rows, NAMES, optim, dtype,
                       lambda image, mask: step(net, optim, image, mask))  # fmt: skip


# Training by itself ----------------------------------------------------------


def augment(image, mask, rng, contrast=0.1, brightness=0.1, gamma=(0.3, 0.9, 1.1),
            noise=0.05):  # fmt: skip
    """Augmentation of slices, drawn for each slice: flip along w; contrast,
    brightness, gamma (probability, from, to); noise (standard deviation, with
    probability 0.3)."""
    image, mask = image.clone(), mask.clone()
    for x, t in zip(image, mask):
        if rng.random() < 0.5:
            x.copy_(x.flip(-1))
            t.copy_(t.flip(-1))
        mean = x.mean()
        x.sub_(mean).mul_(rng.uniform(1 - contrast, 1 + contrast)).add_(mean)
        if brightness:
            x.add_(brightness * rng.uniform(-1, 1))
        low, span = x.min(), x.max() - x.min()
        if rng.random() < gamma[0] and span > 0:
            g = rng.uniform(*gamma[1:])
            x.sub_(low).div_(span).pow_(g).mul_(span).add_(low)
        if rng.random() < 0.3:
            x.add_(torch.from_numpy(rng.normal(0, noise, x.shape).astype("f4")))
    return image, mask


def dice_by_case(net, part, batch):
    """Dice of each whole case; a case with empty ground truth and empty prediction
    is skipped, as in the recipe's metric."""
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


def mean_dice(net, part, batch):
    """The mean over cases; None when the part does not exist."""
    if part is None:
        return None
    return statistics.mean(dice_by_case(net, part, batch).values() or [0.0])


def facts(net, parts, batch):
    """What the line of JSON says of the cases that are judged."""
    part = reference.judged(parts)
    cases = dice_by_case(net, parts[part], batch)
    return {
        "part": part,
        "dice_mean": statistics.mean(cases.values()) if cases else None,
        "dice_median": statistics.median(cases.values()) if cases else None,
        "dice": {c: round(v, 4) for c, v in cases.items()},
    }


def train(folder, a):
    parts = {p: reference.part(folder, p, NAMES) for p in ("train", "valid", "test")}
    image, mask, _ = parts["train"]
    net = peer.UNet(features(a.base)).to(memory_format=torch.channels_last)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)

    def one(pick, epoch, rng):
        reference.set_rate(optim, reference.cosine(a, epoch))
        return step(net, optim, *augment(image[pick], mask[pick], rng))

    said = reference.course(a, len(image), net, one,
                       lambda: mean_dice(net, parts["valid"], a.batch))  # fmt: skip
    return said | facts(net, parts, a.batch)


if __name__ == "__main__":
    options = {"decay": 1e-4, "lr": 1e-3, "epochs": 25, "batch": 16, "base": 32}
    sys.exit(reference.main(__doc__, options, train, trace))
