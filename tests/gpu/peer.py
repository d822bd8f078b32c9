#!/usr/bin/env python3
"""peer.py -- compares training steps on a GPU with PyTorch, in one run.

    tests/gpu/peer.py [--program build/gpu/segengine] [--seconds 540]
                      [--rounds 3] [--device cuda] [--small] [--only NAME]
                      [--precisions bf16,tf32,f32,f16] [--wait 180]

The networks of WORKLOADS: forward, loss, backward and update on random data.
PyTorch runs with the fastest known settings: channels last, cudnn.benchmark, the
fused optimizer, data that stays on the GPU, autocast for bf16 and f16 (with its
loss scaler), and each variant of WAYS: eager, the whole step captured in a CUDA
graph, compiled, compiled with CUDA graphs. Each variant runs in a process of its
own, one at a time, and takes turns with segengine, which is timed by `segengine
SCRIPT bench --json`. Both queue steps of one batch on the GPU without waiting for
each step: a time is the mean of several steps, figures are medians over all rounds,
and the ratio is to the fastest variant. A variant that fails, or is not ready within
--wait seconds, is listed below the table; when one was not ready the ratio is "at
most", because that variant may be the fastest. Memory is the peak of a step, in MB:
the allocator's reserve of PyTorch, the decrease of free device memory of segengine.
No measurement starts after --seconds: rows are in the order of --precisions, and
missing rows, at the end, are listed. Exit 77: no PyTorch or no GPU. --device cpu
--small is for trying this file out.
"""

import argparse
import contextlib
import json
import pathlib
import select
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/pytorch"))
STEPS = 8  # timed steps of one variant in a round
WARM = 4  # untimed steps before them
WAYS = ("eager", "captured", "compiled", "compiled, graphs")


# Workloads ---------------------------------------------------------------------
# Each: the recipe, its options (and small ones), batches, and the PyTorch reference with the
# same options: network, inputs, loss of (result, target), optimizer.


def brain_unet(torch, o, batch, device):
    import unet_torch as peer

    shape = (batch, 1, o["size"], o["size"])
    net = peer.UNet(tuple(o["base"] * 2**i for i in range(4)))
    x = torch.randn(shape, device=device)
    y = (torch.rand(shape, device=device) > 0.7).float()
    return net, [x], lambda out: peer.bce_dice(out, y), adamw(torch, 1e-4)


def openkbp_unet3d(torch, o, batch, device):
    from openkbp import Generator

    a = argparse.Namespace(**o, dropout=0.2, better=False, squeeze=0)
    size = (o["size"],) * 3
    x = torch.rand((batch, 11, *size), device=device)
    y = 70 * torch.rand((batch, 1, *size), device=device)

    def adam(p, **more):
        return torch.optim.Adam(p, 2e-4, (0.5, 0.999), 1e-7, **more)

    return Generator(11, a), [x], lambda out: (out - y).abs().mean(), adam


def sequence_cnn_lstm(torch, o, batch, device):
    import sequence

    a = argparse.Namespace(
        **{k: list_of(v) if isinstance(v, str) else v for k, v in o.items()},
        layers=2, lstm_dropout=0.3, mlp_dropout=0.4)  # fmt: skip
    a.dropout = 0.2
    net = sequence.Network(o["channels"], o["classes"], a)
    x = torch.rand((batch, o["channels"], o["longest"]), device=device)
    lengths = torch.full((batch,), o["longest"], device=device)
    y = torch.randint(o["classes"], (batch,), device=device)
    loss = torch.nn.functional.cross_entropy
    return net, [x, lengths], lambda out: loss(out, y), adamw(torch, 0.0)


def adamw(torch, decay):
    return lambda p, **more: torch.optim.AdamW(p, lr=1e-4, weight_decay=decay, **more)


def list_of(text):
    return [int(v) for v in text.split(",")]


WORKLOADS = {
    "brain_unet": (
        brain_unet, (16, 64), {},
        {"size": 256, "base": 32}, {"size": 32, "base": 4}),
    "openkbp_unet3d": (
        openkbp_unet3d, (2,), {"better": "false"},
        {"size": 128, "filters": 64, "levels": 6}, {"size": 16, "filters": 2, "levels": 4}),
    "sequence_cnn_lstm": (
        sequence_cnn_lstm, (64,), {"learn": "supervised"},
        {"channels": 1024, "longest": 500, "classes": 5, "features": "64,128,256", "hidden": 256,
         "project": 512, "embed": 512, "mlp": "256,128"},
        {"channels": 8, "longest": 64, "classes": 3, "features": "4,6", "hidden": 4,
         "project": 8, "embed": 8, "mlp": "6"}),
}  # fmt: skip


def options_of(name, small):
    """-> the options of reference and recipe, and further options of the recipe"""
    _, _, more, full, tiny = WORKLOADS[name]
    return (tiny if small else full), more


