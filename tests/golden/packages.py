#!/usr/bin/env python3
"""packages.py -- networks of published packages, reference of tests/lua/recipe/net_packages.lua.

    pip install torch==2.15.0 torchvision==0.29.2 monai==1.6.1 \\
        dynamic-network-architectures==0.4.4
    python3 tests/golden/packages.py

writes into this folder, for the cases of CASES,
    packages.safetensors   initial weights, CASE.NAME with segengine's names, or
                           for nnU-Net with its own, which net.nnunet_names knows
    packages.npz           CASE_x input, CASE_t target, CASE_y result,
                           CASE_train {loss, norm of all gradients}
and prints the parameters of the networks in full size, which the test has as
numbers. The loss is the mean squared error. No layer of these cases differs between
training and evaluation; MONAI's MedNeXt has coarser results in training only.
They (deep supervision) are added to the finest as means over positions, so that
they are compared too. All values are computed in float64 from float32
weights and inputs, which are exact in both programs.
"""

import pathlib
import re
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from dynamic_network_architectures.architectures import unet as nnunet
from monai.networks.nets import UNETR, mednext
from torchvision.models import VisionTransformer, vit_b_16

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))
import unet_torch as peer  # noqa: E402

# nnU-Net ------------------------------------------------------------------------


def nnunet_net(kind, conv, c, features, kernels, strides, out, **more):
    norm = {nn.Conv2d: nn.InstanceNorm2d, nn.Conv3d: nn.InstanceNorm3d}[conv]
    return kind(
        c, len(features), features, conv, kernels, strides,
        num_classes=out, conv_bias=True, norm_op=norm,
        norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=True, **more,
    )  # fmt: skip


def plain(conv, c, features, kernels, strides, out, convs=2, decoder=2):
    return nnunet_net(
        nnunet.PlainConvUNet, conv, c, features, kernels, strides, out,
        n_conv_per_stage=convs, n_conv_per_stage_decoder=decoder,
    )  # fmt: skip


def residual(conv, c, features, kernels, strides, out, blocks=None):
    blocks = blocks or ([1, 3, 4] + 6 * [6])[: len(features)]
    return nnunet_net(
        nnunet.ResidualEncoderUNet, conv, c, features, kernels, strides, out,
        n_blocks_per_stage=blocks, n_conv_per_stage_decoder=1,
    )  # fmt: skip


def own_name(name, net):
    """The name in the package; net.nnunet_names translates it."""
    return name


def keep(_, value):
    return value


# MedNeXt ------------------------------------------------------------------------


def med_next(c, out, filters, kernel, blocks, expansions, rank, deep=True):
    """blocks, expansions: by level, the bottom last; the decoder as the encoder."""
    down, bottom = blocks[:-1], blocks[-1]
    return mednext.MedNeXt(
        rank, filters, c, out, expansions[:-1], expansions[:-1][::-1],
        expansions[-1], kernel, deep, True, down, bottom, down[::-1],
    )  # fmt: skip


def mednext_name(name, net):
    """enc_stages.0.1.conv2.weight -> enc1.block2.conv2.weight"""
    levels = len(net.enc_stages)
    rules = [
        (r"^enc_stages\.(\d+)\.(\d+)\.",
         lambda m: f"enc{int(m[1]) + 1}.block{int(m[2]) + 1}."),
        (r"^down_blocks\.(\d+)\.", lambda m: f"down{int(m[1]) + 1}."),
        (r"^bottleneck\.(\d+)\.", lambda m: f"bottom.block{int(m[1]) + 1}."),
        (r"^up_blocks\.(\d+)\.", lambda m: f"up{levels - int(m[1])}."),
        (r"^dec_stages\.(\d+)\.(\d+)\.",
         lambda m: f"dec{levels - int(m[1])}.block{int(m[2]) + 1}."),
        (r"^out_0\.conv_out\.", "head."),
        (r"^out_blocks\.(\d+)\.conv_out\.",
         lambda m: f"head{levels - int(m[1]) + 1}."),
        (r"res_conv\.", "short."),
        (r"norm\.", "norm1."),
        # the names of layers that a step makes first
        (r"(up\d+)\.conv1\.", r"\1.upconv1."),
    ]  # fmt: skip
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def mednext_value(name, value):
    """The heads are transposed convolutions of 1, here convolutions of 1."""
    return value.swapaxes(0, 1) if re.match(r"head\d*\.weight", name) else value


# Transformers -------------------------------------------------------------------


def vit(image, patch, layers, heads, width, mlp, out):
    return VisionTransformer(image, patch, layers, heads, width, mlp, num_classes=out)


