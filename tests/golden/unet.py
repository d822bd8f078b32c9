#!/usr/bin/env python3
"""unet.py -- whole networks of PyTorch in float64, the reference of unet.lua.

    unet.py make KIND FOLDER            weights, inputs and PyTorch's results
    unet.py check KIND FOLDER DEVICE    compare the results of unet.lua
    unet.py small                       the committed files of tests/lua/golden.lua

KIND is `brain` (no bias, AdamW with decoupled decay) or `nfbs` (bias before
batch norm, Adam with L2 decay, clipping). Initial weights and inputs are
float32 numbers, which are exact in both programs. Bounds and their reasons are
in BOUNDS below; the check prints the differences.
"""

import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))
import unet_torch as peer  # noqa: E402

STEPS = 10
KINDS = {
    # channels, size, options of network and loss, optimisers by name:
    # (class, arguments, clip_norm)
    "brain": dict(
        features=(32, 64, 128, 256),
        size=64,
        mixed=False,
        bias=False,
        loss=dict(bce=1.0, dice=1.0),
        optim={
            "adamw": (torch.optim.AdamW, dict(lr=1e-3, weight_decay=1e-4), 0),
            "sgd": (torch.optim.SGD, dict(lr=0.01, momentum=0.9), 0),
        },
    ),
    "nfbs": dict(
        features=(8, 16, 32),
        size=32,
        mixed=True,
        bias=True,
        loss=dict(bce=0.5, dice=0.5),
        optim={
            "adam": (torch.optim.Adam, dict(lr=1e-4, weight_decay=1e-4), 1.0),
            "sgd": (torch.optim.SGD, dict(lr=0.01, momentum=0.9), 0),
        },
    ),
    "small": dict(
        features=(2, 4),
        size=16,
        mixed=True,
        bias=False,
        loss=dict(bce=1.0, dice=1.0),
        optim={
            "adamw": (torch.optim.AdamW, dict(lr=1e-3, weight_decay=1e-4), 0),
            "sgd": (torch.optim.SGD, dict(lr=0.01, momentum=0.9), 0),
        },
    ),
}

# Bounds for each device. A quantity without a bound for a device is not checked
# there: Adam turns the rounding of a gradient near zero into a full step, so in
# f32 only the loss is compared after Adam.
#   loss1     relative, of the first step
#   grad_all  NMSE of all gradients together; grad_each: of each tensor
#   stats     running statistics after a step, relative to the largest; on ref
#             limited by the rounding of the momentum 0.1 to float32
#   moments   Adam's first moment after a step (clipping, L2 decay), NMSE
#   norm      norm of all gradients before clipping, relative
#   eval      largest difference of the logits of the evaluation forward,
#             relative to the largest, before training
#   sgd, sgd_loss, adam, adam_loss   after STEPS: max |dw|, relative loss
# `cpu` rounds 3x3 convolutions more coarsely than `direct` (docs/numerics.md,
# "Winograd"), so more often a relu or maximum takes the other branch, which
# changes all gradients by the contribution of that value.
BOUNDS = {
    "ref": dict(
        loss1=1e-10, grad_all=1e-12, grad_each=1e-12, stats=1e-7,
        moments=1e-12, norm=1e-10, eval=1e-6, sgd=1e-6, sgd_loss=1e-10,
        adam=1e-6, adam_loss=1e-10,
    ),
    "direct": dict(
        loss1=1e-6, grad_all=1e-6, grad_each=1e-3, stats=1e-5,
        moments=1e-6, norm=1e-5, eval=1e-4, sgd=1e-4, sgd_loss=1e-5,
        adam_loss=1e-3,
    ),
    "cpu": dict(
        loss1=1e-6, grad_all=1e-5, grad_each=1e-3, stats=1e-5,
        moments=1e-5, norm=1e-4, eval=1e-4, sgd=1e-4, sgd_loss=1e-4,
        adam_loss=1e-3,
    ),
}  # fmt: skip


def inputs(size, batch):
    """A noisy image and the mask of its bright blobs, float32."""
    rng = np.random.RandomState(7)
    field = rng.normal(size=(batch, 1, size, size))
    for axis in (2, 3):  # smooth on a torus
        field = sum(np.roll(field, k, axis) for k in range(-3, 4))
    field /= field.std()
    image = field + 0.5 * rng.normal(size=field.shape)
    return image.astype("<f4"), (field > 0.8).astype("<f4")


