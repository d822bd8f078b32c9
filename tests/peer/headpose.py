#!/usr/bin/env python3
"""headpose.py -- the twin of scripts/headpose_cnn.lua (--net small) in PyTorch.

    segengine scripts/headpose_cnn.lua export --twin DIR --steps 50 \
        --preset demo --dropout 0
    headpose.py DIR                   repeat these steps, compare the losses

    segengine scripts/headpose_cnn.lua export --arrays DIR --preset quick ...
    headpose.py --train DIR --epochs 40 --seed 1
                                      train on its own, on the same split

The second draws the recipe's changes itself: flip with yaw and roll negated,
turn, zoom, shift, and the colours but for the hue; AdamW with a cosine over
all epochs, an average of weights, MAE of standardized angles. Its result is
the mean error in degrees of each angle, on the test part, or without one the
validation part, of the best epoch.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import twin
import unet_torch as peer
from torch import nn
from torch.nn import functional as F

NAMES = ("image", "pose")


class Stage(nn.Module):
    """Two convolutions, the first of which halves the extents."""

    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, 2, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class PoseCNN(nn.Module):
    """net.pose_cnn, with its names of parameters."""

    def __init__(self, features, hidden=128, out=3, dropout=0.0, whiten=False):
        super().__init__()
        self.whiten = whiten
        width = [3] + list(features)
        self.stages = len(features)
        for i in range(1, self.stages + 1):
            setattr(self, f"stage{i}", Stage(width[i - 1], width[i]))
        self.hidden = nn.Linear(width[-1], hidden)
        self.dropout = dropout
        self.head = nn.Linear(hidden, out)

    def forward(self, x):
        x = F.instance_norm(x) if self.whiten else x / 255
        for i in range(1, self.stages + 1):
            x = getattr(self, f"stage{i}")(x)
        x = F.relu(self.hidden(x.mean((2, 3))))
        return self.head(F.dropout(x, self.dropout, self.training))


def load_engine(weights, whiten, dtype):
    """The network of init.safetensors, whose sizes say what it is."""
    features = []
    while (name := f"stage{len(features) + 1}.conv1.weight") in weights:
        features.append(weights[name].shape[0])
    hidden, out = weights["head.weight"].shape[1], weights["head.weight"].shape[0]
    net = PoseCNN(features, hidden, out, whiten=whiten)
    state = net.state_dict()
    for key in state:
        if not key.endswith("num_batches_tracked"):
            state[key] = torch.from_numpy(weights.pop(key).copy())
    if weights:
        raise KeyError(f"no place for {sorted(weights)}")
    net.load_state_dict(state)
    return net.to(dtype)


def compare(folder, a):
    def trace(rows, dtype):
        weights = peer.load_tensors(folder / "init.safetensors")
        net = load_engine(weights, a.whiten, dtype)
        optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)
        losses = []
        for row in rows:
            image, pose = twin.batch(folder, row, NAMES)
            for group in optim.param_groups:
                group["lr"] = float(row["lr"])
            optim.zero_grad()
            loss = (net(image.to(dtype)) - pose.to(dtype)).abs().mean()
            loss.backward()
            optim.step()
            losses.append(loss.item())
        return losses

    return twin.compare(folder, trace)


# Training by itself ----------------------------------------------------------


def warp(x, a, rng):
    """Each turned, scaled about its middle and moved, as `affine` does; what
    comes in from outside is the border."""
    n, turns = len(x), np.radians(rng.uniform(-a.turn, a.turn, len(x)))
    zoom = rng.uniform(1 - a.zoom, 1 + a.zoom, n)
    theta = np.zeros((n, 2, 3), "f4")
    theta[:, 0, 0] = theta[:, 1, 1] = np.cos(turns) / zoom
    theta[:, 0, 1], theta[:, 1, 0] = np.sin(turns) / zoom, -np.sin(turns) / zoom
    # extents are 2 wide in these coordinates
    theta[:, :, 2] = 2 * a.shift * rng.uniform(-1, 1, (n, 2))
    grid = F.affine_grid(torch.from_numpy(theta), x.shape, align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def augment(image, pose, zero, a, rng):
    """The recipe's changes; `zero`: what 0 degrees are in standardized angles."""
    x, pose = image.clone(), pose.clone()
    flip = torch.from_numpy(rng.random(len(x)) < 0.5)
    x[flip] = x[flip].flip(-1)
    for k in (0, 2)[: 1 if pose.shape[1] == 2 else 2]:
        pose[flip, k] = 2 * zero[k] - pose[flip, k]
    x = warp(x, a, rng)

    def factor(by):
        f = rng.uniform(1 - by, 1 + by, (len(x), 1, 1, 1)).astype("f4")
        return torch.from_numpy(f)

    def gray(y):
        return 0.2989 * y[:, :1] + 0.587 * y[:, 1:2] + 0.114 * y[:, 2:]

    x = (x * factor(a.jitter)).clamp(0, 255)
    f = factor(a.jitter)
    x = (f * x + (1 - f) * gray(x).mean((1, 2, 3), keepdim=True)).clamp(0, 255)
    f = factor(a.jitter)
    return (f * x + (1 - f) * gray(x)).clamp(0, 255), pose


