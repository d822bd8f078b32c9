#!/usr/bin/env python3
"""networks.py -- the networks of seg.net in PyTorch, reference of tests/lua/recipe/net.lua.

    /usr/bin/python3 tests/golden/networks.py

writes into this folder
    networks.safetensors   initial weights, CASE.NAME with PyTorch's names
    networks.npz           CASE_x input, CASE_t target, CASE_y evaluation
                           forward, CASE_train {loss, norm of all gradients},
                           CASE_l lengths of sequences
for the cases of CASES, which tests/lua/recipe/net.lua builds with the same options. The
loss is the mean squared error of the training forward pass. All values are
computed in float64 from float32 weights and inputs, which are exact in both
programs; norms have random scale and shift, and running statistics come from one
forward pass.

The modules follow the papers and the rules in lua/net*.lua. ResNet has
torchvision's names, so that a file of that library loads the same way; the
others have segengine's names.
"""

import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))
import unet_torch as peer  # noqa: E402

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
UPCONV = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
BATCH = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
MAXPOOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVGPOOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class LayerNorm(nn.LayerNorm):
    """Layer norm over the channels of each position."""

    def forward(self, x):
        return super().forward(x.transpose(1, -1)).transpose(1, -1)


def norm(o, c):
    rank = o["rank"]
    return {
        "batch": lambda: BATCH[rank](c),
        "instance": lambda: INSTANCE[rank](c, affine=True),
        "layer": lambda: LayerNorm(c),
        "group": lambda: nn.GroupNorm(o.get("groups", 8), c),
        "none": nn.Identity,
    }[o.get("norm", "batch")]()


def mean_of(x):
    return x.flatten(2).mean(2)


def spread(s, x):
    """(N,C) reshaped to as many axes as x."""
    return s.reshape(s.shape + (1,) * (x.dim() - 2))


# U-Net ------------------------------------------------------------------------


