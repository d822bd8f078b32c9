#!/usr/bin/env python3
"""nfbs_unet.py -- the twin of scripts/nfbs_unet.lua in PyTorch.

    segengine scripts/nfbs_unet.lua export --twin DIR --steps 20
    nfbs_unet.py DIR                  repeat these steps, compare the losses

    segengine scripts/nfbs_unet.lua export --arrays DIR --data ... --preset quick
    nfbs_unet.py --train DIR --features 32,64,128,256 --epochs 10
                                      train on its own, on the same split

Adam with L2, gradients cut at a norm of 1, half BCE and half batch Dice, the
rate halved after 5 epochs without a better validation. Its
result is the Dice of whole volumes, of the slices used, of test, or of valid
where a fold has no test. Both close with one line of JSON on stdout.
"""

import sys

import brain_unet as brain
import torch
import twin
import unet_torch as peer

NAMES = ("image", "mask")


def loss_of(net, image, mask):
    return peer.bce_dice(net(image), mask, bce=0.5, dice=0.5)


def widths(tensors):
    """The features of a network of ours: outputs of its transposed layers."""
    levels = sum(k.startswith("up") and k.endswith("bias") for k in tensors)
    return [len(tensors[f"up{i}.bias"]) for i in range(1, levels + 1)]


def step(net, optim, image, mask):
    loss = loss_of(net, image, mask)
    return twin.update(net, optim, loss, 1.0)


def trace(folder, _, rows, dtype):
    """Losses of the exported steps, computed in `dtype`."""
    weights = peer.load_tensors(folder / "init.safetensors")
    net = peer.UNet(widths(weights), bias=True).to(dtype)
    peer.load_engine(net, weights)
    optim = torch.optim.Adam(net.parameters(), weight_decay=1e-4)
    losses = []
    for row in rows:
        image, mask = twin.batch(folder, row, NAMES)
        twin.set_rate(optim, row["lr"])
        losses.append(step(net, optim, image.to(dtype), mask.to(dtype)))
    return losses


# Training by itself ----------------------------------------------------------


def change(image, mask, rng):
    """The recipe's: flip along w, contrast, gamma, noise, for each slice."""
    image, mask = image.clone(), mask.clone()
    for x, t in zip(image, mask):
        if rng.random() < 0.5:
            x.copy_(x.flip(-1))
            t.copy_(t.flip(-1))
        mean = x.mean()
        x.sub_(mean).mul_(rng.uniform(0.8, 1.2)).add_(mean)
        low, span = x.min(), x.max() - x.min()
        if rng.random() < 0.5 and span > 0:
            g = rng.uniform(0.8, 1.25)
            x.sub_(low).div_(span).pow_(g).mul_(span).add_(low)
        if rng.random() < 0.3:
            noise = rng.normal(0, 0.02, x.shape).astype("f4")
            x.add_(torch.from_numpy(noise))
    return image, mask


def train(folder, a):
    parts = {p: twin.part(folder, p, NAMES) for p in ("train", "valid", "test")}
    image, mask, _ = parts["train"]
    net = peer.UNet(a.features, bias=True)
    net = net.to(memory_format=torch.channels_last)
    optim = torch.optim.Adam(net.parameters(), lr=a.lr, weight_decay=1e-4)
    rate = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optim, "max", factor=0.5, patience=5
    )

    def one(pick, _, rng):
        return step(net, optim, *change(image[pick], mask[pick], rng))

    def measure():
        dice = brain.mean_dice(net, parts["valid"], a.batch)
        if dice is not None:
            rate.step(dice)
        return dice

    said = twin.course(a, len(image), net, one, measure)
    return said | brain.facts(net, parts, a.batch)


if __name__ == "__main__":
    options = {"lr": 5e-4, "epochs": 10, "batch": 8, "features": [32, 64, 128, 256]}
    sys.exit(twin.main(__doc__, options, train, trace))