def errors(net, part, sd, batch):
    """Mean error of each angle in degrees."""
    image, pose, _ = part
    net.eval()
    with torch.no_grad():
        off = torch.cat([(net(image[i : i + batch]) - pose[i : i + batch]).abs()
                         for i in range(0, len(image), batch)])  # fmt: skip
    return off.mean(0).numpy() * sd


def train(folder, a):
    parts = {p: twin.part(folder, p, NAMES) for p in ("train", "valid", "test")}
    mean, sd = twin.standardized(folder, "pose")
    image, pose, _ = parts["train"]
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    net = PoseCNN(a.features, out=pose.shape[1], dropout=a.dropout,
                  whiten=a.whiten)
    average = torch.optim.swa_utils.AveragedModel(
        net, avg_fn=lambda old, new, t: old + (1 - min(a.ema, (1 + t) / (10 + t)))
        * (new - old), use_buffers=True)  # fmt: skip
    optim = torch.optim.AdamW(net.parameters(), lr=a.lr, weight_decay=a.decay)
    started, best, best_epoch, kept = time.time(), math.inf, 0, None
    for epoch in range(1, a.epochs + 1):
        for group in optim.param_groups:
            group["lr"] = a.lr * (1 + math.cos(math.pi * (epoch - 1) / a.epochs)) / 2
        net.train()
        order, total = rng.permutation(len(image)), 0.0
        for at in range(0, len(order), a.batch):
            pick = torch.from_numpy(order[at : at + a.batch])
            x, t = augment(image[pick], pose[pick], -mean / sd, a, rng)
            optim.zero_grad(set_to_none=True)
            loss = (net(x) - t).abs().mean()
            loss.backward()
            optim.step()
            average.update_parameters(net)
            total += loss.item() * len(x)
        value = -float(epoch)  # without a validation part the last counts
        if parts["valid"]:
            value = float(errors(average, parts["valid"], sd, a.batch).mean())
        if value < best:
            best, best_epoch = value, epoch
            kept = {k: v.clone() for k, v in average.state_dict().items()}
        print(f"epoch {epoch}/{a.epochs} loss {total / len(image):.4f} valid "
              f"{value:.3f} {time.time() - started:.0f} s", file=sys.stderr)  # fmt: skip
    average.load_state_dict(kept)
    found = errors(average, parts["test"] or parts["valid"], sd, a.batch)
    print(json.dumps({
        "torch": torch.__version__,
        "seed": a.seed,
        "epochs": a.epochs,
        "best_epoch": best_epoch,
        "valid_mae": best if parts["valid"] else None,
        "test_mae": float(found.mean()),
        "by_angle": [round(float(v), 4) for v in found],
        "seconds": round(time.time() - started, 1),
    }))  # fmt: skip
    return 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("folder", type=pathlib.Path)
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--whiten", action="store_true")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--features", default=[32, 64, 128, 256],
                    type=lambda text: [int(v) for v in text.split(",")])  # fmt: skip
    for name, value in (("decay", 1e-4), ("lr", 1e-3), ("ema", 0.99), ("dropout", 0.0),
                        ("turn", 0.0), ("zoom", 0.0), ("shift", 0.0), ("jitter", 0.2)):  # fmt: skip
        ap.add_argument(f"--{name}", type=float, default=value)
    for name, value in (("epochs", 40), ("batch", 32), ("seed", 1)):
        ap.add_argument(f"--{name}", type=int, default=value)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    return train(a.folder, a) if a.train else compare(a.folder, a)


if __name__ == "__main__":
    sys.exit(main())