def new_net(o):
    """PyTorch's initial weights; if `mixed`, norms with random scale and shift. One
    forward pass in float32 makes running statistics that differ from 0 and 1."""
    torch.manual_seed(1)
    net = peer.UNet(o["features"], o["bias"])
    for layer in net.modules():
        if o["mixed"] and isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias, 0.0, 0.2)
    with torch.no_grad():
        net(torch.randn(4, 1, o["size"], o["size"]))
    return net.double()


def tensors(net, what):
    """A tensor of each parameter, and the running statistics, by segengine's names."""
    out = {}
    for name, p in net.named_parameters():
        out[peer.engine_name(name)] = what(p).detach().numpy().copy()
    for name, b in net.named_buffers():
        if not name.endswith("num_batches_tracked"):
            out[peer.engine_name(name)] = b.numpy().copy()
    return out


def train(o, image, mask, name):
    """Returns a dict: losses, gradient norm of the first step, and named states of
    the first and the last step."""
    cls, options, clip = o["optim"][name]
    net, losses, out = new_net(o), [], {}
    optim = cls(net.parameters(), **options)
    for step in range(1, STEPS + 1):
        optim.zero_grad()
        loss = peer.bce_dice(net(image), mask, **o["loss"])
        loss.backward()
        losses.append(loss.item())
        if step == 1:
            out["grad"] = tensors(net, lambda p: p.grad)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), clip or 1e30)
        optim.step()
        if step == 1:
            out["norm"] = norm.item()
            if "exp_avg" in next(iter(optim.state.values())):
                moment = optim.state
                out["moment"] = tensors(net, lambda p: moment[p]["exp_avg"])
    out["last"] = tensors(net, lambda p: p)
    out["loss"] = losses
    return out


def evaluate(net, image):
    net.eval()
    with torch.no_grad():
        return net(image).numpy()


def results(o, image, mask):
    """Trains with each optimiser; the evaluation forward pass is before training."""
    x, t = torch.from_numpy(image).double(), torch.from_numpy(mask).double()
    runs = {name: train(o, x, t, name) for name in o["optim"]}
    return runs, evaluate(new_net(o), x)


def make(kind, folder):
    o, folder = KINDS[kind], pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    image, mask = inputs(o["size"], 4)
    np.save(folder / "image.npy", image)
    np.save(folder / "mask.npy", mask)
    # PyTorch's own names and its counters: unet.lua renames
    state = {k: v.numpy() for k, v in new_net(o).state_dict().items()}
    peer.save_tensors(folder / "init.safetensors", state)
    runs, logits = results(o, image, mask)
    np.save(folder / "logits.npy", logits)
    for name, run in runs.items():
        flat = {f"{part}/{k}": v for part in ("grad", "moment", "last")
                for k, v in run.get(part, {}).items()}  # fmt: skip
        flat["loss"] = np.array(run["loss"])
        flat["norm"] = np.array([run["norm"]])
        np.savez(folder / f"want_{name}.npz", **flat)


def small():
    """Writes the committed files: float32 copies are exact enough for the bounds."""
    o = KINDS["small"]
    image, mask = inputs(o["size"], 2)
    runs, logits = results(o, image, mask)
    np.save(HERE / "small_image.npy", image)
    np.save(HERE / "small_mask.npy", mask)
    np.save(HERE / "small_logits.npy", logits.astype("<f4"))
    flat, text = {}, {}
    groups = [("init", tensors(new_net(o), lambda p: p)),
              ("grad", runs["sgd"]["grad"])]  # fmt: skip
    groups += [(name, run["last"]) for name, run in runs.items()]
    for group, values in groups:
        for k, v in values.items():
            flat[f"{group}.{k}"] = v.astype("<f4")
    for name, run in runs.items():
        text[f"loss_{name}"] = " ".join(f"{v:.17g}" for v in run["loss"])
    peer.save_tensors(HERE / "small.safetensors", flat, text)


