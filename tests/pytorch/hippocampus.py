#!/usr/bin/env python3
"""hippocampus.py -- the PyTorch reference of scripts/hippocampus_unet3d.lua.

    segengine scripts/hippocampus_unet3d.lua export --reference DIR --steps 20
    hippocampus.py DIR                repeat these steps, compare the losses

    segengine scripts/hippocampus_unet3d.lua export --arrays DIR --data ... \\
        --fold 1 --size 48,64,48
    hippocampus.py --train DIR --epochs 60 --seed 1
                                      train independently, on the same fold

The second form reads boxes that contain each whole volume, draws patches and
augments them like the recipe; its result is the Dice of each part of the
hippocampus over whole validation volumes, with the moving average of the
weights, at the best epoch. Both end with one line of JSON on stdout; progress
goes to stderr.
"""

import statistics
import sys

import numpy as np
import torch
import reference
import unet_torch as peer
from torch import nn
from torch.nn import functional as F

NAMES = ("image", "mask")


class Block(nn.Module):
    """Twice convolution, instance norm, leaky ReLU; with segengine's names."""

    def __init__(self, before, after):
        super().__init__()
        for i, width in ((1, before), (2, after)):
            conv = nn.Conv3d(width, after, 3, padding=1, bias=False)
            setattr(self, f"conv{i}", conv)
            setattr(self, f"norm{i}", nn.InstanceNorm3d(after, affine=True))

    def forward(self, x):
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.01)
        return F.leaky_relu(self.norm2(self.conv2(x)), 0.01)


