"""OpenKBP files as pandas reads them, for tests/openkbp.c.

    openkbp_peer.py DUMP    patients as our reader saw them against their files
"""
import os
import sys

import numpy
import pandas

NAMES = ["ct", "dose", "possible_dose_mask", "Brainstem", "SpinalCord",
         "RightParotid", "LeftParotid", "Esophagus", "Larynx", "Mandible",
         "PTV56", "PTV63", "PTV70"]

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
            # pandas' own quick parser of numbers is off in the last place
            table = pandas.read_csv(path, index_col=0,
                                    float_precision="round_trip")
            assert (read("i4", count) == table.index.to_numpy()).all(), path
            column = table["data"].to_numpy()
            if values:
                want = column.astype("f4")
                assert (read("f4", count) == want).all(), path
            else:
                assert numpy.isnan(column.astype("f8")).all(), path
