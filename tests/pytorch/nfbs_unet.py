#!/usr/bin/env python3
"""nfbs_unet.py -- the PyTorch reference of scripts/nfbs_unet.lua.

    segengine scripts/nfbs_unet.lua export --reference DIR --steps 20
    nfbs_unet.py DIR                  repeat these steps, compare the losses

    segengine scripts/nfbs_unet.lua export --arrays DIR --data ... --preset quick
    nfbs_unet.py --train DIR --features 32,64,128,256 --epochs 10
                                      train independently, on the same split

Adam with L2 decay, gradients clipped to a norm of 1, half BCE and half batch
Dice, the learning rate halved after 5 epochs without a better validation. The
result is the Dice of whole volumes (of the slices in use) of the test part, or
of the validation part when a fold has no test part. Both end with one line of
JSON on stdout.
"""

import sys

import brain_unet as brain
import torch
import reference
import unet_torch as peer

NAMES = ("image", "mask")


def loss_of(net, image, mask):
    return peer.bce_dice(net(image), mask, bce=0.5, dice=0.5)


def widths(tensors):
    """The features of segengine's network: outputs of its transposed layers."""
    levels = sum(k.startswith("up") and k.endswith("bias") for k in tensors)
    return [len(tensors[f"up{i}.bias"]) for i in range(1, levels + 1)]


def step(net, optim, image, mask):
    loss = loss_of(net, image, mask)
    return reference.update(net, optim, loss, 1.0)


def trace(folder, _, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    weights = peer.load_tensors(folder / "init.safetensors")
    net = peer.UNet(widths(weights), bias=True).to(dtype)
    net = net.to(memory_format=torch.channels_last)
    peer.load_engine(net, weights)
    optim = torch.optim.Adam(net.parameters(), weight_decay=1e-4)
    return reference.repeat(folder, rows, NAMES, optim, dtype,
                       lambda image, mask: step(net, optim, image, mask))  # fmt: skip


# Training by itself ----------------------------------------------------------


def change(image, mask, rng):
    """The recipe's augmentation of slices: flip along w, contrast, gamma, noise."""
    return brain.augment(image, mask, rng, contrast=0.2, brightness=None,
                         gamma=(0.5, 0.8, 1.25), noise=0.02)  # fmt: skip


def train(folder, a):
    parts = {p: reference.part(folder, p, NAMES) for p in ("train", "valid", "test")}
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

    said = reference.course(a, len(image), net, one, measure)
    return said | brain.facts(net, parts, a.batch)


if __name__ == "__main__":
    options = {"lr": 5e-4, "epochs": 10, "batch": 8, "features": [32, 64, 128, 256]}
    sys.exit(reference.main(__doc__, options, train, trace))
