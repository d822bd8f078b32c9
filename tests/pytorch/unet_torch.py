"""unet_torch.py -- the recipes' U-Net in PyTorch, and its files.

Shared by the references in this folder and by tests/golden/unet.py. The network is
written as PyTorch users write it (Sequential blocks), so that its names must
be translated: `engine_name` does what a user's rename function would do.
Python's safetensors package is not needed; the format is a few lines.
"""

import json
import re

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Sequential):
    """Twice convolution, batch norm, ReLU."""

    def __init__(self, before, after, bias):
        layers = []
        for width in (before, after):
            layers += [
                nn.Conv2d(width, after, 3, padding=1, bias=bias),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)


class UNet(nn.Module):
    """scripts/brain_unet.lua; with bias, scripts/nfbs_unet.lua."""

    def __init__(self, features, bias=False):
        super().__init__()
        self.depth = len(features)
        width = [1] + list(features)
        for i, f in enumerate(features, 1):
            setattr(self, f"enc{i}", Block(width[i - 1], f, bias))
        self.bottom = Block(features[-1], 2 * features[-1], bias)
        for i, f in enumerate(features, 1):
            setattr(self, f"up{i}", nn.ConvTranspose2d(2 * f, f, 2, 2))
            setattr(self, f"dec{i}", Block(2 * f, f, bias))
        self.head = nn.Conv2d(features[0], 1, 1)

    def forward(self, x):
        skips = []
        for i in range(1, self.depth + 1):
            x = getattr(self, f"enc{i}")(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for i in range(self.depth, 0, -1):
            up = getattr(self, f"up{i}")(x)
            x = getattr(self, f"dec{i}")(torch.cat((up, skips[i - 1]), 1))
        return self.head(x)


def bce_dice(logits, target, bce=1.0, dice=1.0, eps=1.0):
    """bce * BCE + dice * (1 - soft Dice), the Dice over the whole batch."""
    p = torch.sigmoid(logits)
    overlap = (2 * (p * target).sum() + eps) / (p.sum() + target.sum() + eps)
    return bce * F.binary_cross_entropy_with_logits(logits, target) + dice * (
        1 - overlap
    )


LAYER = {"0": "conv1", "1": "norm1", "3": "conv2", "4": "norm2"}


def engine_name(name):
    """enc1.3.weight -> enc1.conv2.weight"""
    return re.sub(
        r"^(\w+)\.(\d)\.", lambda m: f"{m[1]}.{LAYER[m[2]]}.", name
    )


# safetensors: 8 bytes length of a header in JSON, the header, the data -------

TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8"}


def save_tensors(path, tensors, metadata=None):
    """tensors: name -> array of one of TYPES."""
    header, data, at = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name in sorted(tensors):
        x = np.ascontiguousarray(tensors[name])
        kind = next(k for k, v in TYPES.items() if np.dtype(v) == x.dtype)
        header[name] = {
            "dtype": kind,
            "shape": list(np.shape(tensors[name])),
            "data_offsets": [at, at + x.nbytes],
        }
        data.append(x.tobytes())
        at += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


def load_tensors(path):
    """name -> array"""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        x = np.frombuffer(data[begin:end], dtype=TYPES[t["dtype"]])
        out[name] = x.reshape(t["shape"])
    return out


def load_engine(net, tensors):
    """Loads weights of segengine into `net`; every tensor must match a parameter."""
    state = net.state_dict()
    for name, value in state.items():
        if not name.endswith("num_batches_tracked"):
            x = torch.from_numpy(tensors[engine_name(name)].copy())
            state[name] = x.to(value.dtype)
    left = set(tensors) - {engine_name(name) for name in state}
    if left:
        raise KeyError(f"no place for {sorted(left)}")
    net.load_state_dict(state)
