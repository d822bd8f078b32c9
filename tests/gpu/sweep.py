#!/usr/bin/env python3
"""sweep.py -- prints the table of convolutions: each tile, and PyTorch.

    tests/gpu/sweep.py LINES [--rate TFLOPS] [--seconds 240] [--device cuda]
                       [--rounds 9] [--flush 128]

LINES is the output of tests/gpu/sweep.c, with the list of shapes. PyTorch runs
each shape in bf16, channels last, with cudnn.benchmark: y by its own functions,
dx and dw by aten::convolution_backward with one gradient; the median of
--rounds launches by CUDA events, with the cache flushed before each as in sweep.c.
--rate is the bf16 rate measured by tests/gpu/rates, for the shares. Without PyTorch
or a GPU its column stays empty, as in lines after --seconds; the reason is below the
table. --device cpu is for trying this file out, in f32: older versions have no
transposed convolution in bf16 on the CPU.
"""

import argparse
import json
import statistics
import sys
import time

WARM = 3  # untimed launches, in which cudnn.benchmark chooses an algorithm


class Peer:
    """PyTorch on a device."""

    def __init__(self, a, torch):
        self.torch, self.rounds = torch, a.rounds
        self.device = torch.device(a.device)
        self.cuda = a.device == "cuda"
        self.type = torch.bfloat16 if self.cuda else torch.float32
        torch.backends.cudnn.benchmark = True
        elements = (a.flush << 20) // 4
        self.flush = [torch.ones(elements, device=self.device) for _ in range(2)]

    def tensor(self, shape):
        layout = {3: self.torch.contiguous_format, 4: self.torch.channels_last,
                  5: self.torch.channels_last_3d}[len(shape)]  # fmt: skip
        x = self.torch.rand(shape, device=self.device) * 2 - 1
        return x.to(self.type).contiguous(memory_format=layout)

    def call(self, s):
        """a function that runs the pass of a line; ValueError: PyTorch has none"""
        torch, rank, up = self.torch, s["rank"], s["op"] == "upconv"
        stride, dilation, pad = (s[k][3 - rank :] for k in ("stride", "dilation", "lo"))
        extra = [0] * rank
        if s["lo"] != s["hi"]:
            # upconv's negative padding at the end is PyTorch's output_padding
            if not up:
                raise ValueError("padding that differs at both ends")
            extra = [lo - hi for lo, hi in zip(pad, s["hi"][3 - rank :])]
            if min(extra) < 0:
                raise ValueError("more cut off at the end than at the beginning")

        def dims(v):  # n d h w c -> n c d h w
            return [v[0], v[4], *v[4 - rank : 4]]

        x, w = self.tensor(dims(s["x"])), self.tensor(dims(s["w"]))
        if s["pass"] == "forward":
            name = f"conv{'_transpose' if up else ''}{rank}d"
            f = getattr(torch.nn.functional, name)
            more = {"output_padding": extra} if up else {}
            y = f(x, w, None, stride, pad, dilation=dilation, groups=s["groups"], **more)
            if list(y.shape) != dims(s["y"]):
                raise ValueError(f"another result: {list(y.shape)}")
            return lambda: f(x, w, None, stride, pad, dilation=dilation,
                             groups=s["groups"], **more)  # fmt: skip
        dy = self.tensor(dims(s["y"]))
        wanted = [s["pass"] == "data", s["pass"] == "weights", False]
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, stride, pad, dilation, up, extra, s["groups"], wanted)  # fmt: skip

    def once(self, run):
        """milliseconds"""
        self.flush[0].copy_(self.flush[1])
        if not self.cuda:
            began = time.perf_counter()
            run()
            return 1000 * (time.perf_counter() - began)
        a, b = (self.torch.cuda.Event(enable_timing=True) for _ in "ab")
        a.record()
        run()
        b.record()
        b.synchronize()
        return a.elapsed_time(b)

    def time(self, s):
        """-> milliseconds, or the reason why not"""
        try:
            with self.torch.no_grad():
                run = self.call(s)
                for _ in range(WARM):
                    run()
                return statistics.median(self.once(run) for _ in range(self.rounds))
        except Exception as e:  # no such algorithm, out of memory: noted below the table
            return str(e).splitlines()[0][:80] if str(e) else repr(e)


