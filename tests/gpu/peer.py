#!/usr/bin/env python3
"""peer.py -- compares training steps and inferences on a GPU with PyTorch, in one run.

    tests/gpu/peer.py [--program build/gpu/segengine] [--only NAME,...] [--seconds 280]
                      [--precisions bf16,tf32,f32,f16] [--modes train,infer]
                      [--batches N,...] [--rounds 3] [--wait 150] [--side 16]
                      [--device cuda] [--small]

The networks of WORKLOADS, on random data that stays on the GPU. train: forward, loss,
backward, clipping where the recipe clips, and update. infer: the forward pass of
evaluation. Precisions other than bf16 take the first batch of a network, and are
inferred only when --modes is given.

PyTorch runs with the fastest known settings: channels last, cudnn.benchmark, the fused
optimizer, autocast for bf16 and f16 (with its loss scaler; an inference has 16-bit
weights instead), and each variant of WAYS: eager, the whole step captured in a CUDA
graph, compiled together with its loss, compiled with CUDA graphs. An inference is compiled
with `freezing`, which folds batch norms. Each variant is a process. Those of several rows,
at most --side, are prepared side by side: they import, compile and warm up while nothing is
timed; measurements of their own choices (of cuDNN, of Triton) take turns by a lock. Then
they are timed one after the other, in rounds with `segengine SCRIPT bench --json`, while
the rest of the GPU is idle.

Both programs queue steps of one batch without waiting for each: a time is the mean of
several steps, figures are medians over all rounds, and the ratio is to the fastest
variant. A variant that fails, or is not ready after --wait seconds, is listed below the
table; when one was not ready the ratio is "at most", because it may be the fastest. Memory
is the peak of a step, in MB: the allocator's reserve of PyTorch after its choices were
made, the decrease of free device memory of segengine.
Nothing goes on after --seconds: each row is printed when it is done, and rows without time
are listed. Exit 77: no PyTorch or no GPU. --device cpu --small is for trying this file out.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/pytorch"))
STEPS = 8  # least number of timed steps of a variant in a round
SPAN_MS = 50  # ... and least time: steps of a small network are many
WARM = 3  # untimed steps
WAYS = ("eager", "captured", "compiled", "compiled, graphs")
MODES = ("train", "infer")


# Workloads ---------------------------------------------------------------------


class Workload:
    """A recipe, its options (full, and small to try this file out), further options of
    segengine alone, batches (the first for every precision), and the PyTorch reference with
    the same options: build(torch, options, batch, device) -> Reference."""

    def __init__(self, build, recipe, batches, full, small, more=()):
        self.build, self.recipe, self.batches = build, recipe, batches
        self.full, self.small, self.more = full, small, dict(more)


class Reference:
    """Network, inputs, loss of its result, optimizer of parameters and options, maximum
    norm of the gradient."""

    def __init__(self, net, inputs, loss, optim, clip=0):
        self.net, self.inputs, self.loss, self.optim, self.clip = net, inputs, loss, optim, clip


def adamw(torch, decay):
    return lambda p, **more: torch.optim.AdamW(p, lr=1e-4, weight_decay=decay, **more)


def list_of(text):
    return [int(v) for v in text.split(",")]


def brain_unet(torch, o, batch, device):
    import unet_torch as peer

    shape = (batch, 1, o["size"], o["size"])
    net = peer.UNet(tuple(o["base"] * 2**i for i in range(4)))
    x = torch.randn(shape, device=device)
    y = (torch.rand(shape, device=device) > 0.7).float()
    return Reference(net, [x], lambda out: peer.bce_dice(out.float(), y), adamw(torch, 1e-4))


def nfbs_unet(torch, o, batch, device):
    import unet_torch as peer

    shape = (batch, 1, o["size"], o["size"])
    net = peer.UNet(list_of(o["features"]), bias=True)
    x = torch.rand(shape, device=device)
    y = (torch.rand(shape, device=device) > 0.7).float()

    def adam(p, **more):
        return torch.optim.Adam(p, 1e-4, weight_decay=1e-4, **more)

    return Reference(net, [x], lambda out: peer.bce_dice(out.float(), y, 0.5, 0.5), adam, 1.0)


def hippocampus_unet3d(torch, o, batch, device):
    from hippocampus import UNet

    F = torch.nn.functional
    w, h, d = list_of(o["size"])
    x = torch.randn((batch, 1, d, h, w), device=device)
    fine = torch.randint(3, (batch, d, h, w), device=device)
    # targets of both resolutions as numbers and as probabilities: made once, not in each step
    target = [(t, F.one_hot(t, 3).movedim(-1, 1).float()) for t in (fine, fine[:, ::2, ::2, ::2])]

    def ce_dice(logits, numbers, t):
        logits = logits.float()
        p, axes = torch.softmax(logits, 1), (0, 2, 3, 4)
        dice = (2 * (p * t).sum(axes) + 1e-5) / (p.sum(axes) + t.sum(axes) + 1e-5)
        return F.cross_entropy(logits, numbers) + 1 - dice[1:].mean()

    def loss(out):
        return (ce_dice(out[0], *target[0]) + ce_dice(out[1], *target[1]) / 2) / 1.5

    return Reference(UNet(o["base"], o["levels"], True), [x], loss, adamw(torch, 1e-4), 12.0)


def openkbp_unet3d(torch, o, batch, device):
    from openkbp import Generator

    a = argparse.Namespace(**o, dropout=0.2, better=False, squeeze=0)
    size = (o["size"],) * 3
    x = torch.rand((batch, 11, *size), device=device)
    y = 70 * torch.rand((batch, 1, *size), device=device)

    def adam(p, **more):
        return torch.optim.Adam(p, 2e-4, (0.5, 0.999), 1e-7, **more)

    return Reference(Generator(11, a), [x], lambda out: (out.float() - y).abs().mean(), adam)


def headpose_cnn(torch, o, batch, device):
    import networks
    from headpose import PoseCNN

    small = o["net"] == "small"
    net = PoseCNN(list_of(o["features"])) if small else networks.PoseResNet(3)
    x = 255 * torch.rand((batch, 3, o["size"], o["size"]), device=device)
    y = torch.randn((batch, 3), device=device)
    return Reference(net, [x], lambda out: (out.float() - y).abs().mean(), adamw(torch, 1e-4))


def sequence_cnn_lstm(torch, o, batch, device):
    import sequence

    a = argparse.Namespace(
        **{k: list_of(v) if isinstance(v, str) else v for k, v in o.items()},
        layers=2, lstm_dropout=0.3, mlp_dropout=0.4)  # fmt: skip
    a.dropout = 0.2
    net = sequence.Network(o["channels"], o["classes"], a)
    # all have the same length: packing them would wait for the GPU in each step
    net.encoder.packed = False
    x = torch.rand((batch, o["channels"], o["longest"]), device=device)
    lengths = torch.full((batch,), o["longest"], device=device)
    y = torch.randint(o["classes"], (batch,), device=device)
    cross = torch.nn.functional.cross_entropy
    return Reference(net, [x, lengths], lambda out: cross(out.float(), y), adamw(torch, 0.0))


FACES = {"size": 112, "features": "32,64,128,256"}
FEW_FACES = {"size": 32, "features": "4,8"}
WORKLOADS = {
    "brain_unet": Workload(
        brain_unet, "brain_unet", (16, 64),
        {"size": 256, "base": 32}, {"size": 32, "base": 4}),
    "openkbp_unet3d": Workload(
        openkbp_unet3d, "openkbp_unet3d", (2,),
        {"size": 128, "filters": 64, "levels": 6}, {"size": 16, "filters": 2, "levels": 4},
        {"better": "false"}),
    "sequence_cnn_lstm": Workload(
        sequence_cnn_lstm, "sequence_cnn_lstm", (64,),
        {"channels": 1024, "longest": 500, "classes": 5, "features": "64,128,256", "hidden": 256,
         "project": 512, "embed": 512, "mlp": "256,128"},
        {"channels": 8, "longest": 64, "classes": 3, "features": "4,6", "hidden": 4,
         "project": 8, "embed": 8, "mlp": "6"},
        {"learn": "supervised"}),
    "headpose_cnn": Workload(
        headpose_cnn, "headpose_cnn", (128,), {"net": "small", **FACES},
        {"net": "small", **FEW_FACES}),
    "headpose_resnet18": Workload(
        headpose_cnn, "headpose_cnn", (64,), {"net": "resnet18", **FACES},
        {"net": "resnet18", **FEW_FACES}),
    "hippocampus_unet3d": Workload(
        hippocampus_unet3d, "hippocampus_unet3d", (4,),
        {"size": "40,56,40", "base": 16, "levels": 3}, {"size": "16,16,16", "base": 4, "levels": 2}),
    "nfbs_unet": Workload(
        nfbs_unet, "nfbs_unet", (8,),
        {"size": 256, "features": "32,64,128,256,512"}, {"size": 32, "features": "4,8,16"}),
}  # fmt: skip


def options_of(name, small):
    return WORKLOADS[name].small if small else WORKLOADS[name].full


# PyTorch: one process for each variant ---------------------------------------------


class Turn:
    """Holds the GPU for measurements of one process, among those that prepare. Nests."""

    def __init__(self, path):
        self.file, self.depth = open(path, "a") if path else None, 0

    def __enter__(self):
        if self.file and not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.file and not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_UN)


class Torch:
    """One variant of a training step or an inference in PyTorch."""

    def __init__(self, torch, a, name, batch, precision, mode, way):
        self.torch, self.cuda, self.train = torch, a.device == "cuda", mode == "train"
        self.turn = Turn(a.turn)
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
        torch.backends.cudnn.allow_tf32 = precision != "f32"
        self.half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision)
        device = torch.device(a.device)
        ref = WORKLOADS[name].build(torch, options_of(name, a.small), batch, device)
        self.x, self.clip = ref.inputs, ref.clip
        layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(self.x[0].dim())
        net = ref.net.to(device).train(self.train)
        if layout:
            net = net.to(memory_format=layout)
            self.x[0] = self.x[0].to(memory_format=layout)
        self.weights = list(net.parameters())
        self.parameters = sum(p.numel() for p in self.weights)
        self.call = self.step_of(net, ref, way) if self.train else self.inference_of(net)
        self.prepare(way)

    def step_of(self, net, ref, way):
        more = {"fused": True} if self.cuda else {}
        if way == "captured":
            more["capturable"] = True
        self.optim = ref.optim(self.weights, **more)
        self.scaler = None
        if self.half is self.torch.float16 and self.cuda:
            self.scaler = self.torch.cuda.amp.GradScaler()
        return lambda *x: ref.loss(net(*x))

    def inference_of(self, net):
        for p in self.weights:
            p.requires_grad_(False)
        if self.half and self.cuda:  # on a CPU, older versions lack operators of such weights
            net.to(self.half)
            self.x[0] = self.x[0].to(self.half)
            self.half = None
        return net

    def once(self):
        if self.train:
            self.optim.zero_grad(set_to_none=True)
        self.rest()

    def rest(self):
        torch = self.torch
        half = contextlib.nullcontext()
        if self.half:
            half = torch.autocast("cuda" if self.cuda else "cpu", dtype=self.half)
        if not self.train:
            with torch.no_grad(), half:
                self.result = self.call(*self.x)
            return
        with half:
            loss = self.call(*self.x)
        if self.scaler:
            self.scaler.scale(loss).backward()
            if self.clip:
                self.scaler.unscale_(self.optim)
        else:
            loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.weights, self.clip)
        if self.scaler:
            self.scaler.step(self.optim)
            self.scaler.update()
        else:
            self.optim.step()

    def prepare(self, way):
        """Eager first, in every variant: cuDNN then makes its choices while no other process
        uses the GPU, and keeps them for the same convolutions of the other variants."""
        torch, self.step = self.torch, self.once
        with self.turn:
            self.times(WARM)
            if way == "captured":
                self.capture()
        if way.startswith("compiled"):
            self.compile(way.endswith("graphs"))
        with self.turn:
            if self.cuda:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            ms = self.times(WARM)
        self.count = max(STEPS, min(500, round(SPAN_MS / ms)))

    def compile(self, graphs):
        torch = self.torch
        try:  # Triton measures its choices in turn, too
            from torch._inductor.runtime import triton_heuristics as t

            measure = t.CachingAutotuner.benchmark_all_configs

            def alone(*args, **more):
                with self.turn:
                    return measure(*args, **more)

            t.CachingAutotuner.benchmark_all_configs = alone
        except (ImportError, AttributeError):
            pass  # another version: it measures beside the others
        if not self.train:
            torch._inductor.config.freezing = True
        self.call = torch.compile(self.call, **({"mode": "reduce-overhead"} if graphs else {}))
        if graphs:
            begin = torch.compiler.cudagraph_mark_step_begin

            def step():
                begin()
                self.once()

            self.step = step
        self.step()  # compiles: while others prepare
        self.sync()
        with self.turn:
            self.times(WARM)  # records the graphs

    def capture(self):
        """the whole step as one graph, as PyTorch's notes on CUDA graphs do it"""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                self.once()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.empty_cache()  # the graph has its own memory pool
        graph = torch.cuda.CUDAGraph()
        if self.train:
            self.optim.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.rest()
        self.step = graph.replay

    def sync(self):
        if self.cuda:
            self.torch.cuda.synchronize()

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
    """Runs a variant: prints a line when it is ready, then answers each line with a time."""
    out = os.fdopen(os.dup(1), "w")  # what a compiler prints is no answer
    os.dup2(2, 1)

    def say(**what):
        print(json.dumps(what), file=out, flush=True)

    try:
        import torch

        one = Torch(torch, a, *json.loads(a.serve))
    except Exception as e:  # out of memory, no compiler: noted below the table
        say(why=(str(e) or repr(e)).strip().splitlines()[0][:100])
        return 0
    say(parameters=one.parameters)
    for _ in sys.stdin:
        one.times(WARM)
        say(ms=one.times(one.count), bytes=one.bytes())
    return 0


