#!/usr/bin/env python3
"""openkbp.py -- the PyTorch reference of scripts/openkbp_unet3d.lua.

    segengine scripts/openkbp_unet3d.lua export --reference DIR --steps 50 \
        --preset check --dropout 0
    openkbp.py DIR --better           repeat these steps, compare the losses

    segengine scripts/openkbp_unet3d.lua export --arrays DIR \
        --data provided-data --preset quick
    openkbp.py --train DIR --better --filters 16 --levels 5 --coarse 2 \
        --batch 1 --lr 1e-3 --epochs 60 --t_max 60 --ema 0.99 --seed 1
                                      train independently, on the same split

Options are as in the recipe; without --better the network is the challenge's
baseline. Random draws are not shared, so repeated steps need --dropout 0. The
result of a training is the dose score of the test patients, in Gy, with the
weights of the epoch that has the best dose score of the validation patients.
Arrays take 110 MB a patient and are read sample by sample.
"""

import math
import statistics
import sys

import numpy as np
import torch
import reference
import unet_torch as peer
from torch import nn
from torch.nn import functional as F

NAMES = ("ct", "structures", "possible", "dose")  # and "beams" of --better
STRUCTURES = 10


class Step(nn.Module):
    """A convolution that halves or doubles the extents, with its norm and squeeze
    and excitation, and the recipe's names of parameters."""

    def __init__(self, before, after, up, a, normed=True, squeeze=False):
        super().__init__()
        self.kind = "upconv1" if up else "conv1"
        conv = nn.ConvTranspose3d if up else nn.Conv3d
        layer = conv(before, after, 4, 2, 1, bias=False)
        setattr(self, self.kind, layer)
        if normed and not a.better:
            self.norm1 = nn.BatchNorm3d(after, eps=1e-3, momentum=0.01)
        elif normed:
            self.norm1 = nn.InstanceNorm3d(after, affine=True)
        self.normed, self.squeezed = normed, squeeze
        if squeeze:
            few = max(1, after // a.squeeze)
            self.linear1 = nn.Linear(after, few)
            self.linear2 = nn.Linear(few, after)

    def forward(self, x):
        x = getattr(self, self.kind)(x)
        return self.norm1(x) if self.normed else x

    def squeeze(self, x):
        if not self.squeezed:
            return x
        s = F.relu(self.linear1(x.mean((2, 3, 4))))
        s = torch.sigmoid(self.linear2(s))
        return x * s[:, :, None, None, None]


class Generator(nn.Module):
    """net.pix2pix: 4x4x4 convolutions that halve and double the extents."""

    def __init__(self, inputs, a):
        super().__init__()
        self.levels, self.dropout = a.levels, a.dropout
        self.better = a.better
        width = [inputs] + [a.filters * min(2**i, 8) for i in range(a.levels)]
        for i in range(1, self.levels + 1):
            squeeze = a.better and a.squeeze > 0 and i > 3
            step = Step(width[i - 1], width[i], False, a, i < self.levels, squeeze)
            setattr(self, f"x{i}", step)
        for i in range(self.levels - 1, 0, -1):
            below = width[i + 1] * (1 if i == self.levels - 1 else 2)
            setattr(self, f"x{i}b", Step(below, width[i], True, a))
        self.x0b = nn.Module()
        self.x0b.upconv1 = nn.ConvTranspose3d(2 * width[1], 1, 4, 2, 1)
        for m in self.modules():
            if isinstance(m, (nn.Conv3d, nn.ConvTranspose3d)):
                nn.init.xavier_uniform_(m.weight)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    def forward(self, x):
        skips = []
        for i in range(1, self.levels + 1):
            step = getattr(self, f"x{i}")
            x = step.squeeze(F.leaky_relu(step(x), 0.2))
            skips.append(x)
        for i in range(self.levels - 1, 0, -1):
            x = getattr(self, f"x{i}b")(x)
            if i % 2 == 0:
                x = F.dropout3d(x, self.dropout, self.training)
            x = torch.cat((F.relu(x), skips[i - 1]), 1)
        x = self.x0b.upconv1(x)
        x = F.avg_pool3d(x, 3, 1, 1, count_include_pad=False)
        return x if self.better else F.relu(x)


def seen(x, a):
    return F.avg_pool3d(x, a.coarse) if a.coarse > 1 else x


def names_of(a):
    return NAMES + (("beams",) if a.better else ())


def dose_of(net, batch, a):
    """The predicted dose on the patients' grid."""
    ct, structures, possible = batch[:3]
    parts = seen(structures, a)
    x = torch.cat((seen(ct, a), parts), 1)
    if not a.better:
        return net(x)
    plan = parts[:, 7:8] * 0.8 + parts[:, 8:9] * 0.9 + parts[:, 9:10]
    reach = seen(batch[4], a) / 70
    elsewhere = 1 - parts[:, 7:10].sum(1, keepdim=True)
    guess = plan + 0.8 * reach * elsewhere
    x = torch.cat((x, seen(possible, a), plan, reach), 1)
    dose = 70 * (net(x) + guess)
    if a.coarse == 1:
        return dose
    return F.interpolate(dose, scale_factor=a.coarse, mode="trilinear")


def masked_mae(x, t, m):
    return (m * (x - t).abs()).sum() / m.sum()


def dvh_loss(x, t, parts, bins=80):
    """Mean squared difference of the dose-volume histograms of all structures that
    a sample has, at 1 .. 80 Gy, over all samples."""
    at = torch.arange(1, bins + 1, dtype=x.dtype)
    apart = []
    for n in range(len(x)):
        for m in parts[n]:
            inside = m > 0
            if not inside.any():
                continue
            w = m[inside][:, None]
            a, b = (
                (torch.sigmoid(d[n, 0][inside][:, None] - at) * w).sum(0)
                for d in (x, t)
            )
            apart.append(((a - b) / w.sum()) ** 2)
    return torch.stack(apart).mean()


def loss_of(net, batch, a):
    structures, possible, truth = batch[1:4]
    dose = dose_of(net, batch, a)
    if not a.better:
        return F.l1_loss(dose, truth)
    loss = masked_mae(dose, truth, possible)
    if a.dvh > 0:
        loss = loss + a.dvh * dvh_loss(dose * possible, truth, structures)
    return loss


def adam(net, lr):
    return torch.optim.Adam(net.parameters(), lr, (0.5, 0.999), 1e-7)


def step(net, optim, batch, a):
    loss = loss_of(net, batch, a)
    return reference.update(net, optim, loss)


# The same steps --------------------------------------------------------------


def trace(folder, a, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    weights = peer.load_tensors(folder / "init.safetensors")
    first = weights["x1.conv1.weight"]
    a.filters, a.dropout = first.shape[0], max(a.dropout, 0.0)
    a.levels = sum(name.endswith("b.upconv1.weight") for name in weights)
    net = Generator(first.shape[1], a).to(dtype)
    state = net.state_dict()
    names = [n for n in state if not n.endswith("num_batches_tracked")]
    if set(names) != set(weights):
        raise KeyError(sorted(set(names) ^ set(weights)))
    for name in names:
        state[name] = torch.from_numpy(weights[name].copy()).to(dtype)
    net.load_state_dict(state)
    optim = adam(net, 1.0)
    return reference.repeat(folder, rows, names_of(a), optim, dtype,
                       lambda *batch: step(net, optim, batch, a))  # fmt: skip


# Training by itself ----------------------------------------------------------


class Part:
    """Samples of a part of the split, read from its files on demand."""

    def __init__(self, folder, name, fields):
        files = [sorted(folder.glob(f"{name}_[0-9]*_{n}.npy")) for n in fields]
        self.where = []
        for group in zip(*files):
            for k in range(len(np.load(group[0], mmap_mode="r"))):
                self.where.append((group, k))

    def __len__(self):
        return len(self.where)

    def batch(self, items):
        picked = [self.where[i] for i in items]
        return [
            torch.from_numpy(
                np.stack([np.load(g[f], mmap_mode="r")[k] for g, k in picked])
            )
            for f in range(len(self.where[0][0]))
        ]


def flipped(batch, rng):
    """Flips left and right and exchanges the parotids."""
    for n in range(len(batch[0])):
        if rng.random() < 0.5:
            for x in batch:
                x[n] = x[n].flip(2)
            batch[1][n, [2, 3]] = batch[1][n, [3, 2]]
    return batch


def scores(net, part, a):
    """Mean |error| in Gy of each patient, within the mask of possible dose."""
    out = []
    net.eval()
    with torch.no_grad():
        for i in range(len(part)):
            batch = part.batch([i])
            possible, truth = batch[2:4]
            dose = F.relu(dose_of(net, batch, a)) * possible
            out.append(masked_mae(dose, truth, possible).item())
    return out


def train(folder, a):
    names = names_of(a)
    parts = {p: Part(folder, p, names) for p in ("train", "valid", "test")}
    a.dropout = a.dropout if a.dropout >= 0 else 0.2
    net = Generator(1 + STRUCTURES + 3 * a.better, a)
    average = reference.Average(net, a.ema)  # ema 0: equal to net
    optim = adam(net, a.lr)

    def one(pick, epoch, rng):
        if a.t_max:
            wave = 1 + math.cos(math.pi * min(epoch - 1, a.t_max) / a.t_max)
            reference.set_rate(optim, a.lr * (0.01 + 0.99 * wave / 2))
        batch = parts["train"].batch(pick)
        loss = step(net, optim, flipped(batch, rng) if a.better else batch, a)
        average.update(net)
        return loss

    said = reference.course(a, len(parts["train"]), net, one,
                       lambda: statistics.mean(scores(average.net, parts["valid"], a)),
                       average.net, sign=-1)  # fmt: skip
    cases = scores(average.net, parts["test"], a)
    return said | {
        "test_dose_score": statistics.mean(cases),
        "test_dose_scores": [round(v, 4) for v in cases],
    }


if __name__ == "__main__":
    # dropout below 0: 0.2 with --train, none in the exported steps
    options = {"better": False, "filters": 64, "levels": 6, "coarse": 1,
               "dvh": 20.0, "squeeze": 8, "dropout": -1.0, "epochs": 100,
               "batch": 2, "lr": 2e-4, "t_max": 0, "ema": 0.0}  # fmt: skip
    sys.exit(reference.main(__doc__, options, train, trace))
