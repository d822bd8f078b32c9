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


def discs(n, first=0):
    """Images of discs, masks, signed distances: (n,1,8,8) each."""
    distance = []
    for i in range(64 * n):
        k, h, w = i // 64 + first, i // 8 % 8, i % 8
        away = math.hypot(h - 3 - k % 2, w - 3 - k % 3)
        distance.append(away - (1.6 + 0.3 * (k % 4)))
    mask = [float(d < 0) for d in distance]
    image = [m + 0.5 * math.sin(1.7 * i + first) for i, m in enumerate(mask)]
    return [torch.tensor(v).reshape(n, 1, 8, 8) for v in (image, mask, distance)]


def classes(n, first=0):
    return torch.tensor([(k + first) % 4 // 2 for k in range(n)])


def shares(i, n):
    """A number from 0 to 1 for each sample in step i."""
    return torch.tensor([0.5 + 0.5 * math.sin(i + 1.7 * k) for k in range(n)])


def param(name, *shape):
    """A parameter with the first numbers of this name."""
    return wave(*shape, seed=sum(name.encode()), factor=0.3).requires_grad_()


class Layer:
    """A convolution, or a linear layer over axis 1, by the name of its parameters."""

    def __init__(self, name, *shape, bias=True, stride=1, pad=None):
        self.weight = param(name + ".weight", *shape)
        self.bias = param(name + ".bias", shape[0]) if bias else None
        self.params = [p for p in (self.weight, self.bias) if p is not None]
        self.options = {"stride": stride, "padding": shape[-1] // 2 if pad is None else pad}

    def __call__(self, x):
        if self.weight.dim() == 2:
            return F.linear(x.movedim(1, -1), self.weight, self.bias).movedim(-1, 1)
        return F.conv2d(x, self.weight, self.bias, **self.options)


class Classifier:
    """3 x 3 convolution, ReLU, mean over positions, linear layer."""

    def __init__(self, scope="", width=4, out=2):
        self.conv1 = Layer(scope + "conv1", width, 1, 3, 3)
        self.linear1 = Layer(scope + "linear1", out, width)
        self.params = self.conv1.params + self.linear1.params

    def __call__(self, x):
        return self.linear1(F.relu(self.conv1(x)).mean((2, 3)))


class Net:
    """The network of most methods: 3 x 3 convolution, ReLU, 1 x 1 convolution."""

    def __init__(self, scope=""):
        self.conv1 = Layer(scope + "conv1", 4, 1, 3, 3)
        self.conv2 = Layer(scope + "conv2", 1, 4, 1, 1)
        self.params = self.conv1.params + self.conv2.params

    def __call__(self, x):
        return self.conv2(F.relu(self.conv1(x)))


def params_of(*layers):
    return [p for layer in layers for p in layer.params]


def update(optim, loss):
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item()


def train(params, loss, lr=0.02):
    """The losses of 20 steps; loss(i) of step i."""
    optim = torch.optim.Adam(params, lr=lr)
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

    return train(net.params, loss)


def boundary():
    net, (image, t, d) = Net(), discs(4)

    def loss(i):
        p = torch.sigmoid(net(image))
        both, all_ = (p * t).sum((1, 2, 3)), (p + t).sum((1, 2, 3))
        dice = (1 - (2 * both + 1) / (all_ + 1)).mean()
        return (1 - 0.02 * i) * dice + 0.02 * i * (p * d).mean()

    return train(net.params, loss)


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

    return train(net.params, loss)


def focal_tversky():
    net, (image, t, _) = Net(), discs(4)

    def loss(_):
        p = torch.sigmoid(net(image))

        def total(y):
            return y.sum((1, 2, 3))

        both = total(p * t) + 1
        index = both / (both + 0.3 * total(p * (1 - t)) + 0.7 * total((1 - p) * t))
        return ((1 - index) ** 0.75).mean()

    return train(net.params, loss)


def mean_teacher():
    net, teacher, (image, t, _) = Net("net."), Net("net."), discs(4)
    more = wave(4, 1, 8, 8, seed=3)
    optim, losses = torch.optim.Adam(net.params, lr=0.02), []
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


def gan():
    first, pixels = Layer("G.linear1", 16, 4), Layer("G.linear2", 64, 16)
    conv, head = Layer("D.conv1", 4, 1, 3, 3), Layer("D.linear1", 1, 4)
    images, losses = discs(4)[0], []
    betas = {"betas": (0.5, 0.999)}
    of_g = torch.optim.Adam(params_of(first, pixels), lr=0.01, **betas)
    of_d = torch.optim.Adam(params_of(conv, head), lr=0.02, **betas)

    def generator(z):
        return torch.tanh(pixels(F.relu(first(z))).reshape(-1, 1, 8, 8))

    def discriminator(x):
        return head(F.leaky_relu(conv(x), 0.2).mean((2, 3)))

    def bce(x, value):
        return F.binary_cross_entropy_with_logits(x, torch.full_like(x, value))

    for i in STEPS:
        fake = generator(wave(4, 4, seed=i))
        loss = bce(discriminator(images), 1) + bce(discriminator(fake.detach()), 0)
        losses.append(update(of_d, loss))
        update(of_g, bce(discriminator(fake), 1))
    return losses


def vae():
    encode, decode = Layer("encode", 16, 64), Layer("decode", 16, 3)
    mean_of, log_var_of = Layer("mean", 3, 16), Layer("log_var", 3, 16)
    pixels, x = Layer("pixels", 64, 16), discs(4)[1].flatten(1)

    def loss(i):
        hidden = F.relu(encode(x))
        mean, log_var = mean_of(hidden), log_var_of(hidden)
        z = mean + torch.exp(log_var / 2) * wave(4, 3, seed=i)
        logits = pixels(F.relu(decode(z)))
        bce = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum()
        return (bce + kl) / len(x)

    return train(params_of(encode, decode, mean_of, log_var_of, pixels), loss)


def mixed(net, x, a, b, share):
    """Cross entropy of two classes for each sample, `share` of the second."""
    logits = net(x)
    of_a = F.cross_entropy(logits, a, reduction="none")
    of_b = F.cross_entropy(logits, b, reduction="none")
    return ((1 - share) * of_a + share * of_b).mean()


def mixup():
    net, a, b = Classifier(), discs(8)[0], discs(8, 1)[0]

    def loss(i):
        share = 1 - shares(i, 8)
        s = share.reshape(8, 1, 1, 1)
        return mixed(net, (1 - s) * a + s * b, classes(8), classes(8, 1), share)

    return train(net.params, loss, 0.05)


def cutmix():
    net, a, b = Classifier(), discs(8)[0], discs(8, 1)[0]

    def loss(i):
        x, share = a.clone(), torch.zeros(8)
        for k in range(8):
            at = (i + 3 * k) % 5
            x[k, 0, at : at + 3, 4 - at : 8 - at] = b[k, 0, at : at + 3, 4 - at : 8 - at]
            share[k] = 12 / 64
        return mixed(net, x, classes(8), classes(8, 1), share)

    return train(net.params, loss, 0.05)


def distillation():
    teacher, net = Classifier("teacher.", 8), Classifier("student.")
    images = discs(8)[0]
    wanted = F.log_softmax(teacher(images).detach() / 2, 1)

    def loss(_):
        x = net(images)
        kl = F.kl_div(F.log_softmax(x / 2, 1), wanted, log_target=True, reduction="batchmean")
        return 0.3 * F.cross_entropy(x, classes(8)) + 0.7 * 4 * kl

    return train(net.params, loss, 0.05)


def ensemble():
    nets, (image, t, _) = [Net(f"member{m}.") for m in (1, 2, 3)], discs(4)

    def loss(_):
        p = torch.stack([torch.sigmoid(net(image)) for net in nets])
        return ((p - t) ** 2).mean() - 0.5 * p.var(0, unbiased=False).mean()

    return train(params_of(*nets), loss)


def uncertainty():
    net, area = Net(), Layer("linear1", 1, 4)
    s1, s2 = param("mask_log_variance", 1), param("area_log_variance", 1)
    image, t, _ = discs(4)

    def loss(_):
        features = F.relu(net.conv1(image))
        bce = F.binary_cross_entropy_with_logits(net.conv2(features), t)
        mse = F.mse_loss(area(features.mean((2, 3))), t.sum((2, 3)) / 10)
        return (torch.exp(-s1) * bce + s1 / 2 + torch.exp(-s2) * mse / 2 + s2 / 2).sum()

    return train(params_of(net, area) + [s1, s2], loss)


def swa():
    """The loss of the running mean of the weights after each step."""
    net, mean, (image, t, _) = Net(), Net(), discs(4)
    optim, losses = torch.optim.Adam(net.params, lr=0.02), []

    def loss(net):
        return F.binary_cross_entropy_with_logits(net(image), t)

    for i in STEPS:
        update(optim, loss(net))
        with torch.no_grad():
            for own, new in zip(mean.params, net.params):
                own.lerp_(new, 1 / i)
            losses.append(loss(mean).item())
    return losses


def contrastive():
    conv, head, n = Layer("embed.conv1", 8, 1, 3, 3), Layer("embed.linear1", 4, 8), 6
    first = discs(n)[0]
    x = torch.cat([first, 1.2 * first.flip(3) + 0.1])
    partner = torch.arange(2 * n).roll(n)

    def loss(_):
        z = F.normalize(head(F.relu(conv(x)).mean((2, 3))))
        s = (z @ z.T / 0.5).masked_fill(torch.eye(2 * n, dtype=torch.bool), -math.inf)
        return F.cross_entropy(s, partner)

    return train(params_of(conv, head), loss, 0.01)


def tent():
    conv, head = Layer("stem", 4, 1, 3, 3), Layer("head", 3, 4, 1, 1)
    scale, shift = param("norm.weight", 4), param("norm.bias", 4)
    images = discs(4)[0]

    def loss(_):
        y = F.batch_norm(conv(images), None, None, scale, shift, training=True)
        p = head(F.relu(y)).softmax(1)
        return -(p * p.log()).sum(1).mean()

    return train([scale, shift], loss)


def gradient_penalty():
    conv, head = Layer("D.conv1", 4, 1, 3, 3), Layer("D.linear1", 1, 256)
    real, fake = discs(4)[0], wave(4, 1, 8, 8, seed=1, factor=0.5)
    u = real - fake
    u = u / u.flatten(1).norm(dim=1).reshape(4, 1, 1, 1)

    def critic(x):
        return head(torch.tanh(conv(x)).flatten(1))

    def loss(i):
        e = shares(i, 4).reshape(4, 1, 1, 1)
        x = e * real + (1 - e) * fake
        slope = (critic(x + 0.1 * u) - critic(x - 0.1 * u)).abs() / 0.2
        return critic(fake).mean() - critic(real).mean() + 10 * ((slope - 1) ** 2).mean()

    return train(params_of(conv, head), loss, 0.01)


def attention_pooling():
    instance, bag = Layer("instance", 8, 5), Layer("bag", 1, 8)
    u, v, w = Layer("U", 4, 8), Layer("V", 4, 8), Layer("W", 1, 4)
    x = wave(6, 5, 8, seed=0)
    x[1::2, :, 2] += 2
    label = torch.tensor([[k % 2.0] for k in range(6)])

    def loss(_):
        h = F.relu(instance(x))
        a = w(torch.tanh(v(h)) * torch.sigmoid(u(h))).softmax(2)
        return F.binary_cross_entropy_with_logits(bag((a * h).sum(2)), label)

    return train(params_of(instance, u, v, w, bag), loss, 0.05)


def fourier():
    hidden, value, image = Layer("hidden", 16, 16), Layer("value", 1, 16), discs(1)[0]
    b, line = wave(8, 2, seed=0, factor=3), (torch.arange(8) + 0.5) / 8
    v = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1)
    angle = (2 * math.pi * v @ b.T).permute(2, 0, 1)[None]
    features = torch.cat([angle.cos(), angle.sin()], 1)

    def loss(_):
        return F.mse_loss(value(F.relu(hidden(features))), image)

    return train(params_of(hidden, value), loss)


def squeeze_excite():
    conv1, conv2 = Layer("conv1", 8, 1, 3, 3), Layer("conv2", 1, 8, 1, 1)
    squeeze, excite = Layer("squeeze", 2, 8), Layer("excite", 8, 2)
    image, t, _ = discs(4)

    def loss(_):
        x = F.relu(conv1(image))
        factor = torch.sigmoid(excite(F.relu(squeeze(x.mean((2, 3))))))
        logits = conv2(x * factor[:, :, None, None])
        return F.binary_cross_entropy_with_logits(logits, t)

    return train(params_of(conv1, conv2, squeeze, excite), loss)


def positions():
    patch, qkv = Layer("patch", 6, 1, 2, 2, stride=2, pad=0), Layer("qkv", 18, 6)
    place, head = param("place", 1, 6, 16), Layer("head", 1, 6)
    images, t = discs(4)[0], (torch.arange(16) / 16).expand(4, 1, 16)

    def loss(_):
        x = patch(images).flatten(2) + place
        q, k, v = (part.transpose(1, 2) for part in qkv(x).chunk(3, 1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return F.mse_loss(head(x + y), t)

    return train(params_of(patch, qkv, head) + [place], loss)


METHODS = [
    cldice, boundary, lovasz, focal_tversky, mean_teacher, gan, vae, mixup, cutmix,
    distillation, ensemble, uncertainty, swa, contrastive, tent, gradient_penalty,
    attention_pooling, fourier, squeeze_excite, positions,
]

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