# PyTorch: one process for each variant ---------------------------------------------


class Torch:
    """One variant of a training step in PyTorch."""

    def __init__(self, torch, name, small, batch, precision, way, device):
        self.torch, self.cuda = torch, device == "cuda"
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
        torch.backends.cudnn.allow_tf32 = precision != "f32"
        build = WORKLOADS[name][0]
        net, self.x, self.loss, optim = build(
            torch, options_of(name, small)[0], batch, torch.device(device))
        layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(self.x[0].dim())
        net = net.to(device)
        if layout:
            net = net.to(memory_format=layout)
            self.x[0] = self.x[0].to(memory_format=layout)
        self.parameters = sum(p.numel() for p in net.parameters())
        more = {"fused": True} if self.cuda else {}
        if way == "captured":
            more["capturable"] = True
        self.optim = optim(net.parameters(), **more)
        self.half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision)
        self.scaler = torch.cuda.amp.GradScaler() if precision == "f16" and self.cuda else None
        self.run, self.step = net, self.once
        if way.startswith("compiled"):
            mode = {"mode": "reduce-overhead"} if way.endswith("graphs") else {}
            self.run = torch.compile(net, **mode)
        if way == "captured":
            self.capture()

    def once(self):
        self.optim.zero_grad(set_to_none=True)
        self.rest()

    def rest(self):
        half = contextlib.nullcontext()
        if self.half:
            half = self.torch.autocast("cuda" if self.cuda else "cpu", dtype=self.half)
        with half:
            out = self.run(*self.x)
        loss = self.loss(out.float())
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optim)
            self.scaler.update()
        else:
            loss.backward()
            self.optim.step()

    def capture(self):
        """the whole step as one graph, as PyTorch's notes on CUDA graphs do it"""
        torch = self.torch
        if not self.cuda:
            raise RuntimeError("CUDA graphs want a GPU")
        if self.scaler:
            raise RuntimeError("the scaler asks the host, which a graph cannot")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                self.once()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.empty_cache()  # the graph has its own memory pool
        graph = torch.cuda.CUDAGraph()
        self.optim.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.rest()
        self.step = graph.replay

    def times(self, count):
        """milliseconds of a step, as the mean of `count`"""
        if self.cuda:
            a, b = (self.torch.cuda.Event(enable_timing=True) for _ in "ab")
            a.record()
            for _ in range(count):
                self.step()
            b.record()
            b.synchronize()
            return a.elapsed_time(b) / count
        began = time.perf_counter()
        for _ in range(count):
            self.step()
        return 1000 * (time.perf_counter() - began) / count

    def bytes(self):
        return self.torch.cuda.max_memory_reserved() if self.cuda else 0


def serve(a):
    """Runs a variant: prints "ready", then answers each line with the time of STEPS."""
    import torch

    name, batch, precision, way = json.loads(a.serve)
    try:
        if way.startswith("compiled") and not hasattr(torch, "compile"):
            raise RuntimeError("this PyTorch has no torch.compile")
        one = Torch(torch, name, a.small, batch, precision, way, a.device)
        one.times(WARM)
    except Exception as e:  # out of memory, no compiler: noted below the table
        print(json.dumps({"why": (str(e) or repr(e)).splitlines()[0][:100]}), flush=True)
        return 0
    print(json.dumps({"parameters": one.parameters}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"ms": one.times(STEPS), "bytes": one.bytes()}), flush=True)
    return 0


class Side:
    """The process of a variant, seen by the caller. `why`: the reason it failed."""

    def __init__(self, a, seconds, *what):
        command = [sys.executable, __file__, "--serve", json.dumps(what), "--device", a.device]
        self.why, self.late, self.ms, self.most = "", False, [], 0
        self.child = subprocess.Popen(
            command + ["--small"] * a.small, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=0)  # fmt: skip
        self.parameters = self.answer(seconds, "ready").get("parameters", 0)

    def answer(self, seconds, what):
        ready, _, _ = select.select([self.child.stdout], [], [], max(seconds, 0))
        line = self.child.stdout.readline() if ready else b""
        out = json.loads(line) if line else {}
        if line:
            self.why = out.get("why", "")
        else:
            self.why = "it has ended" if ready else f"not {what} after {seconds:.0f} s"
            self.late = not ready
        if self.why:
            self.end()
        return out

    def round(self, seconds):
        try:
            self.child.stdin.write(b"\n")
        except OSError:  # the process has ended: answer() reports it
            pass
        out = self.answer(seconds, "done")
        self.ms += [out["ms"]] if "ms" in out else []
        self.most = max(self.most, out.get("bytes", 0))

    def end(self):
        self.child.kill()
        self.child.wait()


# segengine ------------------------------------------------------------------------