class Side:
    """The process of a variant, seen by the caller. `why`: the reason it failed."""

    def __init__(self, a, turn, *what):
        self.late, self.ms, self.most, self.parameters = False, [], 0, 0
        self.child, self.why = None, a.without.get(what[-1], "")
        if self.why:
            return
        command = [sys.executable, __file__, "--serve", json.dumps(what), "--device", a.device,
                   "--turn", turn]  # fmt: skip
        self.began = time.monotonic()
        # each has few threads: many prepare at once
        few = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        self.child = subprocess.Popen(
            command + ["--small"] * a.small, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=0,
            env={**os.environ, **(few if a.device == "cuda" else {})})  # fmt: skip

    def ready(self, until):
        if self.why:
            return
        out = self.answer(until - time.monotonic(), "ready", self.began)
        self.parameters = out.get("parameters", 0)

    def answer(self, seconds, what, began):
        ready, _, _ = select.select([self.child.stdout], [], [], max(seconds, 0))
        line = self.child.stdout.readline() if ready else b""
        out = json.loads(line) if line else {}
        if line:
            self.why = out.get("why", "")
        else:
            self.why = f"it has ended, before it was {what}"
            if not ready:
                self.why = f"not {what} after {time.monotonic() - began:.0f} s"
            self.late = not ready
        if self.why:
            self.end()
        return out

    def round(self, seconds):
        try:
            self.child.stdin.write(b"\n")
        except OSError:  # the process has ended: answer() reports it
            pass
        out = self.answer(seconds, "done", time.monotonic())
        self.ms += [out["ms"]] if "ms" in out else []
        self.most = max(self.most, out.get("bytes", 0))

    def end(self):
        if self.child:
            self.child.kill()
            self.child.wait()


