#!/usr/bin/env python3
"""methods.py -- the methods of tests/lua/methods in PyTorch, for methods_golden.lua.

    python3 tests/golden/methods.py > tests/golden/methods_golden.lua

Only needed to make the table again; tests/lua/recipe/methods.lua reads it. Each
function is a published method in plain PyTorch, in double, with the data and the
first weights of tests/lua/methods/synthetic.lua, and returns the losses of 20 steps,
each before its update. Needs no numpy. Made with PyTorch 2.15.
"""

import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
STEPS = range(1, 21)


def wave(*shape, seed, factor=1.0):
    count = math.prod(shape)
    list_ = [factor * math.sin(1.7 * i + seed) for i in range(count)]
    return torch.tensor(list_).reshape(shape)


def discs(n):
    """Images of discs, masks, signed distances: (n,1,8,8) each."""
    distance = []
    for i in range(64 * n):
        k, h, w = i // 64, i // 8 % 8, i % 8
        away = math.hypot(h - 3 - k % 2, w - 3 - k % 3)
        distance.append(away - (1.6 + 0.3 * (k % 4)))
    mask = [float(d < 0) for d in distance]
    image = [m + 0.5 * math.sin(1.7 * i) for i, m in enumerate(mask)]
    return [torch.tensor(v).reshape(n, 1, 8, 8) for v in (image, mask, distance)]


def param(name, *shape):
    """A parameter with the first numbers of this name."""
    return wave(*shape, seed=sum(name.encode()), factor=0.3).requires_grad_()


class Layer:
    """A convolution or a linear layer by the name of its parameters."""

    def __init__(self, name, *shape, bias=True):
        self.weight = param(name + ".weight", *shape)
        self.bias = param(name + ".bias", shape[0]) if bias else None
        self.params = [p for p in (self.weight, self.bias) if p is not None]

    def __call__(self, x):
        if self.weight.dim() == 2:
            return F.linear(x, self.weight, self.bias)
        return F.conv2d(x, self.weight, self.bias, padding=self.weight.shape[-1] // 2)


class Net:
    """The network of most methods: 3 x 3 convolution, ReLU, 1 x 1 convolution."""

    def __init__(self, scope="", inputs=1, width=4, out=1):
        self.conv1 = Layer(scope + "conv1", width, inputs, 3, 3)
        self.conv2 = Layer(scope + "conv2", out, width, 1, 1)
        self.params = self.conv1.params + self.conv2.params

    def __call__(self, x):
        return self.conv2(F.relu(self.conv1(x)))


def adam(params, lr=0.02):
    return torch.optim.Adam(params, lr=lr)


def update(optim, loss):
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item()


def train(net, loss, lr=0.02):
    """The losses of 20 steps; loss(i) of step i."""
    optim = adam(net.params, lr)
    return [update(optim, loss(i)) for i in STEPS]


def cldice():
    net, (image, t, _) = Net(), discs(4)

    def erode(x):
        a = -F.max_pool2d(-x, (3, 1), (1, 1), (1, 0))
        b = -F.max_pool2d(-x, (1, 3), (1, 1), (0, 1))
        return torch.min(a, b)

    def opened(x):
        return F.max_pool2d(erode(x), 3, 1, 1)

    def skeleton(x, erosions):
        s = F.relu(x - opened(x))
        for _ in range(erosions):
            x = erode(x)
            delta = F.relu(x - opened(x))
            s = s + F.relu(delta - s * delta)
        return s

    def loss(_):
        p = torch.sigmoid(net(image))
        sp, st = skeleton(p, 3), skeleton(t, 3)
        a = ((sp * t).sum() + 1) / (sp.sum() + 1)
        b = ((st * p).sum() + 1) / (st.sum() + 1)
        dice = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
        return 0.5 * dice + 0.5 * (1 - 2 * a * b / (a + b))

    return train(net, loss)


def boundary():
    net, (image, t, d) = Net(), discs(4)

    def loss(i):
        p = torch.sigmoid(net(image))
        both, all_ = (p * t).sum((1, 2, 3)), (p + t).sum((1, 2, 3))
        dice = (1 - (2 * both + 1) / (all_ + 1)).mean()
        return (1 - 0.02 * i) * dice + 0.02 * i * (p * d).mean()

    return train(net, loss)


def lovasz():
    net, (image, t, _) = Net(), discs(4)

    def of_image(x, t):
        errors = F.relu(1 - x * (2 * t - 1))
        errors, order = torch.sort(errors, descending=True, stable=True)
        t = t[order]
        jaccard = 1 - (t.sum() - t.cumsum(0)) / (t.sum() + (1 - t).cumsum(0))
        jaccard[1:] = jaccard[1:] - jaccard[:-1]
        return torch.dot(errors, jaccard)

    def loss(_):
        x = net(image).flatten(1)
        return sum(of_image(a, b) for a, b in zip(x, t.flatten(1))) / len(x)

    return train(net, loss)


def focal_tversky():
    net, (image, t, _) = Net(), discs(4)

    def loss(_):
        p = torch.sigmoid(net(image))

        def total(y):
            return y.sum((1, 2, 3))

        both = total(p * t) + 1
        index = both / (both + 0.3 * total(p * (1 - t)) + 0.7 * total((1 - p) * t))
        return ((1 - index) ** 0.75).mean()

    return train(net, loss)


def mean_teacher():
    net, teacher, (image, t, _) = Net("net."), Net("net."), discs(4)
    more = wave(4, 1, 8, 8, seed=3)
    optim, losses = adam(net.params), []
    for i in STEPS:
        with torch.no_grad():
            soft = torch.sigmoid(teacher(more))
        noisy = more + wave(4, 1, 8, 8, seed=i, factor=0.1)
        weight = 10 * math.exp(-5 * (1 - i / 20) ** 2)
        loss = F.binary_cross_entropy_with_logits(net(image), t)
        loss = loss + weight * F.mse_loss(torch.sigmoid(net(noisy)), soft)
        losses.append(update(optim, loss))
        with torch.no_grad():
            for own, new in zip(teacher.params, net.params):
                own.lerp_(new, 0.1)
    return losses


METHODS = [cldice, boundary, lovasz, focal_tversky, mean_teacher]

if __name__ == "__main__":
    print("-- methods_golden.lua -- losses of PyTorch, made by methods.py.")
    print("return {")
    for method in METHODS:
        row = [f"{v:.9g}" for v in method()]
        print(f"  {method.__name__} = {{")
        for at in range(0, len(row), 5):
            print("    " + ", ".join(row[at : at + 5]) + ",")
        print("  },")
    print("}")