class Judge:
    """Compares values with bounds, prints the differences, counts failures."""

    def __init__(self, label, bounds):
        self.label, self.bounds = label, bounds
        self.passed = self.failed = 0

    def hold(self, what, bound, value, where=""):
        if bound not in self.bounds:
            return
        limit = self.bounds[bound]
        ok = bool(value <= limit)  # not for NaN
        self.passed, self.failed = self.passed + ok, self.failed + (not ok)
        print(f"  {'ok' if ok else 'FAILED':6s} {self.label} {what}: "
              f"{value:.3g}, at most {limit:g} {where}")  # fmt: skip


def nmse(got, want):
    return float(((got - want) ** 2).sum() / (want**2).sum())


def relative(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())


def join(state, names):
    return np.concatenate([state[k].astype("f8").ravel() for k in names])


def check_gradients(judge, got, want):
    """`got` may be scaled; running statistics have no gradient and are skipped. The
    gradient of a bias before batch norm is zero up to rounding: its error is
    compared with the norm of all gradients instead of its own."""
    names = [k for k in want if "running" not in k]
    judge.hold("gradients", "grad_all", nmse(join(got, names),
                                             join(want, names)))  # fmt: skip
    whole = (join(want, names) ** 2).sum()
    values = []
    for k in names:
        e, n = ((got[k] - want[k]) ** 2).sum(), (want[k] ** 2).sum()
        values.append(float(e / n if n > 1e-20 * whole else e / whole))
    worst = int(np.argmax(values))  # of NaN and numbers: the NaN
    judge.hold("worst gradient", "grad_each", values[worst], names[worst])


def check(kind, folder, device):
    o, folder = KINDS[kind], pathlib.Path(folder)
    judge = Judge(f"{kind} {device}", BOUNDS[device])
    logits = np.load(folder / f"logits_{device}.npy")
    judge.hold("evaluation forward", "eval",
               relative(logits, np.load(folder / "logits.npy")))  # fmt: skip
    for name, (cls, _, _) in o["optim"].items():
        if not (folder / f"{device}_{name}_1.safetensors").exists():
            continue
        flat = np.load(folder / f"want_{name}.npz")
        want = {part: {k.split("/")[1]: flat[k] for k in flat
                       if k.startswith(part + "/")}
                for part in ("grad", "moment", "last")}  # fmt: skip
        numbers = np.loadtxt(folder / f"{device}_{name}.txt")
        loss, norm = numbers[:, 0], numbers[0, 1]
        first = peer.load_tensors(folder / f"{device}_{name}_1.safetensors")
        moment = {k[8:]: v for k, v in first.items()
                  if k.startswith("optim.m.")}  # fmt: skip
        judge.label = f"{kind} {device} {name}"
        judge.hold("first loss", "loss1", relative(loss[0], flat["loss"][0]))
        judge.hold("norm", "norm", relative(norm, flat["norm"][0]))
        stats = [k for k in want["grad"] if "running" in k]
        judge.hold("running statistics", "stats",
                   np.max([relative(first[k], want["grad"][k]) for k in stats]))
        adam = cls is not torch.optim.SGD
        if adam:
            names = list(moment)
            judge.hold("first moment", "moments",
                       nmse(join(moment, names), join(want["moment"], names)))
        if cls is not torch.optim.Adam:
            # the first moment is the gradient, or with AdamW a tenth of it
            gradient = {k: v / (1 - 0.9 * adam) for k, v in moment.items()}
            check_gradients(judge, gradient, want["grad"])
        last = peer.load_tensors(folder / f"{device}_{name}_{STEPS}.safetensors")
        names = [k for k in want["last"] if "running" not in k]
        off = join(last, names) - join(want["last"], names)
        key = "adam" if adam else "sgd"
        judge.hold(f"weights after {STEPS} steps", key, float(abs(off).max()))
        judge.hold(f"losses of {STEPS} steps", key + "_loss",
                   float((abs(loss - flat["loss"]) / flat["loss"]).max()))
    print(f"{judge.passed} passed, {judge.failed} failed, 0 skipped")
    return int(judge.failed > 0 or judge.passed == 0)


def main():
    torch.set_num_threads(2)
    command, rest = sys.argv[1], sys.argv[2:]
    return {"make": make, "check": check, "small": small}[command](*rest)


if __name__ == "__main__":
    sys.exit(main())
