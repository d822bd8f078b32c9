"""Files of NumPy for tests/data/array_peer.c: npy_peer.py FOLDER

Every type, byte order, order of axes and version of .npy.
"""
import sys

import numpy

from array_index import SHAPES, Index, values

KINDS = ["|b1", "|i1", "|u1"] + [order + kind for order in "<>" for kind in (
    "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]


def main():
    index = Index(sys.argv[1])
    rng = numpy.random.default_rng(1)
    for kind in KINDS:
        for shape in SHAPES:
            for order in "CF":
                version = (1 + index.files % 3, 0)
                array = numpy.array(values(rng, kind, shape), order=order)
                path = index.path(".npy")
                with open(path, "wb") as out:
                    numpy.lib.format.write_array(out, array, version)
                index.expect(path, "-", array)
    index.close()
    print(index.files)


main()