def vit_name(name, net):
    """encoder.layers.encoder_layer_0.mlp.3.weight -> layer1.linear2.weight"""
    rules = [
        (r"^encoder\.layers\.encoder_layer_(\d+)\.",
         lambda m: f"layer{int(m[1]) + 1}."),
        (r"\.ln_(\d)\.", r".norm\1."),
        (r"\.self_attention\.", ".attention1."),
        (r"\.mlp\.0\.", ".linear1."),
        (r"\.mlp\.3\.", ".linear2."),
        (r"^encoder\.ln\.", "norm."),
        (r"^encoder\.pos_embedding$", "position"),
        (r"^conv_proj\.", "patch."),
        (r"^heads\.head\.", "head."),
    ]  # fmt: skip
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def vit_value(name, value):
    """Tokens (1,S,C) are (1,C,S) here."""
    return value.swapaxes(1, 2) if name in ("class_token", "position") else value


def unetr_name(name, net):
    """vit.blocks.0.attn.qkv.weight -> layer1.attention1.in_proj_weight"""
    if "norm_cross_attn" in name:  # MONAI's blocks have it and do not use it
        return None
    rules = [
        (r"^vit\.blocks\.(\d+)\.", lambda m: f"layer{int(m[1]) + 1}."),
        (r"\.mlp\.linear", ".linear"),
        (r"\.attn\.qkv\.weight", ".attention1.in_proj_weight"),
        (r"\.attn\.out_proj\.", ".attention1.out_proj."),
        (r"^vit\.patch_embedding\.patch_embeddings\.", "patch."),
        (r"^vit\.patch_embedding\.position_embeddings", "position"),
        (r"^vit\.norm\.", "norm."),
        (r"^encoder(\d)\.(layer\.)?", r"enc\1."),
        (r"transp_conv_init\.conv\.", "up1."),
        (r"blocks\.(\d)\.0\.conv\.", lambda m: f"up{int(m[1]) + 2}."),
        (r"blocks\.(\d)\.1\.", lambda m: f"block{int(m[1]) + 2}."),
        (r"^decoder(\d)\.transp_conv\.conv\.", lambda m: f"up{int(m[1]) - 1}."),
        (r"^decoder(\d)\.conv_block\.", lambda m: f"dec{int(m[1]) - 1}."),
        (r"conv3\.conv\.", "short."),
        (r"(conv\d)\.conv\.", r"\1."),
        (r"^out\.conv\.conv\.", "head."),
    ]  # fmt: skip
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def unetr_value(name, value):
    """The positions lie on a grid of 2 by 3 patches here."""
    if name != "position":
        return value
    return value.swapaxes(1, 2).reshape(1, -1, 2, 3)


# Cases --------------------------------------------------------------------------

THIN = ((1, 3, 3), (3, 3, 3), (3, 3, 3))
HALVES = ((1, 1, 1), (1, 2, 2), (2, 2, 2))

# name: (network, its name in segengine, its tensor in segengine, input)
CASES = {
    "nnunet_plain": (
        lambda: plain(nn.Conv3d, 1, (2, 4, 4), THIN, HALVES, 2),
        own_name, keep, (1, 1, 8, 16, 16),
    ),
    "nnunet_residual": (
        lambda: residual(nn.Conv3d, 2, (2, 3, 3), THIN, HALVES, 2),
        own_name, keep, (1, 2, 8, 16, 16),
    ),
    "unet_by_level": (
        lambda: plain(nn.Conv2d, 1, (2, 3, 4), (5, 3, (1, 3)), (1, (2, 1), 2), 1,
                      [1, 2, 3], [2, 1]),
        own_name, keep, (2, 1, 8, 6),
    ),
    "mednext": (
        lambda: med_next(2, 2, 2, 3, (1, 2, 1), (2, 3, 2), 2),
        mednext_name, mednext_value, (2, 2, 8, 12),
    ),
    "mednext5": (
        lambda: med_next(1, 1, 2, 5, (1, 1), (2, 1), 3),
        mednext_name, mednext_value, (1, 1, 4, 6, 8),
    ),
    "vit": (lambda: vit(12, 4, 2, 2, 8, 12, 3), vit_name, vit_value, (2, 3, 12, 12)),
    "unetr": (
        lambda: UNETR(1, 2, (32, 48), 2, 8, 12, 2, spatial_dims=2),
        unetr_name, unetr_value, (1, 1, 32, 48),
    ),
}  # fmt: skip

CUBE = ((3, 3, 3),) * 6
EVEN = ((1, 1, 1),) + ((2, 2, 2),) * 5
WIDE = (32, 64, 128, 256, 320, 320)