class Squeeze(nn.Module):
    def __init__(self, c, reduction):
        super().__init__()
        self.linear1 = nn.Linear(c, max(1, c // reduction))
        self.linear2 = nn.Linear(max(1, c // reduction), c)

    def forward(self, x):
        s = torch.sigmoid(self.linear2(F.relu(self.linear1(mean_of(x)))))
        return x * spread(s, x)


class Block(nn.Module):
    def __init__(self, before, after, o, stride=1):
        super().__init__()
        conv, bias = CONV[o["rank"]], o.get("norm", "batch") == "none"
        self.convs, self.act = o.get("convs", 2), o.get("act", F.relu)
        self.residual, c = o.get("residual", False), before
        for i in range(1, self.convs + 1):
            s = stride if i == 1 else 1
            setattr(self, f"conv{i}", conv(c, after, 3, s, 1, bias=bias))
            setattr(self, f"norm{i}", norm(o, after))
            c = after
        if o.get("squeeze"):
            self.squeeze = Squeeze(after, o["squeeze"])
        if self.residual and (before != after or stride != 1):
            self.short = conv(before, after, 1, stride, bias=bias)
            self.short_norm = norm(o, after)

    def forward(self, x):
        y = x
        for i in range(1, self.convs + 1):
            y = getattr(self, f"norm{i}")(getattr(self, f"conv{i}")(y))
            if i < self.convs or not self.residual:
                y = self.act(y)
        if hasattr(self, "squeeze"):
            y = self.squeeze(y)
        if self.residual:
            if hasattr(self, "short"):
                x = self.short_norm(self.short(x))
            y = self.act(y + x)
        return y


class Gate(nn.Module):
    def __init__(self, skip, gate, o):
        super().__init__()
        conv, width = CONV[o["rank"]], max(1, skip // 2)
        self.skip = conv(skip, width, 2, 2, bias=False)
        self.gate = conv(gate, width, 1)
        self.psi = conv(width, 1, 1)
        self.mode = LINEAR[o["rank"]]

    def forward(self, x, g):
        a = torch.sigmoid(self.psi(F.relu(self.skip(x) + self.gate(g))))
        return x * F.interpolate(
            a, scale_factor=2, mode=self.mode, align_corners=False
        )


class Mixer(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.norm1 = LayerNorm(c)
        self.attention1 = nn.MultiheadAttention(c, heads, batch_first=True)

    def forward(self, x):
        y = self.norm1(x).flatten(2).transpose(1, 2)
        y = self.attention1(y, y, y, need_weights=False)[0]
        return x + y.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """The result; with `deep` plus the means of the coarser results over positions,
    so that their gradients are compared too."""

    def __init__(self, **o):
        super().__init__()
        self.o, rank, features = o, o["rank"], o["features"]
        self.depth, self.deep = len(features), o.get("deep", 0)
        c, strided = o["c"], o.get("down") == "conv"
        for i, f in enumerate(features, 1):
            stride = 2 if strided and i > 1 else 1
            setattr(self, f"enc{i}", Block(c, f, o, stride))
            c = f
        self.bottom = Block(c, 2 * c, o, 2 if strided else 1)
        if o.get("heads"):
            self.mixer = Mixer(2 * c, o["heads"])
        low = 2 * c
        for i in range(self.depth, 0, -1):
            f = features[i - 1]
            up = (CONV[rank](low, f, 1) if o.get("up") == "linear"
                  else UPCONV[rank](low, f, 2, 2))  # fmt: skip
            setattr(self, f"up{i}", up)
            if o.get("gates"):
                setattr(self, f"gate{i}", Gate(f, low, o))
            setattr(self, f"dec{i}", Block(2 * f, f, o))
            low = f
        out = o.get("out", 1)
        self.head = CONV[rank](features[0], out, 1)
        for i in range(2, self.deep + 2):
            setattr(self, f"head{i}", CONV[rank](features[i - 1], out, 1))

    def forward(self, x):
        rank, skips, coarse = self.o["rank"], [], 0
        for i in range(1, self.depth + 1):
            x = getattr(self, f"enc{i}")(x)
            skips.append(x)
            if self.o.get("down") != "conv":
                x = MAXPOOL[rank](x, 2)
        x = self.bottom(x)
        if hasattr(self, "mixer"):
            x = self.mixer(x)
        for i in range(self.depth, 0, -1):
            skip, low = skips[i - 1], x
            if self.o.get("up") == "linear":
                x = F.interpolate(
                    x, scale_factor=2, mode=LINEAR[rank], align_corners=False
                )
            up = getattr(self, f"up{i}")(x)
            if self.o.get("gates"):
                skip = getattr(self, f"gate{i}")(skip, low)
            x = getattr(self, f"dec{i}")(torch.cat((up, skip), 1))
            if 2 <= i <= self.deep + 1:
                coarse = coarse + mean_of(getattr(self, f"head{i}")(x))
        y = self.head(x)
        return y + spread(coarse, y) if self.deep else y


# ResNet, with torchvision's names ----------------------------------------------


class Residual(nn.Module):
    """Base of both kinds of block: the residual connection."""

    def __init__(self, before, after, stride):
        super().__init__()
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False),
                nn.BatchNorm2d(after),
            )

    def forward(self, x):
        past = self.downsample(x) if hasattr(self, "downsample") else x
        return F.relu(self.body(x) + past)


class BasicBlock(Residual):
    wide = 1

    def __init__(self, before, after, stride):
        super().__init__(before, after, stride)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)

    def body(self, x):
        return self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))


class Bottleneck(Residual):
    wide = 4

    def __init__(self, before, after, stride):
        super().__init__(before, 4 * after, stride)
        self.conv1 = nn.Conv2d(before, after, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.conv3 = nn.Conv2d(after, 4 * after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * after)

    def body(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.bn3(self.conv3(F.relu(self.bn2(self.conv2(x)))))


class ResNet(nn.Module):
    STAGES = {
        18: (BasicBlock, (2, 2, 2, 2)),
        34: (BasicBlock, (3, 4, 6, 3)),
        50: (Bottleneck, (3, 4, 6, 3)),
    }

    def __init__(self, c=3, depth=18, base=64, out=1000, stem="large"):
        super().__init__()
        kind, counts = self.STAGES[depth]
        self.large = stem == "large"
        self.conv1 = (nn.Conv2d(c, base, 7, 2, 3, bias=False) if self.large
                      else nn.Conv2d(c, base, 3, 1, 1, bias=False))  # fmt: skip
        self.bn1 = nn.BatchNorm2d(base)
        c = base
        for i, count in enumerate(counts):
            f, blocks = base << i, []
            for k in range(count):
                stride = 2 if i and not k else 1
                blocks.append(kind(c, f, stride))
                c = f * kind.wide
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.features = c
        if out:
            self.fc = nn.Linear(c, out)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.large:
            x = F.max_pool2d(x, 3, 2, 1)
        x = mean_of(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return self.fc(x) if hasattr(self, "fc") else x


# Others ---------------------------------------------------------------------------


class Linears(nn.Module):
    """Layers linearN and normN; late: ReLU before the norm."""

    def __init__(self, widths, late=False):
        super().__init__()
        self.count, self.late = len(widths) - 1, late
        for i in range(1, self.count + 1):
            setattr(self, f"linear{i}", nn.Linear(widths[i - 1], widths[i]))
            setattr(self, f"norm{i}", nn.BatchNorm1d(widths[i]))

    def forward(self, x):
        for i in range(1, self.count + 1):
            layer, n = getattr(self, f"linear{i}"), getattr(self, f"norm{i}")
            x = n(F.relu(layer(x))) if self.late else F.relu(n(layer(x)))
        return x


class Mlp(Linears):
    def __init__(self, c, hidden, out):
        super().__init__((c,) + hidden)
        self.head = nn.Linear(((c,) + hidden)[-1], out)

    def forward(self, x):
        return self.head(super().forward(x))


class Numbers(Linears):
    def __init__(self, widths):
        super().__init__(widths[:-1], late=True)
        self.out = nn.Linear(*widths[-2:])

    def forward(self, x):
        return self.out(super().forward(x))


class PoseResNet(nn.Module):
    def __init__(self, base, shared, face, pose, face_encoder, pose_encoder,
                 fusion, hidden, out):  # fmt: skip
        super().__init__()
        self.backbone = ResNet(3, 18, base, 0)
        self.shared = Linears((8 * base, shared), late=True)
        self.face = Numbers((shared,) + face)
        self.pose = Numbers((shared,) + pose)
        self.face_encoder = Linears(face[-1:] + face_encoder, late=True)
        self.pose_encoder = Linears(pose[-1:] + pose_encoder, late=True)
        both = face_encoder[-1] + pose_encoder[-1]
        self.fusion = Linears((both, fusion), late=True)
        self.hidden = nn.Linear(fusion, hidden)
        self.head = nn.Linear(hidden, out)

    def forward(self, x):
        x = self.shared(self.backbone(x))
        face = self.face_encoder(self.face(x))
        pose = self.pose_encoder(self.pose(x))
        x = self.fusion(torch.cat((face, pose), 1))
        return self.head(F.relu(self.hidden(x)))


class PoseCnn(nn.Module):
    def __init__(self, features, hidden, out):
        super().__init__()
        c, self.stages = 3, len(features)
        for i, f in enumerate(features, 1):
            setattr(self, f"stage{i}", Block(c, f, dict(rank=2), 2))
            c = f
        self.hidden, self.head = nn.Linear(c, hidden), nn.Linear(hidden, out)

    def forward(self, x):
        for i in range(1, self.stages + 1):
            x = getattr(self, f"stage{i}")(x)
        return self.head(F.relu(self.hidden(mean_of(x))))


class Step(nn.Module):
    """One level of Pix2pix."""

    def __init__(self, rank, kind, before, after, normed):
        super().__init__()
        layer = (CONV if kind == "conv1" else UPCONV)[rank]
        setattr(self, kind, layer(before, after, 4, 2, 1, bias=False))
        if normed:
            self.norm1 = BATCH[rank](after, eps=1e-3, momentum=0.01)
        self.kind = kind

    def forward(self, x):
        x = getattr(self, self.kind)(x)
        x = self.norm1(x) if hasattr(self, "norm1") else x
        return F.leaky_relu(x, 0.2) if self.kind == "conv1" else F.relu(x)


class Pix2pix(nn.Module):
    def __init__(self, rank, c, filters, levels, out=1):
        super().__init__()
        self.rank, self.levels = rank, levels
        width = [filters * min(1 << i, 8) for i in range(levels)]
        for i, f in enumerate(width, 1):
            setattr(self, f"x{i}", Step(rank, "conv1", c, f, i < levels))
            c = f
        for i in range(levels - 1, 0, -1):
            f = width[i - 1]
            setattr(self, f"x{i}b", Step(rank, "upconv1", c, f, True))
            c = 2 * f
        self.x0b = nn.Module()
        self.x0b.upconv1 = UPCONV[rank](c, out, 4, 2, 1)

    def forward(self, x):
        skips = []
        for i in range(1, self.levels + 1):
            x = getattr(self, f"x{i}")(x)
            skips.append(x)
        for i in range(self.levels - 1, 0, -1):
            x = torch.cat((getattr(self, f"x{i}b")(x), skips[i - 1]), 1)
        x = self.x0b.upconv1(x)
        return F.relu(
            AVGPOOL[self.rank](x, 3, 1, 1, count_include_pad=False)
        )


class Cnn(nn.Module):
    def __init__(self, c, features, normed):
        super().__init__()
        self.count = len(features)
        for i, f in enumerate(features, 1):
            setattr(self, f"conv{i}", nn.Conv1d(c, f, 3, padding=1))
            setattr(self, f"norm{i}", norm(dict(rank=1, norm=normed), f))
            c = f

    def forward(self, x):
        for i in range(1, self.count + 1):
            x = getattr(self, f"norm{i}")(getattr(self, f"conv{i}")(x))
            x = F.max_pool1d(F.relu(x), 2)
        return x


class CnnLstm(nn.Module):
    """With lengths each sequence is run alone, cut to its length: a network with
    padded input must give the same result."""

    def __init__(self, c, features, hidden, layers, both, project, out,
                 normed="batch"):  # fmt: skip
        super().__init__()
        self.cnn = Cnn(c, features, normed)
        self.lstm1 = nn.LSTM(features[-1], hidden, layers, batch_first=True,
                             bidirectional=both)  # fmt: skip
        self.project = nn.Module()
        self.project.linear1 = nn.Linear(hidden * (1 + both), project)
        self.project.norm1 = norm(dict(rank=1, norm=normed), project)
        self.head = nn.Linear(2 * project, out)

    def forward(self, x, lengths=None):
        if lengths is not None:
            return torch.cat([self(x[i : i + 1, :, :n])
                              for i, n in enumerate(lengths)])  # fmt: skip
        x = self.lstm1(self.cnn(x).transpose(1, 2))[0]
        x = self.project.linear1(x).transpose(1, 2)
        x = F.relu(self.project.norm1(x))
        return self.head(torch.cat((x.amax(2), x.mean(2)), 1))


# Cases ----------------------------------------------------------------------------

POSE = dict(base=1, shared=6, face=(5, 7), pose=(4, 3), face_encoder=(4, 3),
            pose_encoder=(3, 2), fusion=4, hidden=3, out=3)  # fmt: skip

# name: (network, shape of the input, lengths)
CASES = {
    "unet1d": (lambda: UNet(rank=1, c=2, features=(4, 5)), (2, 2, 8)),
    "unet2d": (
        lambda: UNet(rank=2, c=1, features=(2, 4), residual=True, gates=True,
                     squeeze=2, out=2),
        (2, 1, 16, 8),
    ),
    "unet3d": (
        lambda: UNet(rank=3, c=1, features=(2, 4), norm="group", groups=2,
                     act=F.silu, gates=True),
        (2, 1, 4, 8, 8),
    ),
    "unetdeep": (
        lambda: UNet(rank=2, c=1, features=(2, 3, 4), norm="instance",
                     act=lambda x: F.leaky_relu(x, 0.2), down="conv",
                     up="linear", deep=2, residual=True, convs=3),
        (2, 1, 16, 16),
    ),
    "resnet18": (lambda: ResNet(3, 18, 2, 5), (2, 3, 32, 48)),
    "resnet34": (lambda: ResNet(1, 34, 1, 4, "small"), (2, 1, 16, 16)),
    "resnet50": (lambda: ResNet(3, 50, 1, 3, "small"), (2, 3, 24, 16)),
    "pose_resnet": (lambda: PoseResNet(**POSE), (3, 3, 32, 32)),
    "pose_cnn": (lambda: PoseCnn((2, 3, 4), 5, 3), (2, 3, 20, 18)),
    "pix2pix": (lambda: Pix2pix(3, 2, 1, 3), (2, 2, 8, 8, 16)),
    "pix2pix6": (lambda: Pix2pix(2, 1, 1, 6), (1, 1, 64, 64)),
    "unetheads": (
        lambda: UNet(rank=2, c=1, features=(2, 4), heads=4, act=F.silu),
        (2, 1, 8, 16),
    ),
    "cnn_lstm": (
        lambda: CnnLstm(3, (4, 5), 4, 2, True, 6, 3, "layer"), (3, 3, 19),
        (19, 4, 11),
    ),
    "cnn_lstm1": (
        lambda: CnnLstm(3, (4, 5), 4, 1, False, 6, 3), (4, 3, 12),
    ),
    "mlp": (lambda: Mlp(6, (5, 4), 3), (4, 6)),
}  # fmt: skip


def new_net(make, feeds):
    """PyTorch's initial weights, norms with random scale and shift, running
    statistics of one forward pass: float32 numbers, stored in float64."""
    torch.manual_seed(1)
    net = make()
    for layer in net.modules():
        if getattr(layer, "affine", False):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0.0, 0.2)
    with torch.no_grad():
        net(feeds[0].float(), *feeds[1:])
    return net.double()


def main():
    torch.set_num_threads(2)
    rng, weights, arrays = np.random.RandomState(7), {}, {}
    for name, (make, shape, *lengths) in CASES.items():
        x = rng.normal(size=shape).astype("<f4")
        feeds = [torch.from_numpy(x).double(), *lengths]
        net = new_net(make, feeds)
        for k, v in net.state_dict().items():
            if not k.endswith("num_batches_tracked"):
                weights[f"{name}.{k}"] = v.numpy().astype("<f4")
        net.eval()
        with torch.no_grad():
            y = net(*feeds).numpy()
        t = rng.normal(size=y.shape).astype("<f4")
        net.train()
        loss = F.mse_loss(net(*feeds), torch.from_numpy(t).double())
        loss.backward()
        norm_sq = sum((p.grad**2).sum() for p in net.parameters())
        arrays.update({f"{name}_x": x, f"{name}_t": t,
                       f"{name}_y": y.astype("<f4"),
                       f"{name}_train": np.array([loss.item(),
                                                  norm_sq.sqrt().item()])})
        if lengths:
            arrays[f"{name}_l"] = np.array(lengths[0], "<f4").reshape(-1, 1)
        print(f"{name}: {sum(p.numel() for p in net.parameters())} parameters,"
              f" y {y.shape} {y.mean():.4f} +- {y.std():.4f}, loss {loss:.6f}")
    peer.save_tensors(HERE / "networks.safetensors", weights)
    np.savez(HERE / "networks.npz", **arrays)


if __name__ == "__main__":
    main()