# segengine ------------------------------------------------------------------------


class Engine:
    """Times from `segengine SCRIPT bench`."""

    def __init__(self, a, name, batch, precision):
        work = WORKLOADS[name]
        self.why, self.most, self.recompute = "", 0, "off"
        self.ms = {"train": [], "infer": []}
        self.command = [a.program, f"scripts/{work.recipe}.lua"]
        self.options = ["--device", a.device, "--batch", str(batch), "--precision", precision,
                        "--json"]  # fmt: skip
        for key, value in {**options_of(name, a.small), **work.more}.items():
            self.options += [f"--{key}", str(value)]

    def plan(self, seconds):
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
            self.ms["train"].append(out["step_ms"])
            self.ms["infer"].append(out["infer_ms"])
            self.most = max(self.most, out["measured_bytes"])
            self.recompute = out["recompute"]


# The table -----------------------------------------------------------------------


class Group:
    """A network, batch and precision: the rows of its modes, which share the runs of
    segengine."""

    def __init__(self, name, batch, precision, modes):
        self.what, self.modes = (name, batch, precision), modes
        self.sides = {}

    def text(self, mode=None):
        name, batch, precision = self.what
        return f"{name}, batch {batch}, {precision}" + (f", {mode}" if mode else "")

    def start(self, a, turn):
        self.engine = Engine(a, *self.what)
        for mode in self.modes:
            for way in WAYS:
                self.sides[mode, way] = Side(a, turn, *self.what, mode, way)

    def ready(self, until):
        for side in self.sides.values():
            side.ready(until)
            theirs, ours = side.parameters, self.engine.parameters
            if theirs and ours and theirs != ours:
                side.why = f"its network has {theirs} parameters, ours {ours}"
                side.end()

    def measure(self, a, left):
        """-> notes"""
        for _ in range(a.rounds):
            for side in self.sides.values():
                if not side.why and left() > 0:
                    side.round(left())
            if not self.engine.why and left() > 0:
                self.engine.round(left())
        notes = []
        for mode in self.modes:
            notes += self.row(mode)
        if self.engine.why:
            notes.append(f"{self.text()}, segengine: not run: {self.engine.why}")
        if self.engine.recompute != "off":
            notes.append(f"{self.text()}, segengine: recomputes: {self.engine.recompute}")
        return notes

    def row(self, mode):
        sides = {way: self.sides[mode, way] for way in WAYS}
        ms = {way: statistics.median(s.ms) for way, s in sides.items() if s.ms}
        best = min(ms, key=ms.get, default=None)
        late = any(s.late for s in sides.values())
        own = self.engine.ms[mode]
        own = statistics.median(own) if own else None
        batch = self.what[1]
        cells = [f"{ms[w]:.2f}" if w in ms else "-" for w in WAYS]
        cells += [
            f"{own:.2f}" if own else "-",
            ("<= " if late else "") + f"{ms[best] / own:.2f}" if best and own else "-",
            f"{1000 * batch / own:.0f}" if own else "-",
            f"{self.engine.most / 1e6:.0f}" if self.engine.most and mode == "train" else "-",
            f"{sides[best].most / 1e6:.0f}" if best and sides[best].most else "-",
        ]
        print("|", " | ".join([*map(str, self.what), mode, *cells]), "|", flush=True)
        return [f"{self.text(mode)}, {way}: not run: {s.why}" for way, s in sides.items() if s.why]


