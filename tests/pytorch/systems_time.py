#!/usr/bin/env python3
"""systems_time.py -- training steps of all recipes and of their PyTorch references.

    tests/pytorch/systems_time.py [--program ./segengine] [--threads 2]
                               [--rounds 3] [--steps 5] [--only NAME]

The preset quick of each on synthetic data, float32 on both sides: `segengine
scripts/NAME.lua bench` and `tests/pytorch/NAME.py --clock` on exported batches
take turns, each alone in a process of its own, PyTorch set up as speed.py
does it. Times are medians over rounds of medians over steps; memory is the
most that each process ever held, with libraries and data. Exit 77: no PyTorch.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from speed import ROOT, TUNABLES, processor

# recipe: its options besides the preset, and options of its PyTorch version
ROWS = {
    "brain_unet": ("", ""),
    "nfbs_unet": ("", ""),
    "openkbp_unet3d": ("--patients 6", "--better --coarse 2"),
    "headpose_cnn": ("--people 20 --photos 8", "--whiten"),
    "sequence_cnn_lstm": ("--longest 200", "--learn supervised"),
    "hippocampus_unet3d": ("", ""),
}


def reference_of(name):
    """Its file: the recipe's name, or that without the network's."""
    folder = pathlib.Path(__file__).parent
    whole = folder / f"{name}.py"
    return whole if whole.exists() else folder / f"{name.split('_')[0]}.py"


def child(command, **env):
    """Runs a command in the root folder. -> its output, its peak memory in MB"""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **env}, stdout=said, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        said.seek(0)
        errors.seek(0)
        if status:
            sys.exit(f"{' '.join(command)}: {errors.read()}")
        return said.read(), usage.ru_maxrss / 1024


def measure(a, name, folder):
    """-> {side: (ms a step, MB)}, samples a step"""
    ours, theirs = (text.split() for text in ROWS[name])
    recipe = [a.program, f"scripts/{name}.lua"]
    common = ["--preset", "quick", "--phantom", f"{folder}/data", "--quiet",
              "--out", f"{folder}/runs", "--threads", str(a.threads), *ours]  # fmt: skip
    child([*recipe, "export", "--reference", f"{folder}/reference", "--steps", str(a.steps),
           *common])  # fmt: skip
    sides = {
        "segengine": [*recipe, "bench", "--json", *common],
        "PyTorch": [sys.executable, str(reference_of(name)), f"{folder}/reference",
                    "--clock", "--threads", str(a.threads), *theirs],
    }  # fmt: skip
    found, samples = {side: [] for side in sides}, 0
    for _ in range(a.rounds):
        for side, command in sides.items():
            env = {"GLIBC_TUNABLES": TUNABLES} if side == "PyTorch" else {}
            said, held = child(command, **env)
            facts = json.loads(said)
            samples = facts.get("batch", samples)  # only segengine prints it
            found[side].append((facts["step_ms"], held))
    return {s: [statistics.median(v) for v in zip(*rows)] for s, rows in found.items()}, samples


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default=str(ROOT / "segengine"))
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--only", choices=ROWS)
    a = ap.parse_args()
    a.program = os.path.abspath(a.program)
    if not importlib.util.find_spec("torch"):
        print("no comparison with PyTorch", file=sys.stderr)
        return 77
    load = os.getloadavg()[0]
    print(f"{processor()}, {a.threads} threads, {datetime.date.today().isoformat()}; "
          f"load before: {load:.1f}\n")  # fmt: skip
    print("| preset quick | batch | ms a step | PyTorch | ratio | MB | PyTorch |")
    print("|---|---|---|---|---|---|---|")
    for name in [a.only] if a.only else ROWS:
        with tempfile.TemporaryDirectory() as folder:
            found, samples = measure(a, name, folder)
        (ms, mb), (peer_ms, peer_mb) = found["segengine"], found["PyTorch"]
        print(f"| `{name}` | {samples} | {ms:.0f} | {peer_ms:.0f} | {ms / peer_ms:.2f} "
              f"| {mb:.0f} | {peer_mb:.0f} |", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
