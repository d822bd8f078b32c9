"""OpenKBP patients as read by pandas, for tests/data/datasets/openkbp_set.c.

On stdin, patient by patient: the folder as a line, then as float32 the grids
ct, structures (channels last), possible and dose. Each must equal the files,
voxel for voxel.
"""
import os
import sys

import numpy
import pandas

EDGE = 128
STRUCTURES = ["Brainstem", "SpinalCord", "RightParotid", "LeftParotid",
              "Esophagus", "Larynx", "Mandible", "PTV56", "PTV63", "PTV70"]


def grid(folder, name):
    """Returns the dense grid of a file; zeros if the file does not exist."""
    out = numpy.zeros(EDGE ** 3, "f4")
    path = f"{folder}/{name}.csv"
    if os.path.exists(path):
        table = pandas.read_csv(path, index_col=0)
        mask = table["data"].isnull().all()
        out[table.index] = 1 if mask else table["data"].astype("f4")
    return out.reshape(EDGE, EDGE, EDGE)


def read(channels):
    count = EDGE ** 3 * channels
    data = sys.stdin.buffer.read(4 * count)
    return numpy.frombuffer(data, "f4").reshape(EDGE, EDGE, EDGE, channels)


patients = 0
while folder := sys.stdin.buffer.readline().decode().strip():
    for names in ["ct"], STRUCTURES, ["possible_dose_mask"], ["dose"]:
        got = read(len(names))
        for k, name in enumerate(names):
            wrong = int((got[..., k] != grid(folder, name)).sum())
            assert not wrong, f"{folder}/{name}: {wrong} voxels differ"
        assert name in STRUCTURES or got.any(), f"{folder}/{name} is empty"
    patients += 1
assert patients, "no patient came"
