#!/usr/bin/env python3
"""sequence.py -- the PyTorch reference of scripts/sequence_cnn_lstm.lua.

    segengine scripts/sequence_cnn_lstm.lua export --reference DIR --steps 20 \\
        --learn supervised --dropout 0,0,0
    sequence.py DIR --learn supervised
                                      repeat these steps, compare the losses

    segengine scripts/sequence_cnn_lstm.lua export --arrays DIR --data ... \\
        --preset quick --learn supervised
    sequence.py --train DIR --learn supervised --epochs 40 --seed 1
                                      train independently, on the same split

--learn is the recipe's option: supervised, contrastive or statistics. denoise is
missing, because its masks come from segengine's random draws. Random draws are
not shared, so repeated steps need dropout 0.

The second form augments sequences like the recipe: speed, bands stretched,
shifted and tilted, masks in time and bands, noise; AdamW, gradients clipped to a
norm of 1, with labels a cosine schedule over all epochs. Its result is the
accuracy on the test part, or on the validation part when a fold has no test
part; without labels the accuracy of clusters of all training sequences (k-means,
10 starts) with the best assignment of clusters to classes, before any round.
Both end with one line of JSON on stdout.
"""

import sys

import numpy as np
import torch
import reference
import unet_torch as peer
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

NAMES = ("sequence", "length", "label")


class Encoder(nn.Module):
    """net.cnn_lstm: (N,C,T) and lengths -> (N,out)."""

    def __init__(self, channels, a):
        super().__init__()
        self.dropout, self.levels = (a.dropout, a.lstm_dropout), len(a.features)
        self.packed = True  # False: all sequences are as long as x, which saves the packing
        self.cnn, before = nn.Module(), channels
        for i, width in enumerate(a.features, 1):
            setattr(self.cnn, f"conv{i}", nn.Conv1d(before, width, 3, padding=1))
            setattr(self.cnn, f"norm{i}", nn.BatchNorm1d(width))
            before = width
        self.lstm1 = nn.LSTM(before, a.hidden, a.layers, batch_first=True,
                             bidirectional=True, dropout=a.lstm_dropout)  # fmt: skip
        self.project = nn.Module()
        self.project.linear1 = nn.Linear(2 * a.hidden, a.project)
        self.project.norm1 = nn.BatchNorm1d(a.project)
        self.head = nn.Linear(2 * a.project, a.embed)

    def forward(self, x, lengths):
        def counts(x):  # (N,1,T): 1 for the steps of the sequence, 0 for padding
            steps = torch.arange(x.shape[2], device=x.device)
            return steps[None, None] < lengths[:, None, None]

        x = x * counts(x)
        for i in range(1, self.levels + 1):
            x = getattr(self.cnn, f"conv{i}")(x)
            x = F.max_pool1d(F.relu(getattr(self.cnn, f"norm{i}")(x)), 2)
            lengths = lengths // 2
            x = F.dropout(x * counts(x), self.dropout[0], self.training)
        if self.packed:
            packed = rnn.pack_padded_sequence(x.transpose(1, 2), lengths.cpu(),
                                              batch_first=True, enforce_sorted=False)  # fmt: skip
            y, _ = rnn.pad_packed_sequence(self.lstm1(packed)[0], batch_first=True,
                                           total_length=x.shape[2])  # fmt: skip
        else:
            y, _ = self.lstm1(x.transpose(1, 2))
        y = self.project.norm1(self.project.linear1(y).transpose(1, 2))
        y, own = F.dropout(F.relu(y), self.dropout[1], self.training), counts(x)
        most = y.masked_fill(~own, -torch.inf).amax(2)
        mean = (y * own).sum(2) / lengths[:, None]
        return self.head(torch.cat([most, mean], 1))


class Classifier(nn.Module):
    """net.mlp: linear, batch norm, ReLU, dropout; then a linear head."""

    def __init__(self, classes, a):
        super().__init__()
        self.dropout, self.layers, before = a.mlp_dropout, len(a.mlp), a.embed
        for i, width in enumerate(a.mlp, 1):
            setattr(self, f"linear{i}", nn.Linear(before, width))
            setattr(self, f"norm{i}", nn.BatchNorm1d(width))
            before = width
        self.head = nn.Linear(before, classes)

    def forward(self, x):
        for i in range(1, self.layers + 1):
            x = getattr(self, f"norm{i}")(getattr(self, f"linear{i}")(x))
            x = F.dropout(F.relu(x), self.dropout, self.training)
        return self.head(x)