# Networks in full size: what nnunetv2 2.8.1 plans for a data set with these channels
# and classes, spacing and median extents (d, h, w) (plain: ExperimentPlanner, M, L, XL:
# nnUNetPlannerResEncM, L, XL)
SIZES = {
    "plain, 1x1x1 mm, 482x512x512, patch 128x128x128": lambda: plain(
        nn.Conv3d, 1, WIDE, CUBE, EVEN, 3),
    "M, L, XL of the same, patch 128x128x128, 192x192x192, 224x256x224":
        lambda: residual(nn.Conv3d, 1, WIDE, CUBE, EVEN, 3),
    "M, 4 channels, 1x1x1 mm, 140x171x136, patch 128x160x112": lambda: residual(
        nn.Conv3d, 4, WIDE, CUBE, EVEN[:5] + ((2, 2, 1),), 4),
    "M, 2x0.711x0.711 mm, 103x488x488, patch 40x224x192": lambda: residual(
        nn.Conv3d, 1, WIDE, ((1, 3, 3),) + CUBE[1:],
        ((1, 1, 1), (1, 2, 2)) + EVEN[1:4] + ((1, 2, 2),), 16),
    "L, XL of the same, patch 64x320x256, 80x320x320": lambda: residual(
        nn.Conv3d, 1, WIDE + (320,), ((1, 3, 3),) + CUBE,
        ((1, 1, 1), (1, 2, 2)) + EVEN[1:5] + ((1, 2, 2),), 16),
    "M, L, XL in 2-D, patch 512x512": lambda: residual(
        nn.Conv2d, 1, (32, 64, 128, 256, 512, 512, 512, 512), 3,
        (1,) + (2,) * 7, 16),
    "plain, 6.35x1.5625x1.5625 mm, 14x231x216, patch 14x256x224": lambda: plain(
        nn.Conv3d, 1, WIDE, ((1, 3, 3),) * 2 + CUBE[:4],
        ((1, 1, 1), (1, 2, 2), (1, 2, 2), (2, 2, 2), (1, 2, 2), (1, 2, 2)), 4),
    **{f"MedNeXt {size}, kernel {k}": lambda size=size, k=k: mednext.create_mednext(
        size, kernel_size=k) for size in "SBML" for k in (3, 5)},
    "vit_b_16": vit_b_16,
    "ViT of 32 channels": lambda: vit(32, 8, 2, 4, 32, 64, 5),
    # these with 12 times norm_cross_attn, 1536 parameters each
    "UNETR 96": lambda: UNETR(1, 14, 96),
    "UNETR 96, qkv_bias": lambda: UNETR(1, 14, 96, qkv_bias=True),
    "UNETR 96, 32 features, batch norm": lambda: UNETR(
        1, 14, 96, feature_size=32, norm_name="batch"),
    "UNETR 128": lambda: UNETR(4, 3, 128),
    "UNETR 96 in 2-D": lambda: UNETR(1, 4, 96, feature_size=32, norm_name="batch",
                                     spatial_dims=2),
}  # fmt: skip


def result(y):
    """One tensor from all results of a network."""
    if not isinstance(y, (list, tuple)):
        return y
    for coarse in y[1:]:
        mean = coarse.flatten(2).mean(2)
        y = [y[0] + mean.reshape(mean.shape + (1,) * (y[0].dim() - 2))]
    return y[0]


def new_net(make):
    """The package's initial weights, norms with random scale and shift, and random
    numbers for tensors of zeros: float32 numbers, stored in float64."""
    torch.manual_seed(1)
    net = make()
    for layer in net.modules():
        if "Norm" in type(layer).__name__ and getattr(layer, "weight", None) is not None:
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0.0, 0.2)
    for p in net.parameters():
        if not p.any():
            nn.init.normal_(p, 0.0, 0.2)
    return net.double()


def main():
    torch.set_num_threads(2)
    rng, weights, arrays = np.random.RandomState(7), {}, {}
    for name, (make, rename, change, shape) in CASES.items():
        x = rng.normal(size=shape).astype("<f4")
        net, feed = new_net(make), torch.from_numpy(x).double()
        for k, v in net.named_parameters():
            mine = rename(k, net)
            if mine:
                value = change(mine, v.detach().numpy())
                weights[f"{name}.{mine}"] = value.astype("<f4")
        with torch.no_grad():
            y = result(net(feed)).numpy()
        t = rng.normal(size=y.shape).astype("<f4")
        loss = F.mse_loss(result(net(feed)), torch.from_numpy(t).double())
        loss.backward()
        norm_sq = sum((p.grad**2).sum() for p in net.parameters() if p.grad is not None)
        arrays.update({f"{name}_x": x, f"{name}_t": t,
                       f"{name}_y": y.astype("<f4"),
                       f"{name}_train": np.array([loss.item(),
                                                  norm_sq.sqrt().item()])})
        print(f"{name}: y {y.shape} {y.mean():.4f} +- {y.std():.4f}, loss {loss:.6f}")
    peer.save_tensors(HERE / "packages.safetensors", weights)
    np.savez(HERE / "packages.npz", **arrays)
    with torch.device("meta"):
        for name, make in SIZES.items():
            print(f"{name}: {sum(p.numel() for p in make().parameters())} parameters")


if __name__ == "__main__":
    main()