def without(torch, device):
    """-> the variants that cannot run, and why"""
    out = {}
    if device != "cuda":
        out["captured"] = out["compiled, graphs"] = "CUDA graphs want a GPU"
    if not hasattr(torch, "compile"):
        out["compiled"] = out["compiled, graphs"] = "this PyTorch has no torch.compile"
    return out


def groups_of(a):
    """The rows asked for, in the order of the precisions."""
    names = a.only.split(",") if a.only else list(WORKLOADS)
    out = []
    for precision in a.precisions.split(","):
        for name in names:
            batches = (2,) if a.small else WORKLOADS[name].batches
            if a.batches:
                batches = list_of(a.batches)
            elif precision != "bf16":
                batches = batches[:1]
            modes = a.modes.split(",") if a.modes else MODES[: 2 if precision == "bf16" else 1]
            out += [Group(name, batch, precision, modes) for batch in batches]
    return out


def waves_of(groups, side):
    """Groups in order, in lists of at most `side` processes, or a quarter more if that
    saves a list."""
    waves, count = [], 0
    rest = sum(len(WAYS) * len(g.modes) for g in groups)
    for g in groups:
        more = len(WAYS) * len(g.modes)
        if not waves or (count + more > side and count + rest > 1.25 * side):
            waves.append([])
            count = 0
        waves[-1].append(g)
        count, rest = count + more, rest - more
    return waves