class Engine:
    """Times from `segengine SCRIPT bench`."""

    def __init__(self, a, seconds, name, batch, precision):
        own, more = options_of(name, a.small)
        self.why, self.ms, self.most, self.recompute = "", [], 0, "off"
        self.command = [a.program, f"scripts/{name}.lua"]
        self.options = ["--device", a.device, "--batch", str(batch), "--precision", precision,
                        "--json"]  # fmt: skip
        for key, value in {**own, **more}.items():
            self.options += [f"--{key}", str(value)]
        self.parameters = self.say("plan", seconds).get("train", {}).get("trained", 0)

    def say(self, what, seconds):
        command = [self.command[0], self.command[1], what, *self.options]
        try:
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                                 timeout=max(seconds, 1))  # fmt: skip
        except subprocess.TimeoutExpired:
            self.why = f"{what}: not done after {seconds:.0f} s"
            return {}
        if run.returncode:
            lines = run.stderr.strip().splitlines()
            self.why = lines[-1] if lines else f"exit code {run.returncode}"
            return {}
        return json.loads(run.stdout)

    def round(self, seconds):
        out = self.say("bench", seconds)
        if out:
            self.ms.append(out["step_ms"])
            self.most = max(self.most, out["measured_bytes"])
            self.recompute = out["recompute"]


# The table -----------------------------------------------------------------------


def compare(a, name, batch, precision, left):
    """Measures a row; left(): seconds until the end. -> list of what was not run"""

    def most():
        return min(a.wait, left())

    ours = Engine(a, most(), name, batch, precision)
    sides = {}
    for way in WAYS:
        if left() <= 0 or ours.why:
            break
        side = sides[way] = Side(a, most(), name, batch, precision, way)
        theirs = side.parameters
        if theirs and theirs != ours.parameters:
            side.why = f"its network has {theirs} parameters, ours {ours.parameters}"
        # one variant at a time, because each holds GPU memory
        for _ in range(a.rounds):
            for one in (side, ours):
                if not side.why and not one.why and left() > 0:
                    one.round(most())
        side.end()
    if not ours.why and not ours.ms and left() > 0:  # no variant of PyTorch runs
        ours.round(most())
    late = len(sides) < len(WAYS) or any(s.late for s in sides.values())
    sides["segengine"] = ours
    ms = {n: statistics.median(s.ms) for n, s in sides.items() if s.ms}
    theirs = [n for n in ms if n != "segengine"]
    best = min(theirs, key=ms.get, default=None)
    own = ms.get("segengine")
    cells = [f"{ms[n]:.2f}" if n in ms else "-" for n in (*WAYS, "segengine")]
    cells += [
        ("<= " if late else "") + f"{ms[best] / own:.2f}" if best and own else "-",
        f"{1000 * batch / own:.0f}" if own else "-",
        f"{ours.most / 1e6:.0f}" if ours.most else "-",
        f"{sides[best].most / 1e6:.0f}" if best and sides[best].most else "-",
    ]
    print("|", name, "|", batch, "|", precision, "|", " | ".join(cells), "|", flush=True)
    what = f"{name}, batch {batch}, {precision}"
    missing = [f"{what}, {n}: not run: {s.why}" for n, s in sides.items() if s.why]
    if ours.recompute != "off":
        missing.append(f"{what}, segengine: recomputes: {ours.recompute}")
    unseen = [w for w in WAYS if w not in sides and not ours.why]
    return missing + [f"{what}, {w}: not run: no time left" for w in unseen]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/gpu/segengine")
    ap.add_argument("--seconds", type=float, default=540)
    ap.add_argument("--wait", type=float, default=180)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--precisions", default="bf16,tf32,f32,f16")
    ap.add_argument("--only", default="")
    ap.add_argument("--small", action="store_true")
    ap.add_argument("--serve", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.serve:
        return serve(a)
    a.program = str((ROOT / a.program).resolve())
    try:
        import torch
    except ImportError as e:
        print(f"not run: no PyTorch: {e}")
        return 77
    if a.device == "cuda" and not torch.cuda.is_available():
        print("not run: PyTorch sees no GPU")
        return 77
    end, notes = time.monotonic() + a.seconds, []
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; milliseconds "
          "a step, MB at most")  # fmt: skip
    print()
    head = ["recipe", "batch", "precision", *(f"PyTorch {w}" for w in WAYS), "segengine",
            "times as fast as the best", "samples/s", "MB", "PyTorch's MB"]  # fmt: skip
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head))
    for precision in a.precisions.split(","):
        for name, (_, batches, *_) in WORKLOADS.items():
            for batch in (2,) if a.small else batches:
                if a.only and a.only != name:
                    continue
                if time.monotonic() > end:
                    notes.append(f"{name}, batch {batch}, {precision}: not run: no time left")
                    continue
                notes += compare(a, name, batch, precision, lambda: end - time.monotonic())
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
