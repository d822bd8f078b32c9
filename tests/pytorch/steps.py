#!/usr/bin/env python3
"""steps.py -- training steps and inference in PyTorch, on demand.

    steps.py NETWORK FOLDER THREADS

The PyTorch side of tests/bench/steps.lua, which wrote FOLDER, with the same
answers on stdout; "train_bf16" and "infer_bf16" are the same under autocast to bfloat16.
The loss of the first step comes after a line of JSON about this PyTorch.
"""

import json
import os
import pathlib
import re
import sys
import time

import numpy as np
import torch
import unet_torch as peer
from networks import NETWORKS


def blas():
    """The loaded BLAS library, or the one that PyTorch contains."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    found = {os.path.basename(os.path.realpath(p)) for p in re.findall(r"/\S*blas\S*\.so\S*", maps)}
    return " ".join(sorted(found)) or ("MKL" if torch.backends.mkl.is_available() else "own")


def main():
    name, folder, threads = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)

    def read(*names):
        weights = peer.load_tensors(folder / "init.safetensors")
        return weights, {n: np.load(folder / f"{n}.npy") for n in names}

    one = NETWORKS[name](read)

    def train(bf16=False):
        one.net.train()
        one.optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            y = one.run()
        loss = one.loss(y.float())
        loss.backward()
        one.optim.step()
        return loss.item()

    def infer(bf16=False):
        one.net.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return one.run().float().numpy()

    run = {"train": train, "infer": infer, "train_bf16": lambda: train(True),
           "infer_bf16": lambda: infer(True)}  # fmt: skip
    first = train()
    print(json.dumps({"torch": torch.__version__, "blas": blas()}))
    print(f"{first:.9g}", flush=True)
    for line in sys.stdin:
        what, count = line.split()
        out = []
        for _ in range(int(count)):
            began = time.perf_counter()
            run[what]()
            out.append(f"{1000 * (time.perf_counter() - began):.3f}")
        print(*out, flush=True)


if __name__ == "__main__":
    main()
