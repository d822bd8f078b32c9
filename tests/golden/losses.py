#!/usr/bin/env python3
"""losses.py -- values and gradients of losses in PyTorch, for losses.npz.

    python3 tests/golden/losses.py

Only needed to make the file again; tests/lua/recipe/losses.lua reads it. NAME.loss
is the value of a loss and NAME.grad its gradient by the logits, as autograd of
PyTorch 1.13 computes them in double from the published formula (or PyTorch's own
loss). Inputs follow from numbers() here and in the test, so they need no file.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage

IGNORE = 255


def numbers(seed, *shape):
    """Numbers in [0, 1). Quadratic, as the differences of a linear rule repeat and
    make ties."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((i * i * 4391 + i * 7919 + seed * 4409) % 10007 / 10007).reshape(shape)


def logits(*shape):
    return torch.tensor(6 * numbers(1, *shape) - 3, requires_grad=True)


def classes(c, n, *space, ignore=False):
    """Class numbers (N,1,...); with `ignore` some of them are IGNORE."""
    t = np.floor(numbers(2, n, 1, *space) * c)
    if ignore:
        t[numbers(3, n, 1, *space) < 0.2] = IGNORE
    return torch.tensor(t)


def bits(*shape, ignore=False):
    t = np.floor(numbers(2, *shape) * 2)
    if ignore:
        t[numbers(3, *shape) < 0.2] = IGNORE
    return torch.tensor(t)


def one_hot(t, c):
    return torch.cat([(t == k).double() for k in range(c)], 1)


def parts(x, t, ignore=None):
    """Probabilities, targets and the mask of foreground classes."""
    c = x.shape[1]
    p = torch.sigmoid(x) if c == 1 else torch.softmax(x, 1)
    mask = torch.ones_like(t) if ignore is None else (t != ignore).double()
    if c > 1 and t.shape[1] == 1:
        q = one_hot(t, c)
    else:
        q = torch.where(mask > 0, t, torch.zeros_like(t))
    if c > 1:
        p, q = p[:, 1:], q[:, 1:]
        mask = mask[:, 1:] if mask.shape[1] > 1 else mask
    return p, q, mask


def total(v):
    return v.flatten(2).sum(2)


def weighted_mean(v, w, counts=None):
    """Over samples and classes (N,C)."""
    counts = torch.ones_like(v) if counts is None else counts
    w = torch.ones(v.shape[1]).double() if w is None else torch.tensor(w)
    w = w * counts
    return (v * w).sum() / w.sum()


def tversky(x, t, a=0.5, b=0.5, eps=1.0, w=None, ignore=None, skip=False,
            power=1.0):
    p, q, m = parts(x, t, ignore)
    both, ps, qs = total(m * p * q), total(m * p), total(m * q)
    s = (both + eps) / (both + a * (ps - both) + b * (qs - both) + eps)
    counts = (qs > 0).double() if skip else None
    return weighted_mean((1 - s) ** power, w, counts)


def dice(x, t, eps=1.0, w=None, ignore=None):
    p, q, m = parts(x, t, ignore)
    both, ps, qs = total(m * p * q), total(m * p), total(m * q)
    return weighted_mean(1 - (2 * both + eps) / (ps + qs + eps), w)


def generalized_dice(x, t, eps=1e-5, ignore=None):
    p, q, m = parts(x, t, ignore)
    both, ps, qs = total(m * p * q), total(m * p), total(m * q)
    losses = []
    for n in range(x.shape[0]):
        there = qs[n] > 0
        w = torch.ones_like(qs[n])
        if there.any():
            w[there] = (qs[n][there].min() / qs[n][there]) ** 2
        losses.append(
            1 - (2 * (w * both[n]).sum() + eps)
            / ((w * (ps[n] + qs[n])).sum() + eps)
        )
    return sum(losses) / len(losses)


def cross_entropy(x, t, **options):
    if "weight" in options:
        options["weight"] = torch.tensor(options["weight"]).double()
    return F.cross_entropy(
        x, t[:, 0].long(), ignore_index=IGNORE, **options
    )


def softmax_focal(x, t, gamma=2.0, w=None):
    t = t[:, 0]
    valid = t != IGNORE
    index = torch.where(valid, t, torch.zeros_like(t)).long()
    log_p = torch.log_softmax(x, 1).gather(1, index[:, None])[:, 0]
    w = torch.ones(x.shape[1]) if w is None else torch.tensor(w)
    w = w.double()[index] * valid
    return (w * (1 - log_p.exp()) ** gamma * -log_p).sum() / w.sum()


