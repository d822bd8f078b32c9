#!/usr/bin/env python3
"""headpose.py -- the PyTorch reference of scripts/headpose_cnn.lua (--net small).

    segengine scripts/headpose_cnn.lua export --reference DIR --steps 50 \
        --preset demo --dropout 0
    headpose.py DIR                   repeat these steps, compare the losses

    segengine scripts/headpose_cnn.lua export --arrays DIR --preset quick ...
    headpose.py --train DIR --epochs 40 --seed 1
                                      train independently, on the same split

When segengine starts from --start RUN, --start DIR/init.safetensors of an
export of the first form starts here with the same convolutions.

The second form draws the recipe's augmentations itself: flip with yaw and roll
negated, rotation, zoom, shift, colours except the hue, and a grey box
(--cutout); AdamW with a cosine schedule over all epochs, a moving average of
weights, MAE of standardized angles. Its result is the mean error in degrees of
each angle at the best epoch, on the test part, or on the validation part when
there is no test part.
"""

import sys

import numpy as np
import torch
import reference
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
    """net.pose_cnn, with segengine's names of parameters."""

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
    """The network of init.safetensors, with its widths taken from the tensors."""
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


def begin(net, weights):
    """Loads the convolutions and norms of an init.safetensors, like --start."""
    state = net.state_dict()
    for key in weights:
        if key.startswith("stage"):
            state[key] = torch.from_numpy(weights[key].copy())
    net.load_state_dict(state)


def step(net, optim, image, pose):
    loss = (net(image) - pose).abs().mean()
    return reference.update(net, optim, loss)


def trace(folder, a, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    weights = peer.load_tensors(folder / "init.safetensors")
    net = load_engine(weights, a.whiten, dtype)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)
    return reference.repeat(folder, rows, NAMES, optim, dtype,
                       lambda image, pose: step(net, optim, image, pose))  # fmt: skip


# Training by itself ----------------------------------------------------------


def warp(x, a, rng):
    """Rotates, scales and shifts each image about its centre, as `affine` does;
    values outside are the border's."""
    n, turns = len(x), np.radians(rng.uniform(-a.turn, a.turn, len(x)))
    zoom = rng.uniform(1 - a.zoom, 1 + a.zoom, n)
    theta = np.zeros((n, 2, 3), "f4")
    theta[:, 0, 0] = theta[:, 1, 1] = np.cos(turns) / zoom
    theta[:, 0, 1], theta[:, 1, 0] = np.sin(turns) / zoom, -np.sin(turns) / zoom
    # in these coordinates an image is 2 wide and 2 high
    theta[:, :, 2] = 2 * a.shift * rng.uniform(-1, 1, (n, 2))
    grid = F.affine_grid(torch.from_numpy(theta), x.shape, align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def augment(image, pose, zero, a, rng):
    """The recipe's augmentations; `zero`: the standardized value of 0 degrees."""
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
    return cut_out((f * x + (1 - f) * gray(x)).clamp(0, 255), a.cutout, rng), pose


def cut_out(x, share, rng):
    """In a share of the images sets a box, 0.1 .. 0.4 of each extent, to the mean
    of each channel."""
    for one in x:
        if rng.random() < share:
            box = []
            for n in one.shape[1:]:
                side = max(1, round(n * rng.uniform(0.1, 0.4)))
                at = int(rng.integers(0, n - side + 1))
                box.append(slice(at, at + side))
            one[:, box[0], box[1]] = one.mean((1, 2))[:, None, None]
    return x


def errors(net, part, sd, batch):
    """Mean error of each angle in degrees."""
    image, pose, _ = part
    net.eval()
    with torch.no_grad():
        off = torch.cat([(net(image[i : i + batch]) - pose[i : i + batch]).abs()
                         for i in range(0, len(image), batch)])  # fmt: skip
    return off.mean(0).numpy() * sd


def train(folder, a):
    parts = {p: reference.part(folder, p, NAMES) for p in ("train", "valid", "test")}
    mean, sd = reference.standardized(folder, "pose")
    image, pose, _ = parts["train"]
    net = PoseCNN(a.features, out=pose.shape[1], dropout=a.dropout,
                  whiten=a.whiten)
    if a.start:
        begin(net, peer.load_tensors(a.start))
    average = reference.Average(net, a.ema)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)

    def one(pick, epoch, rng):
        reference.set_rate(optim, reference.cosine(a, epoch))
        x, t = augment(image[pick], pose[pick], -mean / sd, a, rng)
        loss = step(net, optim, x, t)
        average.update(net)
        return loss

    def measure():
        if parts["valid"] is None:
            return None
        return float(errors(average.net, parts["valid"], sd, a.batch).mean())

    said = reference.course(a, len(image), net, one, measure, average.net, sign=-1)
    part = reference.judged(parts)
    found = errors(average.net, parts[part], sd, a.batch)
    return said | {
        "part": part,
        "mae": float(found.mean()),
        "by_angle": [round(float(v), 4) for v in found],
    }


if __name__ == "__main__":
    options = {"whiten": False, "features": [32, 64, 128, 256], "decay": 1e-4,
               "lr": 1e-3, "ema": 0.99, "dropout": 0.0, "turn": 0.0, "zoom": 0.0,
               "shift": 0.0, "jitter": 0.2, "cutout": 0.0, "epochs": 40, "batch": 32,
               "start": ""}  # fmt: skip
    sys.exit(reference.main(__doc__, options, train, trace))
