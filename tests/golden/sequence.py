#!/usr/bin/env python3
"""sequence.py -- makes the files of tests/lua/train/sequence.lua with PyTorch.

    python3 tests/golden/sequence.py

A linear layer, a packed bidirectional LSTM of two layers, self-attention with
masked padding, and four kinds of pooling over the valid steps, in float64: init.*
and grad.* of all parameters (float32 copies, close enough for the bounds), results
as .npy. Sequences of 7, 4, 1 and 6 steps are padded with numbers that must not
change the results. A second group, `plain`, has one layer in one direction and
attention over all steps, both without biases. Made with PyTorch 1.13.
"""

import pathlib
import sys

import numpy as np
import torch
from torch.nn.utils import rnn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))
import unet_torch as peer  # noqa: E402

LENGTHS = (7, 4, 1, 6)
FEATURES, WIDTH, HIDDEN, HEADS = 5, 4, 3, 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(FEATURES, WIDTH)
        self.lstm1 = torch.nn.LSTM(
            WIDTH, HIDDEN, 2, batch_first=True, bidirectional=True
        )
        self.attention1 = torch.nn.MultiheadAttention(
            2 * HIDDEN, HEADS, batch_first=True
        )
        self.linear2 = torch.nn.Linear(8 * HIDDEN, 2)

    def forward(self, x, lengths):
        """x (N,T,C) -> LSTM, attention (N,T,2H), result (N,2)."""
        own = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        packed = rnn.pack_padded_sequence(
            self.linear1(x), lengths, batch_first=True, enforce_sorted=False
        )
        y, (h, _) = self.lstm1(packed)
        y, _ = rnn.pad_packed_sequence(y, batch_first=True)
        a, _ = self.attention1(y, y, y, key_padding_mask=~own)
        a = a * own[:, :, None]
        last = a[torch.arange(len(lengths)), lengths - 1]
        pooled = torch.cat(
            [
                a.sum(1) / lengths[:, None],
                a.masked_fill(~own[:, :, None], -torch.inf).amax(1),
                last,
                torch.cat([h[-2], h[-1]], 1),
            ],
            1,
        )
        return y, a, self.linear2(pooled)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = torch.nn.LSTM(FEATURES, WIDTH, bias=False, batch_first=True)
        self.attention1 = torch.nn.MultiheadAttention(
            WIDTH, 1, bias=False, batch_first=True
        )

    def forward(self, x):
        """x (N,T,C) -> LSTM (N,T,H), attention (N,T,H)."""
        y, _ = self.lstm1(x)
        a, _ = self.attention1(y, y, y)
        return y, a


def store(flat, group, net):
    for name, p in net.named_parameters():
        flat[f"{group}.init.{name}"] = p.detach().numpy().astype("<f4")
        flat[f"{group}.grad.{name}"] = p.grad.numpy().astype("<f4")


def save(name, v):
    """Saves (N,T,C) as (N,C,T), and (N,C) unchanged."""
    v = v.detach().numpy().astype("<f4")
    np.save(HERE / f"sequence_{name}.npy", v.transpose(0, 2, 1) if v.ndim == 3 else v)


def spread(net):
    """Random biases of attention in float32: the initial 0 would hide errors."""
    for p in net.parameters():
        with torch.no_grad():
            p.copy_((p + 0.3 * torch.randn_like(p)).float())


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    flat = {}
    x = torch.randn(len(LENGTHS), max(LENGTHS), FEATURES).float().double()
    net, lengths = Net(), torch.tensor(LENGTHS)
    spread(net)
    lstm, attention, result = net(x, lengths)
    ((result - 0.5) ** 2).mean().add((attention**2).mean()).backward()
    store(flat, "full", net)
    for name, v in [("x", x), ("lstm", lstm), ("attention", attention), ("result", result)]:
        save(name, v)
    net = Plain()
    spread(net)
    lstm, attention = net(x)
    (attention**2).mean().backward()
    store(flat, "plain", net)
    save("plain_lstm", lstm)
    save("plain_attention", attention)
    peer.save_tensors(HERE / "sequence.safetensors", flat, {})


if __name__ == "__main__":
    main()