class UNet(nn.Module):
    """net.unet of the recipe; with `deep` a second result at half resolution."""

    def __init__(self, base, levels, deep):
        super().__init__()
        self.levels, self.deep = levels, deep
        for i in range(1, levels + 1):
            f = base << (i - 1)
            setattr(self, f"enc{i}", Block(f // 2 if i > 1 else 1, f))
            setattr(self, f"up{i}", nn.ConvTranspose3d(2 * f, f, 2, 2))
            setattr(self, f"dec{i}", Block(2 * f, f))
        self.bottom = Block(base << (levels - 1), base << levels)
        self.head = nn.Conv3d(base, 3, 1)
        if deep:
            self.head2 = nn.Conv3d(2 * base, 3, 1)

    def forward(self, x):
        skips, coarse = [], None
        for i in range(1, self.levels + 1):
            x = getattr(self, f"enc{i}")(x)
            skips.append(x)
            x = F.max_pool3d(x, 2)
        x = self.bottom(x)
        for i in range(self.levels, 0, -1):
            x = torch.cat((getattr(self, f"up{i}")(x), skips[i - 1]), 1)
            x = getattr(self, f"dec{i}")(x)
            if i == 2 and self.deep:
                coarse = self.head2(x)
        return self.head(x), coarse


def from_engine(tensors):
    levels = sum(k.startswith("up") and k.endswith("bias") for k in tensors)
    net = UNet(tensors["head.weight"].shape[1], levels, "head2.bias" in tensors)
    net.load_state_dict(
        {k: torch.from_numpy(v.copy()) for k, v in tensors.items()}
    )
    return net


def ce_dice(logits, target):
    """Cross entropy + (1 - mean Dice of both parts over the batch)."""
    target = target[:, 0].long()
    p, axes = torch.softmax(logits, 1), (0, 2, 3, 4)
    t = F.one_hot(target, 3).movedim(-1, 1).to(p.dtype)
    both, area = (p * t).sum(axes), p.sum(axes) + t.sum(axes)
    dice = (2 * both + 1e-5) / (area + 1e-5)
    return F.cross_entropy(logits, target) + 1 - dice[1:].mean()


def total_loss(net, image, mask):
    fine, coarse = net(image)
    loss = ce_dice(fine, mask)
    if coarse is None:
        return loss
    return (loss + ce_dice(coarse, mask[..., ::2, ::2, ::2]) / 2) / 1.5


def step(net, optim, image, mask):
    loss = total_loss(net, image, mask)
    return reference.update(net, optim, loss, 12)


def trace(folder, _, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    net = from_engine(peer.load_tensors(folder / "init.safetensors")).to(dtype)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=1e-4)
    return reference.repeat(folder, rows, NAMES, optim, dtype,
                       lambda image, mask: step(net, optim, image, mask))  # fmt: skip


# Training by itself ----------------------------------------------------------


def turn(rng, size):
    """A random affine map in voxels, as theta of affine_grid."""
    angles = np.deg2rad(rng.uniform(-20, 20, 3))
    a = np.eye(3)
    for axis, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        r = np.eye(3)
        i, j = [k for k in range(3) if k != axis]
        r[i, i], r[i, j], r[j, i], r[j, j] = c, -s, s, c
        a = a @ r
    a /= rng.uniform(0.85, 1.2)
    # grids of PyTorch are -1 .. 1 along w, h, d for all extents
    side = np.array(size[::-1], dtype=float)
    a = a * side[None, :] / side[:, None]
    shift = rng.uniform(-0.05, 0.05, 3) * 2
    return torch.tensor(np.c_[a, shift], dtype=torch.float32)[None]


def change(image, mask, rng):
    """The recipe's augmentation of one patch (1, d, h, w)."""
    if rng.random() < 0.5:
        grid = F.affine_grid(turn(rng, image.shape[1:]), [1, *image.shape],
                             align_corners=False)  # fmt: skip
        image, mask = (
            F.grid_sample(x[None], grid, mode=mode, padding_mode="border",
                          align_corners=False)[0]
            for x, mode in ((image, "bilinear"), (mask, "nearest"))
        )  # fmt: skip
    if rng.random() < 0.5:
        mean = image.mean()
        image = (image - mean) * rng.uniform(0.75, 1.25) + mean
    if rng.random() < 0.3:
        low, span = image.min(), image.max() - image.min()
        if span > 0:
            g = rng.uniform(0.75, 1.5)
            image = ((image - low) / span) ** g * span + low
    if rng.random() < 0.2:
        image = image + 0.1 * torch.from_numpy(
            rng.standard_normal(image.shape).astype("f4")
        )
    return image, mask


def patches(image, mask, pick, size, rng):
    """A batch of augmented patches of `size` (d, h, w) at random positions."""
    out = []
    for k in pick:
        at = [int(rng.integers(0, n - p + 1))
              for n, p in zip(image.shape[2:], size)]  # fmt: skip
        box = (slice(None), *(slice(a, a + p) for a, p in zip(at, size)))
        out.append(change(image[k][box], mask[k][box], rng))
    return (torch.stack(x) for x in zip(*out))


def dice_of(net, part):
    """[anterior, posterior] of each volume."""
    out = []
    net.eval()
    with torch.no_grad():
        for x, t in zip(part[0], part[1]):
            p = net(x[None])[0].argmax(1)[0]
            pairs = [(p == k, t[0] == k) for k in (1, 2)]
            out.append([2 * int((a & b).sum()) / max(int(a.sum() + b.sum()), 1)
                        for a, b in pairs])  # fmt: skip
    return np.array(out)


def train(folder, a):
    image, mask, _ = reference.part(folder, "train", NAMES)
    valid = reference.part(folder, "valid", NAMES)
    net = UNet(a.base, 3, True)
    mean = reference.Average(net, 0.99)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=1e-4)

    def one(pick, epoch, rng):
        reference.set_rate(optim, a.lr * (1 - (epoch - 1) / a.epochs) ** 0.9)
        loss = step(net, optim, *patches(image, mask, pick, a.patch, rng))
        mean.update(net)
        return loss

    said = reference.course(a, len(image), net, one,
                       lambda: float(dice_of(mean.net, valid).mean()), mean.net)  # fmt: skip
    dice = dice_of(mean.net, valid)
    return said | {
        "dice_mean": float(dice.mean()),
        "anterior": float(dice[:, 0].mean()),
        "posterior": float(dice[:, 1].mean()),
        "dice_median": statistics.median(dice.mean(1).tolist()),
    }


if __name__ == "__main__":
    options = {"lr": 2e-3, "epochs": 60, "batch": 4, "base": 16,
               "patch": [40, 56, 40]}  # fmt: skip
    sys.exit(reference.main(__doc__, options, train, trace))