def bce(x, t, w):
    valid = (t != IGNORE).double()
    w = torch.tensor(w).double().reshape(1, -1, *[1] * (x.dim() - 2)) * valid
    each = F.binary_cross_entropy_with_logits(x, t * valid, reduction="none")
    return (w * each).sum() / w.sum()


def focal(x, t, w, gamma=2.0):
    valid = (t != IGNORE).double()
    w = torch.tensor(w).double().reshape(1, -1, *[1] * (x.dim() - 2)) * valid
    p = torch.sigmoid(x)
    z = torch.where(t > 0.5, p, 1 - p)
    return (w * -((1 - z) ** gamma) * z.log()).sum() / w.sum()


def pool(x, size):
    f = F.max_pool2d if x.dim() == 4 else F.max_pool3d
    return f(x, size, 1, [k // 2 for k in size])


def erode(x):
    axes = x.dim() - 2
    each = [
        -pool(-x, [3 if i == k else 1 for i in range(axes)])
        for k in range(axes)
    ]
    return torch.stack(each).amin(0)


def skeleton(x, steps):
    def opened(v):
        return pool(erode(v), [3] * (x.dim() - 2))

    skel = F.relu(x - opened(x))
    for _ in range(steps):
        x = erode(x)
        delta = F.relu(x - opened(x))
        skel = skel + F.relu(delta - skel * delta)
    return skel


def cldice(x, t, steps=3, eps=1.0):
    p, q, _ = parts(x, t)
    of_p, of_q = skeleton(p, steps), skeleton(q, steps)
    a = (total(of_p * q) + eps) / (total(of_p) + eps)
    b = (total(of_q * p) + eps) / (total(of_q) + eps)
    return (1 - 2 * a * b / (a + b)).mean()


def signed_distance(mask, spacing):
    """In mm, below 0 inside; 0 without a boundary."""
    mask = mask > 0.5
    if not mask.any() or mask.all():
        return np.zeros(mask.shape)
    return ndimage.distance_transform_edt(
        ~mask, spacing
    ) - ndimage.distance_transform_edt(mask, spacing)


def distances(t, c):
    """The map (N,C-1,...) of class numbers, or (N,1,...) of one class."""
    t = t.numpy()
    spacing = (2.5, 1.0, 0.75)[-(t.ndim - 2):]
    return torch.tensor(
        np.stack([
            np.stack([
                signed_distance(t[n, 0] == k, spacing)
                for k in ([1] if c == 1 else range(1, c))
            ])
            for n in range(t.shape[0])
        ])
    )


def boundary(x, d):
    p = torch.sigmoid(x) if x.shape[1] == 1 else torch.softmax(x, 1)[:, 1:]
    return (p * d).mean()


def hausdorff(x, t, d, alpha=2.0):
    p, q, _ = parts(x, t)
    return ((p - q) ** 2 * d.abs() ** alpha).mean()


def ssim(x, t, window=11, sigma=1.5, data_range=1.0):
    axes = x.dim() - 2
    g = torch.exp(
        -((torch.arange(window).double() - (window - 1) / 2) ** 2)
        / (2 * sigma**2)
    )
    g = g / g.sum()
    kernel = g
    for _ in range(axes - 1):
        kernel = kernel[..., None] * g
    c = x.shape[1]
    kernel = kernel.expand(c, 1, *kernel.shape)
    conv = F.conv2d if axes == 2 else F.conv3d

    def mean(v):
        return conv(v, kernel, groups=c)

    a, b = mean(x), mean(t)
    vx, vt = mean(x * x) - a * a, mean(t * t) - b * b
    cov = mean(x * t) - a * b
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    return 1 - (
        (2 * a * b + c1) * (2 * cov + c2)
        / ((a * a + b * b + c1) * (vx + vt + c2))
    ).mean()


def total_variation(x):
    return sum(
        torch.diff(x, dim=k).abs().mean() for k in range(2, x.dim())
    )


def isotropic_variation(x, eps=1e-3):
    e = 0
    for k in range(2, x.dim()):
        d = torch.diff(x, dim=k)
        for j in range(2, x.dim()):
            if j != k:
                d = d.narrow(j, 0, x.shape[j] - 1)
        e = e + d**2
    return torch.sqrt(e + eps**2).mean()


def topk(x, t, share=0.1, w=None):
    """Each sample's hardest positions; weights do not choose."""
    t = t[:, 0]
    num = den = 0
    w = torch.ones(x.shape[1]) if w is None else torch.tensor(w)
    for n in range(x.shape[0]):
        valid = t[n] != IGNORE
        index = torch.where(valid, t[n], torch.zeros_like(t[n])).long()
        each = F.cross_entropy(x[n : n + 1], index[None], reduction="none")[0]
        each, weight = each[valid], w.double()[index][valid]
        k = int(np.ceil(share * len(each) - 1e-6))
        best = each.detach().topk(k).indices
        num = num + (weight[best] * each[best]).sum()
        den = den + weight[best].sum()
    return num / den


def lovasz_gradient(truth):
    """Algorithm 1 of Berman: of sorted 0 and 1."""
    left = truth.sum() - truth.cumsum(0)
    union = truth.sum() + (1 - truth).cumsum(0)
    jaccard = 1 - left / union
    jaccard[1:] = jaccard[1:] - jaccard[:-1]
    return jaccard


def lovasz(errors, truth, mask, w=None, skip=False):
    """Of (N,C,...); classes by the mean over samples and classes."""
    value = torch.zeros(errors.shape[:2]).double()
    there = torch.zeros_like(value)
    for n in range(errors.shape[0]):
        for c in range(errors.shape[1]):
            keep = mask[n, c % mask.shape[1]].flatten() > 0
            e, s = (v[n, c].flatten()[keep] for v in (errors, truth))
            e, order = torch.sort(e, descending=True)
            value[n, c] = (e * lovasz_gradient(s[order])).sum()
            there[n, c] = float(s.sum() > 0 or not skip)
    return weighted_mean(value, w, there)


def lovasz_softmax(x, t, **options):
    p = torch.sigmoid(x) if x.shape[1] == 1 else torch.softmax(x, 1)
    mask = (t != IGNORE).double()
    truth = t * mask if x.shape[1] == 1 else one_hot(t, x.shape[1])
    return lovasz((truth - p).abs(), truth, mask, skip=True, **options)


def lovasz_hinge(x, t, **options):
    mask = (t != IGNORE).double()
    t = t * mask
    return lovasz(F.relu(1 - x * (2 * t - 1)), t, mask, **options)


def gaussian_kl(x, each=False):
    mean, logvar = x.chunk(2, 1)
    p = torch.distributions.Normal(mean, torch.exp(logvar / 2))
    q = torch.distributions.Normal(
        torch.zeros_like(mean), torch.ones_like(mean)
    )
    kl = torch.distributions.kl_divergence(p, q)
    return kl.mean() if each else kl.flatten(1).sum(1).mean()


def perceptual(x, t):
    """Two features of a network with a batch norm in evaluation."""
    w1 = torch.tensor(numbers(5, 3, 2, 3, 3) - 0.5)
    w2 = torch.tensor(numbers(6, 2, 3, 3, 3) - 0.5)
    mean, var = (torch.tensor(numbers(k, 3)) for k in (7, 8))

    def features(v):
        v = F.batch_norm(F.conv2d(v, w1, padding=1), mean, var, eps=1e-5)
        v = F.relu(v)
        return v, F.conv2d(v, w2, padding=1)

    return sum(
        w * F.l1_loss(a, b)
        for w, a, b in zip([0.5, 2.0], features(x), features(t))
    )


PLANE, VOLUME = (5, 6), (3, 4, 5)
W3 = [0.5, 1.0, 2.5]


def image(seed, *shape):
    return torch.tensor(numbers(seed, *shape))


def rows():
    for name, space in ("2d", PLANE), ("3d", VOLUME):
        x1, x3 = (2, 1, *space), (2, 3, *space)
        x2 = (2, 2, *space)
        t3 = classes(3, 2, *space)
        t3i = classes(3, 2, *space, ignore=True)
        b1, b1i = bits(*x1), bits(*x1, ignore=True)
        b2i = bits(*x2, ignore=True)
        d3, d1 = distances(t3, 3), distances(b1, 1)

        yield f"ce_weights_{name}", x3, lambda x: cross_entropy(
            x, t3i, weight=W3)
        yield f"ce_smoothing_{name}", x3, lambda x: cross_entropy(
            x, t3i, label_smoothing=0.1)
        yield f"ce_both_{name}", x3, lambda x: cross_entropy(
            x, t3i, weight=W3, label_smoothing=0.3)
        yield f"softmax_focal_{name}", x3, lambda x: softmax_focal(x, t3i)
        yield f"softmax_focal_half_{name}", x3, lambda x: softmax_focal(
            x, t3i, gamma=0.5, w=W3)
        yield f"bce_weights_{name}", x2, lambda x: bce(x, b2i, [1.0, 3.0])
        yield f"focal_weights_{name}", x2, lambda x: focal(x, b2i, [1.0, 3.0])
        yield f"dice_weights_{name}", x3, lambda x: dice(
            x, t3i, w=W3[1:], ignore=IGNORE)
        yield f"dice_ignore_{name}", x1, lambda x: dice(
            x, b1i, ignore=IGNORE)
        yield f"tversky_weights_{name}", x3, lambda x: tversky(
            x, t3i, 0.3, 0.7, w=W3[1:], ignore=IGNORE)
        yield f"bce_dice_weights_{name}", x2, lambda x: bce(
            x, b2i, [1.0, 3.0]) + 0.5 * dice(x, b2i, w=[3.0], ignore=IGNORE)
        yield f"generalized_dice_{name}", x3, lambda x: generalized_dice(
            x, t3i, ignore=IGNORE)
        yield f"generalized_dice_one_{name}", x1, lambda x: generalized_dice(
            x, b1)
        yield f"generalized_dice_absent_{name}", x3, (
            lambda x: generalized_dice(x, t3 * (t3 < 2)))
        yield f"focal_tversky_{name}", x3, lambda x: tversky(
            x, t3, 0.3, 0.7, power=0.75, w=W3[1:])
        yield f"focal_tversky_skip_{name}", x3, lambda x: tversky(
            x, t3 * (t3 < 2), 0.3, 0.7, power=0.75, skip=True)
        yield f"cldice_{name}", x3, lambda x: cldice(x, t3)
        yield f"cldice_one_{name}", x1, lambda x: cldice(x, b1, steps=2)
        yield f"boundary_{name}", x3, lambda x: boundary(x, d3)
        yield f"boundary_one_{name}", x1, lambda x: boundary(x, d1)
        yield f"hausdorff_{name}", x3, lambda x: hausdorff(x, t3, d3)
        yield f"hausdorff_one_{name}", x1, lambda x: hausdorff(
            x, b1, d1, alpha=1.5)
        yield f"variation_{name}", x2, total_variation
        yield f"variation_isotropic_{name}", x2, isotropic_variation
        yield f"kl_{name}", x2, gaussian_kl
        yield f"topk_{name}", x3, lambda x: topk(x, t3i)
        yield f"topk_weights_{name}", x3, lambda x: topk(x, t3i, 0.3, W3)
        yield f"lovasz_softmax_{name}", x3, lambda x: lovasz_softmax(x, t3)
        yield f"lovasz_softmax_ignore_{name}", x3, lambda x: lovasz_softmax(
            x, t3i, w=W3)
        yield f"lovasz_softmax_absent_{name}", x3, lambda x: lovasz_softmax(
            x, t3 * (t3 < 2))
        yield f"lovasz_softmax_one_{name}", x1, lambda x: lovasz_softmax(
            x, b1i)
        yield f"lovasz_hinge_{name}", x2, lambda x: lovasz_hinge(x, b2i)
        yield f"lovasz_hinge_empty_{name}", x1, lambda x: lovasz_hinge(
            x, b1 * 0)
    yield "kl_each", (3, 4), lambda x: gaussian_kl(x, True)
    x2 = (2, 2, *PLANE)
    yield "perceptual", x2, lambda x: perceptual(x, image(4, *x2))
    s2, s3 = (2, 2, 12, 13), (1, 1, 6, 7, 8)
    yield "ssim_2d", s2, lambda x: ssim(x, image(4, *s2), data_range=6)
    yield "ssim_3d", s3, lambda x: ssim(
        x, image(4, *s3), window=5, sigma=1.0, data_range=2)


out = {}
for name, shape, f in rows():
    x = logits(*shape)
    loss = f(x)
    loss.backward()
    out[name + ".loss"] = np.array([loss.item()], np.float32)
    out[name + ".grad"] = x.grad.numpy().astype(np.float32)
np.savez_compressed(
    pathlib.Path(__file__).with_suffix(".npz"), **dict(sorted(out.items()))
)