def compare(a, wave, left, waves_left):
    """Prepares and measures the rows of a wave. -> notes"""
    notes = []
    with tempfile.NamedTemporaryFile() as turn:
        try:
            # what was not ready is ended before anything is timed
            until = time.monotonic() + min(a.wait, 0.65 * left() / waves_left)
            for g in wave:
                g.start(a, turn.name)
            for g in wave:
                g.engine.plan(until - time.monotonic())
            for g in wave:
                g.ready(until)
            for g in wave:
                if left() <= 0:
                    notes.append(f"{g.text()}: not run: no time left")
                else:
                    notes += g.measure(a, left)
        finally:
            for g in wave:
                for side in g.sides.values():
                    side.end()
    return notes


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/gpu/segengine")
    ap.add_argument("--seconds", type=float, default=280)
    ap.add_argument("--wait", type=float, default=150)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--side", type=int, default=0)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--precisions", default="bf16,tf32,f32,f16")
    ap.add_argument("--modes", default="")
    ap.add_argument("--batches", default="")
    ap.add_argument("--only", default="")
    ap.add_argument("--small", action="store_true")
    ap.add_argument("--serve", help=argparse.SUPPRESS)
    ap.add_argument("--turn", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.serve:
        return serve(a)
    for name in filter(None, a.only.split(",")):
        if name not in WORKLOADS:
            ap.error(f"--only {name}: there is no such network; there are: {', '.join(WORKLOADS)}")
    a.side = a.side or (16 if a.device == "cuda" else 8)
    a.program = str((ROOT / a.program).resolve())
    try:
        import torch
    except ImportError as e:
        print(f"not run: no PyTorch: {e}")
        return 77
    if a.device == "cuda" and not torch.cuda.is_available():
        print("not run: PyTorch sees no GPU")
        return 77
    a.without = without(torch, a.device)
    end, notes = time.monotonic() + a.seconds, []

    def left():
        return end - time.monotonic()

    gpu = torch.cuda.get_device_name() + ", " if a.device == "cuda" else ""
    print(f"{gpu}PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; "
          "milliseconds, MB at most\n")  # fmt: skip
    head = ["network", "batch", "precision", "mode", *(f"PyTorch {w}" for w in WAYS), "segengine",
            "times as fast as the best", "samples/s", "MB", "PyTorch's MB"]  # fmt: skip
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head), flush=True)
    waves = waves_of(groups_of(a), a.side)
    for i, wave in enumerate(waves):
        if left() <= 0:
            notes += [f"{g.text()}: not run: no time left" for g in wave]
        else:
            notes += compare(a, wave, left, len(waves) - i)
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
