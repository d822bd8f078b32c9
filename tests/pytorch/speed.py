#!/usr/bin/env python3
"""speed.py -- compares training steps and inference with PyTorch, in one run.

    tests/pytorch/speed.py [--program ./segengine] [--python PYTHON ...]
                        [--threads 2] [--rounds 5] [--only ROW ...] [--json]

Rows of TABLE: a network of tests/bench/networks.lua, a batch, a task, and the
least speed relative to PyTorch. segengine and PyTorch have the same weights and
inputs in a process each, and their first losses must agree; they take turns, so
a busy machine slows both, and one sleeps while the other computes. Times are
medians; memory is the peak of a process after its training steps, including
libraries and inputs.

PyTorch runs with the fastest known settings: channels last, fused updates where
available, and a C library that keeps freed memory (TUNABLES, worth 25-55 %).
Debian's PyTorch needs OpenBLAS: with the reference BLAS it takes three times as
long. --python names further Python programs, each with a PyTorch of its own.

Two rows measure segengine alone: the speed-up by a second thread, and the time
of a step next to a busy process when segengine is `nice`.
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
PEER = pathlib.Path(__file__).resolve().parent

# network, batch, size, task of segengine, least ratio of PyTorch's time to
# segengine's (None: no limit), task of PyTorch
TABLE = {
    "unet train": ("unet", 4, 256, "train", 2.4, "train"),
    "unet train, PyTorch in bf16": ("unet", 4, 256, "train", 1.3, "train_bf16"),
    "unet train, both in bf16": ("unet", 4, 256, "train_bf16", None, "train_bf16"),
    "unet infer": ("unet", 4, 256, "infer", 2.8, "infer"),
    "unet infer, both in bf16": ("unet", 4, 256, "infer_bf16", None, "infer_bf16"),
    "generator train": ("generator", 1, 128, "train", 1.5, "train"),
    "nfbs train": ("nfbs", 4, 256, "train", 1.5, "train"),
    "resnet18 train": ("resnet18", 32, 112, "train", 1.2, "train"),
    "cnn_lstm train": ("cnn_lstm", 32, 500, "train", 1.2, "train"),
}
MEMORY = 0.7  # largest ratio of segengine's memory to PyTorch's, first row
SCALING = 1.85  # least ratio of the times of one and two threads, first row
FIRST = 1.5  # first step / median, of the first row
START = 0.5  # seconds from the start of the program to the first step's beginning


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    return name[1] if name else os.uname().machine


def peer_has_bf16():
    """Without AVX-512 PyTorch takes minutes for a step in bf16."""
    return " avx512bw " in pathlib.Path("/proc/cpuinfo").read_text()


class Side:
    """A process of segengine or PyTorch: prints the loss of a first step, then
    times on demand."""

    def __init__(self, command, facts=False, **env):
        clean = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**clean, **env}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self.facts = json.loads(self.line()) if facts else None
        self.first_loss = float(self.line())
        self.first_ms = 1000 * (time.perf_counter() - began)
        self.times = {}

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        return text

    def ask(self, what, count):
        self.process.stdin.write(f"{what} {count}\n")
        self.process.stdin.flush()
        return [float(v) for v in self.line().split()]

    def take(self, what, count):
        self.times.setdefault(what, []).extend(self.ask(what, count))

    def ms(self, what):
        return statistics.median(self.times[what])

    def held(self):
        """Peak memory so far, MB."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+)", text)[1]) / 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ours(a, row, folder, threads, *prefix):
    name, batch, size = row[:3]
    return [*prefix, a.program, "tests/bench/steps.lua", name, str(batch), str(size),
            folder, str(threads)]  # fmt: skip


def theirs(a, row, folder, python):
    return Side([python, str(PEER / "steps.py"), row[0], folder, str(a.threads)], True,
                GLIBC_TUNABLES=TUNABLES)  # fmt: skip


def beside(a, rows, folder):
    """Measures the rows of one network. -> a list of facts, one for each row and
    PyTorch"""
    first = next(iter(rows.values()))
    subprocess.run([*ours(a, first, folder, a.threads), "write"], cwd=ROOT, check=True)
    engine = Side(ours(a, first, folder, a.threads))
    peers = [theirs(a, first, folder, python) for python in a.python]
    for peer in peers:
        if not abs(engine.first_loss / peer.first_loss - 1) < 1e-4:
            sys.exit(f"{first[0]}: not the same step: loss {engine.first_loss}, "
                     f"PyTorch {peer.first_loss}")  # fmt: skip
    # training before inference, because inference adds to the memory
    for what in sorted({row[3] for row in rows.values()}, reverse=True):
        words = sorted({row[5] for row in rows.values() if row[3] == what})
        # untimed first calls, which allocate and plan
        for side, warm in [(engine, [what]), *((peer, words) for peer in peers)]:
            for word in warm:
                side.ask(word, 1)
        for _ in range(a.rounds):
            for peer in peers:
                for word in words:
                    peer.take(word, 2)
                time.sleep(0.2)  # OpenMP's threads spin a while before they sleep
            engine.take(what, 2)
    found = []
    for title, row in rows.items():
        for peer in peers:
            found.append({
                "row": title, "peer": peer.facts["torch"], "blas": peer.facts["blas"],
                "ms": engine.ms(row[3]), "peer_ms": peer.ms(row[5]),
                "wanted": row[4],
            })  # fmt: skip
    for side in (engine, *peers):
        side.close()
    return found


