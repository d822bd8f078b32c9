#!/usr/bin/env python3
"""peer.py -- training steps on a GPU beside PyTorch's, in one run.

    tests/gpu/peer.py [--program build/gpu/segengine] [--seconds 540]
                      [--rounds 3] [--device cuda] [--batch 16,64] [--size 256]

The base-32 U-Net of scripts/brain_unet.lua: forward, BCE + Dice, backward and
AdamW on random data. PyTorch runs as fast as we know how: channels last,
cudnn.benchmark, the fused optimizer, data that stays on the GPU, autocast for
bf16 and f16 (with its loss scaler), eager and compiled, and is timed by CUDA
events. segengine's time is what `segengine SCRIPT bench --json` says, uploads
included. The two take turns; figures are medians over all rounds, and the ratio
is to the better of PyTorch's two. What is left when --seconds are over is
reported as not run. Exit 77: no PyTorch or no GPU. --device cpu is for trying
this file out.
"""

import argparse
import contextlib
import copy
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/peer"))
STEPS = 8  # of a variant in a round
PRECISIONS = ("f32", "tf32", "bf16", "f16")

# recipe -> builder of its twin; another recipe is compared when it has a line
# here
TWINS = {"brain_unet": lambda peer: peer.UNet((32, 64, 128, 256))}


class Torch:
    """One way of PyTorch's to do a step."""

    def __init__(self, torch, peer, net, x, y, precision, compiled):
        self.torch, self.peer = torch, peer
        self.cuda = x.device.type == "cuda"
        torch.backends.cudnn.benchmark = True
        self.tf32 = precision != "f32"
        self.net = copy.deepcopy(net).to(
            device=x.device, memory_format=torch.channels_last
        )
        self.x = x.to(memory_format=torch.channels_last)
        self.y = y
        fused = {"fused": True} if self.cuda else {}
        self.optim = torch.optim.AdamW(
            self.net.parameters(), lr=1e-4, weight_decay=1e-4, **fused
        )
        self.half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision)
        self.scaler = None
        if precision == "f16" and self.cuda:
            self.scaler = torch.cuda.amp.GradScaler()
        self.run = self.net
        if compiled:
            self.run = torch.compile(self.net, mode="reduce-overhead")

    def autocast(self):
        if not self.half:
            return contextlib.nullcontext()
        return self.torch.autocast(self.x.device.type, dtype=self.half)

    def step(self):
        self.optim.zero_grad(set_to_none=True)
        with self.autocast():
            logits = self.run(self.x)
        loss = self.peer.bce_dice(logits.float(), self.y)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optim)
            self.scaler.update()
        else:
            loss.backward()
            self.optim.step()

    def times(self, count):
        """milliseconds of each of `count` steps"""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32
        out = []
        for _ in range(count):
            if self.cuda:
                a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
                a.record()
                self.step()
                b.record()
                b.synchronize()
                out.append(a.elapsed_time(b))
            else:
                began = time.perf_counter()
                self.step()
                out.append(1000 * (time.perf_counter() - began))
        return out


def engine_ms(a, recipe, batch, precision):
    """-> milliseconds, or why not"""
    run = subprocess.run(
        [a.program, f"scripts/{recipe}.lua", "bench", "--device", a.device,
         "--batch", str(batch), "--size", str(a.size),
         "--precision", precision, "--json"],
        cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    if run.returncode == 0:
        return json.loads(run.stdout)["step_ms"]
    lines = run.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {run.returncode}"


def variants(a, torch, peer, net, batch, precision):
    """-> name -> Torch, or why not; each has done its first steps"""
    device = torch.device(a.device)
    torch.manual_seed(0)
    x = torch.randn(batch, 1, a.size, a.size, device=device)
    y = (torch.rand(batch, 1, a.size, a.size, device=device) > 0.7).float()
    out = {}
    for name in ("eager", "compile"):
        if name == "compile" and not hasattr(torch, "compile"):
            out[name] = "no torch.compile"
            continue
        try:
            v = Torch(torch, peer, net, x, y, precision, name == "compile")
            v.times(4)
            out[name] = v
        except Exception as e:  # out of memory, no compiler: said, not fatal
            out[name] = str(e).splitlines()[0][:80] if str(e) else repr(e)
    return out


def compare(a, torch, peer, recipe, net, batch, precision):
    """A row of the table."""
    sides = variants(a, torch, peer, net, batch, precision)
    times = {name: [] for name in (*sides, "segengine")}
    why = {n: v for n, v in sides.items() if isinstance(v, str)}
    for _ in range(a.rounds):
        for name, v in sides.items():
            if name not in why:
                times[name] += v.times(STEPS)
        if "segengine" not in why:
            ms = engine_ms(a, recipe, batch, precision)
            if isinstance(ms, str):
                why["segengine"] = ms
            else:
                times["segengine"].append(ms)
    ms = {n: statistics.median(t) for n, t in times.items() if t}
    cells = [f"{ms[n]:.2f}" if n in ms else "-" for n in times]
    best = min((ms[n] for n in sides if n in ms), default=None)
    ratio = "-"
    if best and "segengine" in ms:
        ratio = f"{ms['segengine'] / best:.2f}"
    rate = f"{1000 * batch / ms['segengine']:.0f}" if "segengine" in ms else "-"
    print("|", recipe, "|", batch, "|", precision, "|", " | ".join(cells), "|",
          ratio, "|", rate, "|", flush=True)  # fmt: skip
    return [f"{recipe}, batch {batch}, {precision}, {n}: not run: {w}"
            for n, w in why.items()]  # fmt: skip


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/gpu/segengine")
    ap.add_argument("--seconds", type=float, default=540)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--batch", default="16,64")
    ap.add_argument("--size", type=int, default=256)
    a = ap.parse_args()
    a.program = str((ROOT / a.program).resolve())
    try:
        import torch
        import unet_torch as peer
    except ImportError as e:
        print(f"not run: no PyTorch: {e}")
        return 77
    if a.device == "cuda" and not torch.cuda.is_available():
        print("not run: PyTorch sees no GPU")
        return 77
    began, notes = time.monotonic(), []
    print(f"PyTorch {torch.__version__}, channels last, fused AdamW, "
          f"{a.size}x{a.size}; milliseconds a step")  # fmt: skip
    print()
    print("| recipe | batch | precision | PyTorch eager | compiled | segengine "
          "| segengine / best PyTorch | samples/s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for recipe in sorted(p.stem for p in (ROOT / "scripts").glob("*.lua")):
        if recipe not in TWINS:
            notes.append(f"{recipe}: not run: it has no twin in peer.py")
            continue
        net = TWINS[recipe](peer)
        for batch in (int(b) for b in a.batch.split(",")):
            for precision in PRECISIONS:
                if time.monotonic() - began > a.seconds:
                    notes.append(f"{recipe}, batch {batch}, {precision}: "
                                 "not run: no time left")  # fmt: skip
                    continue
                notes += compare(a, torch, peer, recipe, net, batch, precision)
                if a.device == "cuda":
                    torch.cuda.empty_cache()
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
