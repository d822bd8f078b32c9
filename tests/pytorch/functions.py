"""functions.py -- the chain of tests/bench/functions.lua in PyTorch, eager and compiled.

    python3 tests/pytorch/functions.py [--device cpu] [--threads 2] [--rounds 9]

Medians of the rounds, forward and backward, with the gradients of both operands.
"""
import argparse
import statistics
import time

import torch

args = argparse.ArgumentParser(description=__doc__)
args.add_argument("--device", default="cpu")
args.add_argument("--threads", type=int, default=2)
args.add_argument("--rounds", type=int, default=9)
o = args.parse_args()
torch.set_num_threads(o.threads)


def chain(a, b):
    return torch.clamp(torch.exp(-(a * a)) * torch.sigmoid(b) + torch.sqrt(torch.abs(a - b)), 0, 2)


def done():
    if o.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() * 1e3


shape = (16, 64, 128, 128)
a, b = (torch.randn(shape, device=o.device, requires_grad=True) for _ in range(2))
dy = torch.full(shape, 1.0 / a.numel(), device=o.device)
print("PyTorch", torch.__version__)
for name, f in (("eager", chain), ("compiled", torch.compile(chain))):
    times = []
    for i in range(o.rounds + 2):  # the first two compile and allocate
        a.grad = b.grad = None
        begin = done()
        y = f(a, b)
        middle = done()
        y.backward(dy)
        times.append((middle - begin, done() - middle))
    fwd, bwd = zip(*times[2:])
    both = statistics.median(x + z for x, z in times[2:])
    print(f"{name:8}  forward {statistics.median(fwd):8.3f} ms  "
          f"backward {statistics.median(bwd):8.3f} ms  both {both:8.3f} ms")