def memory(a, row, folder):
    """-> MB of segengine and of each PyTorch after training steps"""
    held = []
    for make in (lambda: Side(ours(a, row, folder, a.threads)),
                 *((lambda p=p: theirs(a, row, folder, p)) for p in a.python)):  # fmt: skip
        side = make()
        side.take("train", 3)
        held.append(side.held())
        side.close()
    return held


def alone(a, row, folder):
    """segengine alone: one thread and two, start, niced next to a busy process."""
    one, two = Side(ours(a, row, folder, 1)), Side(ours(a, row, folder, 2))
    for _ in range(a.rounds):
        one.take("train", 2)
        two.take("train", 2)
    facts = {"one_ms": one.ms("train"), "two_ms": two.ms("train")}
    one.close()
    # the first step of a new process, timed from the start of the process
    starts = []
    for _ in range(3):
        side = Side(ours(a, row, folder, 2))
        starts.append(side.first_ms)
        side.close()
    facts["start_ms"] = statistics.median(starts)
    gentle = Side(ours(a, row, folder, 2, "nice", "-n", "10"))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    gentle.take("train", 2 * a.rounds)
    busy.kill()
    busy.wait()
    two.take("train", 2)
    facts["nice_ms"] = gentle.ms("train")
    gentle.close()
    two.close()
    return facts


def said(ratio, wanted, least=True):
    if wanted is None:
        return f"{ratio:.2f}", ""
    good = ratio >= wanted if least else ratio <= wanted
    return f"**{ratio:.2f}**", f"{'>=' if least else '<='} {wanted}{'' if good else ', missed'}"


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default=str(ROOT / "segengine"))
    ap.add_argument("--python", action="append")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--only", action="append", choices=TABLE)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    a.program = os.path.abspath(a.program)
    a.python = a.python or [sys.executable]
    for python in a.python:
        if subprocess.run([python, "-c", "import numpy, torch"], capture_output=True).returncode:
            print(f"no comparison with PyTorch: {python} has none", file=sys.stderr)
            return 77
    load, facts = os.getloadavg()[0], {"rows": []}
    rows = {k: v for k, v in TABLE.items() if not a.only or k in a.only}
    if not peer_has_bf16():
        rows = {k: v for k, v in rows.items() if not v[5].endswith("bf16")}
    for name in dict.fromkeys(row[0] for row in rows.values()):
        with tempfile.TemporaryDirectory() as folder:
            same = {k: v for k, v in rows.items() if v[0] == name}
            facts["rows"] += beside(a, same, folder)
            if name == "unet":
                facts["memory_mb"] = memory(a, TABLE["unet train"], folder)
                facts["alone"] = alone(a, TABLE["unet train"], folder)
    facts |= {"machine": processor(), "date": datetime.date.today().isoformat(),
              "threads": a.threads, "load_before": round(load, 2)}  # fmt: skip
    print(json.dumps(facts) if a.json else table(facts))
    return 0


def table(facts):
    """The table in Markdown, for docs/benchmarks.md."""
    peers = {row["peer"]: row["blas"] for row in facts["rows"]}
    lines = [f"{facts['machine']}, {facts['threads']} threads, {facts['date']}; "
             f"load before: {facts['load_before']}",
             "PyTorch " + "; ".join(f"{k} ({v})" for k, v in peers.items())
             + ": channels last, tuned malloc", "",
             "| | ms | PyTorch | its ms | times as fast | wanted |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for row in facts["rows"]:
        ratio, wanted = said(row["peer_ms"] / row["ms"], row["wanted"])
        lines.append(f"| {row['row']} | {row['ms']:.1f} | {row['peer']} | "
                     f"{row['peer_ms']:.1f} | {ratio} | {wanted} |")  # fmt: skip
    if "alone" in facts:
        f, mb = facts["alone"], facts["memory_mb"]
        for peer, held in zip(peers, mb[1:]):
            ratio, wanted = said(mb[0] / held, MEMORY, least=False)
            lines.append(f"| unet train, MB at most | {mb[0]:.0f} | {peer} | {held:.0f} | "
                         f"{ratio} of it | {wanted} |")  # fmt: skip
        ratio, wanted = said(f["one_ms"] / f["two_ms"], SCALING)
        lines.append(f"| unet train, one thread | {f['one_ms']:.1f} | two: | "
                     f"{f['two_ms']:.1f} | {ratio} | {wanted} |")  # fmt: skip
        late = f["start_ms"] - f["two_ms"]
        ratio, wanted = said(late / 1000, START, least=False)
        lines.append(f"| program's start to the end of a first step | {f['start_ms']:.1f} | "
                     f"a step: | {f['two_ms']:.1f} | {ratio} s more | {wanted} |")  # fmt: skip
        lines.append(f"| unet train, nice, beside a busy process | {f['nice_ms']:.1f} | alone: | "
                     f"{f['two_ms']:.1f} | {f['two_ms'] / f['nice_ms']:.2f} | |")  # fmt: skip
    if not peer_has_bf16():
        lines += ["", "Nothing in bf16: this processor has no AVX-512, without which PyTorch "
                  "takes minutes for such a step."]  # fmt: skip
    if facts["load_before"] > 0.5:
        lines += ["", "The machine was not idle before this began: do not quote these."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