def open_peer(a):
    """-> Peer, or the reason why there is none"""
    try:
        import torch
    except ImportError as e:
        return f"no PyTorch: {e}"
    if a.device == "cuda" and not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return Peer(a, torch)


def shape_text(s):
    """32->64 3x3 /2 @128x128"""
    first = 3 - s["rank"]

    def times(v):
        return "x".join(str(i) for i in v)

    x, y = (s[k] for k in ("x", "y"))
    stride = s["stride"][first]
    groups = f" in {s['groups']} groups" if s["groups"] > 1 else ""
    return (f"{s['op']} {x[4]}->{y[4]} {times(s['w'][1 + first:4])}"
            f"{f' /{stride}' if stride > 1 else ''}{groups} @{times(x[1 + first:4])}")  # fmt: skip


def megabytes(s):
    """MB of both operands and the result in 16 bits, each once"""
    total = 0
    for k in "xwy":
        n = 2
        for extent in s[k]:
            n *= extent
        total += n
    return total / 1e6


def read(path):
    """-> [lines of one shape and pass], [shapes that were not run]"""
    groups, missing = {}, []
    with open(path) as f:
        for line in f:
            s = json.loads(line)
            if "not_run" in s:
                missing.append(f"{s['net']} {s['layer']}: not run: {s['not_run']}")
            else:
                groups.setdefault((s["net"], s["layer"], s["pass"]), []).append(s)
    return list(groups.values()), missing


def number(v):
    return "-" if v is None else f"{v:.3f}"


def row(lines, tiles, peer_ms, rate):
    """a line of the table"""
    s = next((one for one in lines if one["chosen"]), lines[0])
    best = min(lines, key=lambda one: one["ms"])
    rated = s["gflop"] / s["ms"]
    ms = {one["tile"]: one["ms"] for one in lines}
    return [
        s["net"], s["layer"] + (f" x{s['layers']}" if s["layers"] > 1 else ""),
        shape_text(s), s["pass"], f"{s['gflop']:.2f}", s["tile"], number(s["ms"]),
        f"{rated:.1f}", f"{100 * rated / rate:.0f} %" if rate else "-",
        f"{megabytes(s) / s['ms']:.0f}", best["tile"],
        *(number(ms.get(t)) for t in tiles), number(peer_ms),
        f"{peer_ms / s['ms']:.2f}" if peer_ms else "-",
    ]  # fmt: skip


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("lines")
    ap.add_argument("--rate", type=float, default=0)
    ap.add_argument("--seconds", type=float, default=240)
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--flush", type=int, default=128)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    began = time.monotonic()
    groups, notes = read(a.lines)
    tiles = []
    for lines in groups:
        tiles += [one["tile"] for one in lines if one["tile"] not in tiles]
    tiles.sort(key=lambda t: (t == "none", "split" in t))
    peer = open_peer(a)
    if isinstance(peer, str):
        notes.append(f"PyTorch: not run: {peer}")
    head = ["network", "layer", "shape", "pass", "GFLOP", "tile", "ms", "TFLOP/s",
            f"of {a.rate:.0f}" if a.rate else "share", "GB/s", "fastest", *tiles,
            "PyTorch", "times as fast"]  # fmt: skip
    print("Milliseconds, bf16, cache flushed before each; tile: the program's choice; none: "
          "without tiles.\n")  # fmt: skip
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head))
    lost = gained = 0
    for lines in groups:
        ms = None
        if not isinstance(peer, str):
            ms = "no time left" if time.monotonic() - began > a.seconds else peer.time(lines[0])
        if isinstance(ms, str):
            s = lines[0]
            notes.append(f"{s['net']} {s['layer']} {s['pass']}, PyTorch: not run: {ms}")
            ms = None
        print("|", " | ".join(row(lines, tiles, ms, a.rate)), "|", flush=True)
        chosen = next((one for one in lines if one["chosen"]), lines[0])
        lost += chosen["ms"] * chosen["layers"]
        gained += min(one["ms"] for one in lines) * chosen["layers"]
    if groups:
        print(f"\nAll of them: {lost:.3f} ms with the tiles that the program takes, "
              f"{gained:.3f} with the fastest of each.")  # fmt: skip
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