class Network(nn.Module):
    """Encoder and classifier, with segengine's names of parameters."""

    def __init__(self, channels, classes, a):
        super().__init__()
        self.encoder = Encoder(channels, a)
        self.classifier = Classifier(classes, a)

    def forward(self, x, lengths):
        return self.classifier(self.encoder(x, lengths))


# Losses ----------------------------------------------------------------------


def contrastive(one, other, temperature):
    """nn.contrastive: cross entropy of each sample's partner, among the partner and
    all samples of `other`."""
    one, other = (F.layer_norm(v, v.shape[1:]) for v in (one, other))
    own = (one * other).sum(1, keepdim=True)
    scores = torch.cat([own, one @ other.T], 1) / (one.shape[1] * temperature)
    return F.cross_entropy(scores, torch.zeros(len(one), dtype=torch.long))


def statistics(vector, x, lengths):
    """nn.statistics: differences of mean and deviation over the batch."""
    own = torch.arange(x.shape[2])[None, None] < lengths[:, None, None]
    means = (x * own).sum(2) / lengths[:, None]

    def deviation(v):
        return (v * F.batch_norm(v, None, None, training=True)).mean()

    shift = vector.mean() - means.mean()
    return shift**2 + (deviation(vector) - deviation(means)) ** 2


def loss_of(net, a, x, lengths, label, other):
    """other: the second view of contrastive, else None."""
    if a.learn == "supervised":
        return F.cross_entropy(net(x, lengths), label)
    vector = net.encoder(x, lengths)
    if a.learn == "statistics":
        return statistics(vector, x, lengths)
    return contrastive(vector, net.encoder(other, lengths), a.temperature)


def step(net, optim, a, x, lengths, label, other=None):
    loss = loss_of(net, a, x, lengths, label, other)
    return reference.update(net, optim, loss, 1.0)


# The same steps --------------------------------------------------------------


def from_engine(weights, a, dtype):
    """The network of init.safetensors, with its widths taken from the tensors."""

    def widths(pattern):
        out = []
        while (name := pattern.format(len(out) + 1)) in weights:
            out.append(weights[name].shape[0])
        return out

    a.features = widths("encoder.cnn.conv{}.weight")
    a.layers = sum("weight_hh" in k and "reverse" not in k for k in weights)
    a.hidden = weights["encoder.lstm1.weight_hh_l0"].shape[1]
    a.project, a.embed = (weights[k].shape[0] for k in
                          ("encoder.project.linear1.bias", "encoder.head.bias"))  # fmt: skip
    a.mlp = widths("classifier.linear{}.weight")
    a.dropout = a.lstm_dropout = a.mlp_dropout = 0.0
    net = Network(weights["encoder.cnn.conv1.weight"].shape[1],
                  len(weights["classifier.head.bias"]), a)  # fmt: skip
    state = net.state_dict()
    for key in state:
        if not key.endswith("num_batches_tracked"):
            state[key] = torch.from_numpy(weights.pop(key).copy())
    # the remaining weights belong to losses without weights in PyTorch
    if any(k.startswith(("encoder", "classifier")) for k in weights):
        raise KeyError(f"no place for {sorted(weights)}")
    net.load_state_dict(state)
    return net.to(dtype)


def trace(folder, a, rows, dtype):
    """The exported steps, computed in `dtype`, as reference.repeat yields them."""
    net = from_engine(peer.load_tensors(folder / "init.safetensors"), a, dtype)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)
    names = NAMES + (("other",) if a.learn == "contrastive" else ())

    def one(x, lengths, label, *other):
        return step(net, optim, a, x, lengths[:, 0].long(), label[:, 0].long(), *other)

    return reference.repeat(folder, rows, names, optim, dtype, one)


# Training by itself ----------------------------------------------------------


def lines(x, at):
    """x (C,T) at positions `at` of its last axis, linear, clamped at the ends."""
    at = np.clip(at, 0, x.shape[-1] - 1)
    low = np.minimum(at.astype(int), max(x.shape[-1] - 2, 0))
    high = np.minimum(low + 1, x.shape[-1] - 1)
    return x[..., low] + (x[..., high] - x[..., low]) * (at - low)


def change_one(x, a, rng):
    """The recipe's augmentation of one sequence (C,T)."""
    channels, steps = x.shape
    middle = (steps - 1) / 2
    zoom = rng.uniform(1 - a.speed, 1 + a.speed)
    x = lines(x, (np.arange(steps) - middle) / zoom + middle)
    span = int(rng.integers(0, a.timemask + 1))
    begin = int(rng.integers(0, max(steps - span, 0) + 1))
    u = np.linspace(-1, 1, channels)
    half = (channels - 1) / 2
    x = lines(x.T, half + u * half * rng.uniform(1 - a.stretch, 1 + a.stretch)
              + rng.uniform(-a.bands, a.bands)).T  # fmt: skip
    p, q = rng.uniform(-a.tilt, a.tilt, 2)
    x = x + (p * u + q * (3 * u * u - 1) / 2)[:, None]
    gone = int(rng.integers(0, a.bandmask + 1))
    first = int(rng.integers(0, channels - gone + 1))
    x[first : first + gone] = 0
    x[:, begin : begin + span] = 0
    return x + rng.normal(0, a.noise, x.shape)


