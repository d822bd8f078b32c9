#!/usr/bin/env python3
"""step_time.py -- a whole training step beside PyTorch, in one run.

    tests/peer/step_time.py [--program ./segengine] [--threads 2] [--batch 4]
                            [--size 256] [--rounds 5] [--json]

The base-32 U-Net of scripts/brain_unet.lua with forward, BCE + Dice, backward
and AdamW, float32 on both sides, from the same weights on the same random
data; the losses of the first step must agree. The two take turns, so a busy
machine slows both; the other one sleeps meanwhile. Figures are medians.

PyTorch runs as fast as we know how: channels last, and a C library that keeps
freed memory (GLIBC_TUNABLES below, worth 25-55 %; this program starts itself
again with it). Its transposed convolutions need OpenBLAS: with the reference
BLAS it takes three times as long, and a comparison would be worthless.
Exit 77: no PyTorch.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TUNABLES = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8589934592:"
    "glibc.malloc.trim_threshold=8589934592"
)
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def start_again():
    """The C library reads its tunables when a program starts."""
    if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
        env = {**os.environ, "GLIBC_TUNABLES": TUNABLES}
        os.execve(sys.executable, [sys.executable, *sys.argv], env)


def blas():
    """The BLAS library that was loaded."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    found = set(re.findall(r"/\S*blas\S*\.so\S*", maps))
    return " ".join(sorted(os.path.realpath(p) for p in found)) or "own"


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    return name[1] if name else os.uname().machine


def torch_side(a, torch, peer, x, y, net):
    """-> function that does one step and returns the loss"""
    net = net.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    optim = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)

    def step():
        optim.zero_grad(set_to_none=True)
        loss = peer.bce_dice(net(x), y)
        loss.backward()
        optim.step()
        return loss.item()

    return step


def timed(step, count):
    out = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        out.append(1000 * (time.perf_counter() - began))
    return out


class Engine:
    """unet_step.lua as a companion process."""

    def __init__(self, program, folder, threads):
        env = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        self.process = subprocess.Popen(
            [program, "tests/bench/unet_step.lua", folder, str(threads)],
            cwd=ROOT, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self.first_loss = float(self.line())

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"segengine ended with {self.process.wait()}")
        return text

    def times(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return [float(v) for v in self.line().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default=str(ROOT / "segengine"))
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--size", type=int, default=256)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    try:
        import numpy as np
        import torch
        import unet_torch as peer
    except ImportError as e:
        print(f"no comparison with PyTorch: {e}", file=sys.stderr)
        return 77
    load = os.getloadavg()[0]
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    x = torch.randn(a.batch, 1, a.size, a.size)
    y = (torch.rand(a.batch, 1, a.size, a.size) > 0.7).float()
    net = peer.UNet((32, 64, 128, 256))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/image.npy", x.numpy())
        np.save(f"{folder}/mask.npy", y.numpy())
        state = {k: v.numpy() for k, v in net.state_dict().items()}
        peer.save_tensors(f"{folder}/init.safetensors", state)
        engine = Engine(os.path.abspath(a.program), folder, a.threads)
    step = torch_side(a, torch, peer, x, y, net)
    first = step()
    if not abs(engine.first_loss / first - 1) < 1e-4:
        sys.exit(f"not the same step: loss {engine.first_loss}, PyTorch {first}")
    times = {"segengine": [], "PyTorch": []}
    for _ in range(a.rounds):
        times["PyTorch"] += timed(step, 2)
        time.sleep(0.2)  # OpenMP's threads spin a while before they sleep
        times["segengine"] += engine.times(2)
    engine.close()
    ms = {k: statistics.median(v) for k, v in times.items()}
    ratio = ms["segengine"] / ms["PyTorch"]
    facts = {
        "machine": processor(),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "blas": blas(),
        "threads": a.threads,
        "batch": a.batch,
        "size": a.size,
        "ms": {k: round(v, 1) for k, v in ms.items()},
        "ratio": round(ratio, 3),
        "load_before": round(load, 2),
    }
    if a.json:
        print(json.dumps(facts))
        return 0
    print(f"training step, base-32 U-Net, {a.size}x{a.size}, batch {a.batch}, "
          f"{a.threads} threads, float32")  # fmt: skip
    print(f"{facts['machine']}, {facts['date']}; PyTorch {torch.__version__}, "
          f"channels last, tuned malloc, BLAS {facts['blas']}")  # fmt: skip
    for k, v in times.items():
        print(f"  {k:10s} {ms[k]:8.1f} ms  (best {min(v):.1f}, worst "
              f"{max(v):.1f})  {1000 * a.batch / ms[k]:5.2f} slices/s")  # fmt: skip
    print(f"  segengine / PyTorch: {ratio:.2f}")
    if load > 0.5:
        print(f"  load {load:.1f} before this began: the machine was not idle, "
              "do not quote these")  # fmt: skip
    if "openblas" not in facts["blas"] and "mkl" not in facts["blas"]:
        print("  this BLAS is slow, PyTorch could be faster: apt-get install "
              "libopenblas0-openmp")  # fmt: skip
    return 0


if __name__ == "__main__":
    start_again()
    sys.exit(main())
