"""networks.py -- the networks of tests/bench/networks.lua in PyTorch, with the
same names, and their inputs, losses and optimisers for speed.py."""

import argparse

import sequence
import torch
import unet_torch as peer
from openkbp import Generator
from torch import nn
from torch.nn import functional as F


class Basic(nn.Module):
    """Two 3x3 convolutions and a residual connection, with torchvision's names."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride > 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.downsample(x) if self.downsample else x), inplace=True)


class ResNet18(nn.Module):
    """net.resnet, depth 18; out = 0: the features, without a last layer."""

    def __init__(self, out):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        before = 64
        for i, width in enumerate((64, 128, 256, 512), 1):
            stride = 1 if i == 1 else 2
            stage = nn.Sequential(Basic(before, width, stride), Basic(width, width, 1))
            setattr(self, f"layer{i}", stage)
            before = width
        self.fc = nn.Linear(512, out) if out else nn.Identity()

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


def linears(before, widths, dropout, last=0):
    """Linear layers, each followed by ReLU, batch norm and dropout; then one of `last`
    outputs, if any, without."""
    layers = []
    for width in widths:
        layers += [nn.Linear(before, width), nn.ReLU(inplace=True), nn.BatchNorm1d(width),
                   nn.Dropout(dropout)]  # fmt: skip
        before = width
    return nn.Sequential(*layers, *([nn.Linear(before, last)] if last else []))


class PoseResNet(nn.Module):
    """net.pose_resnet, depth 18: features predict two groups of numbers, and an encoding of
    each predicts the angles."""

    def __init__(self, out):
        super().__init__()
        self.backbone = ResNet18(0)
        self.shared = linears(512, [1024], 0.3)
        self.face, self.pose = linears(1024, [768], 0.2, 1404), linears(1024, [256], 0.2, 99)
        self.face_encoder = linears(1404, [512, 256], 0.1)
        self.pose_encoder = linears(99, [128, 64], 0.1)
        self.fusion = linears(256 + 64, [256], 0.1)
        self.hidden = nn.Linear(256, 128)
        self.head = nn.Linear(128, out)

    def forward(self, x):
        x = self.shared(self.backbone(x / 255))
        x = torch.cat((self.face_encoder(self.face(x)), self.pose_encoder(self.pose(x))), 1)
        x = F.relu(self.hidden(self.fusion(x)))
        return self.head(F.dropout(x, 0.05, self.training))


def load_same(net, weights):
    """Loads weights with the network's own names."""
    state = net.state_dict()
    names = {n for n in state if not n.endswith("num_batches_tracked")}
    if names != set(weights):
        raise KeyError(sorted(names ^ set(weights)))
    for name in names:
        state[name] = torch.from_numpy(weights[name].copy())
    net.load_state_dict(state)


def optimizer(kind, net, *args, **more):
    """PyTorch's optimiser with fused update, if this version has it on a CPU."""
    try:
        return kind(net.parameters(), *args, fused=True, **more)
    except (RuntimeError, TypeError):
        return kind(net.parameters(), *args, **more)


class Network:
    """A network, its inputs by name, loss(y) of its result, its optimiser; `run`
    calls the network."""

    def __init__(self, net, inputs, loss, optim):
        self.net, self.inputs, self.loss, self.optim = net, inputs, loss, optim

    def run(self):
        return self.net(self.inputs[0])


def image_network(net, weights, inputs, loss, optim, load=load_same):
    """A network with one input image and one target; channels last."""
    load(net, weights)
    image, target = (torch.from_numpy(inputs[name]) for name in inputs)
    layout = torch.channels_last if image.dim() == 4 else torch.channels_last_3d
    net, image = net.to(memory_format=layout), image.to(memory_format=layout)
    return Network(net, [image], lambda y: loss(y, target), optim(net))


def adamw(decay):
    return lambda net: optimizer(torch.optim.AdamW, net, 1e-3, weight_decay=decay)


def unet(read):
    net = peer.UNet((32, 64, 128, 256))
    return image_network(net, *read("image", "mask"), peer.bce_dice, adamw(1e-4),
                         peer.load_engine)  # fmt: skip


def nfbs(read):
    net = peer.UNet((32, 64, 128, 256, 512), bias=True)
    return image_network(net, *read("image", "mask"), peer.bce_dice, adamw(0),
                         peer.load_engine)  # fmt: skip


def generator(read):
    a = argparse.Namespace(filters=32, levels=6, dropout=0.0, better=False, squeeze=0)
    return image_network(
        Generator(11, a), *read("image", "dose"), F.l1_loss,
        lambda net: optimizer(torch.optim.Adam, net, 2e-4, (0.5, 0.999), 1e-7),
    )  # fmt: skip


def resnet18(read):
    return image_network(ResNet18(3), *read("image", "pose"), F.l1_loss, adamw(1e-4))


class Sequences(Network):
    def run(self):
        return self.net(*self.inputs)


def cnn_lstm(read):
    weights, inputs = read("sequence", "length", "label")
    x, length, label = (torch.from_numpy(inputs[name]) for name in inputs)
    net = sequence.from_engine(weights, argparse.Namespace(), torch.float32)
    length, label = length[:, 0].long(), label[:, 0].long()
    return Sequences(net, [x, length], lambda y: F.cross_entropy(y, label),
                     optimizer(torch.optim.AdamW, net, 1e-4, weight_decay=0.0))  # fmt: skip


NETWORKS = {f.__name__: f for f in (unet, nfbs, generator, resnet18, cnn_lstm)}