def change(x, lengths, a, rng):
    out = torch.zeros_like(x)
    for i, n in enumerate(lengths.tolist()):
        out[i, :, :n] = torch.from_numpy(change_one(x[i, :, :n].numpy(), a, rng))
    return out


def apply(f, part, batch):
    with torch.no_grad():
        return torch.cat([f(part[0][i : i + batch], part[1][i : i + batch])
                          for i in range(0, len(part[0]), batch)])  # fmt: skip


def accuracy(net, part, batch):
    if part is None:
        return None
    net.eval()
    return float((apply(net, part, batch).argmax(1) == part[2]).float().mean())


def groups(points, k, rng, starts=10):
    """The cluster of each point, by k-means++ and Lloyd."""
    best = np.inf
    for _ in range(starts):
        middle = points[rng.integers(len(points))][None]
        while len(middle) < k:
            far = ((points[:, None] - middle) ** 2).sum(2).min(1)
            middle = np.r_[middle, points[rng.choice(len(points), p=far / far.sum())][None]]
        for _ in range(100):
            far = ((points[:, None] - middle) ** 2).sum(2)
            of = far.argmin(1)
            moved = np.array([points[of == j].mean(0) if (of == j).any() else middle[j]
                              for j in range(k)])  # fmt: skip
            if np.allclose(moved, middle):
                break
            middle = moved
        if far.min(1).sum() < best:
            best, found = far.min(1).sum(), of
    return found


def agreement(found, label, k):
    """The share of samples in the cluster of their class, under the best assignment
    of clusters to classes, by dynamic programming over sets of classes."""
    both = np.zeros((k, k))
    np.add.at(both, (found, label), 1)
    most = {0: 0.0}
    for row in both:
        new = {}
        for taken, value in most.items():
            for j in range(k):
                if not taken >> j & 1:
                    key = taken | 1 << j
                    new[key] = max(new.get(key, 0), value + row[j])
        most = new
    return max(most.values()) / len(found)


def load(folder, name):
    part = reference.part(folder, name, NAMES)
    return part and [part[0], part[1][:, 0].long(), part[2][:, 0].long()]


def train(folder, a):
    parts = {p: load(folder, p) for p in ("train", "valid", "test")}
    x, lengths, label = parts["train"]
    classes, supervised = int(label.max()) + 1, a.learn == "supervised"
    net = Network(x.shape[1], classes, a)
    average = reference.Average(net, a.ema)
    optim = torch.optim.AdamW(net.parameters(), weight_decay=a.decay)

    def one(pick, epoch, rng):
        reference.set_rate(optim, reference.cosine(a, epoch) if supervised else a.lr)
        n = lengths[pick]
        part = x[pick][:, :, : int(n.max())]
        views = [change(part, n, a, rng) for _ in range(1 + (a.learn == "contrastive"))]
        loss = step(net, optim, a, views[0], n, label[pick], *views[1:])
        average.update(net)
        return loss

    said = reference.course(a, len(x), net, one, lambda: accuracy(
        average.net, parts["valid"] if supervised else None, a.batch), average.net)  # fmt: skip
    if supervised:
        part = reference.judged(parts)
        return said | {"part": part, "accuracy": accuracy(average.net, parts[part], a.batch)}
    average.net.eval()
    points = apply(average.net.encoder, parts["train"], a.batch).numpy()
    found = groups(points, classes, np.random.default_rng(a.seed))
    return said | {"part": "train", "accuracy": agreement(found, label.numpy(), classes)}


if __name__ == "__main__":
    options = {"learn": "supervised", "features": [64, 128, 256], "hidden": 256,
               "layers": 2, "project": 512, "embed": 512, "mlp": [256, 128],
               "dropout": 0.2, "lstm_dropout": 0.3, "mlp_dropout": 0.4,
               "temperature": 0.2,
               "batch": 64, "epochs": 15, "lr": 1e-4, "decay": 0.0, "ema": 0.0,
               "speed": 0.0, "timemask": 0, "noise": 0.0, "stretch": 0.0,
               "bands": 0.0, "tilt": 0.0, "bandmask": 0}  # fmt: skip
    sys.exit(reference.main(__doc__, options, train, trace))
