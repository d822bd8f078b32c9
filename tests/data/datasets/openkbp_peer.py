"""OpenKBP files as read by numpy, for tests/data/datasets/openkbp.c.

    openkbp_peer.py DUMP    compares the patients read by segengine with their files
"""
import os
import sys
import warnings

import numpy

NAMES = ["ct", "dose", "possible_dose_mask", "Brainstem", "SpinalCord",
         "RightParotid", "LeftParotid", "Esophagus", "Larynx", "Mandible",
         "PTV56", "PTV63", "PTV70"]
warnings.simplefilter("ignore")  # a structure without voxels

with open(sys.argv[1], "rb") as dump:
    def read(kind, count):
        return numpy.frombuffer(dump.read(numpy.dtype(kind).itemsize * count),
                                kind)

    while folder := dump.readline().decode().strip():
        dimensions = numpy.loadtxt(folder + "/voxel_dimensions.csv")
        assert (read("f8", 3) == dimensions).all(), folder
        for name in NAMES:
            path = folder + "/" + name + ".csv"
            count, values = read("i4", 2)
            assert os.path.exists(path) == (count >= 0), path
            if count < 0:
                continue
            column = (0, 1) if values else (0,)
            table = numpy.loadtxt(path, delimiter=",", skiprows=1,
                                  usecols=column, ndmin=2)
            assert len(table) == count, path
            index = read("i4", count)
            if count:
                assert (index == table[:, 0]).all(), path
            if values:
                got = read("f4", count)
                assert (got == table[:, 1].astype("f4")).all(), path
            else:
                # no text after the commas
                with open(path) as text:
                    next(text)
                    assert all(line.endswith(",\n") for line in text), path
