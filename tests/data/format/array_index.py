"""Shared by the peer scripts of array formats: arrays with their expected values.

An Index writes FOLDER/expected.bin, float32 in C order one array after the
other, and FOLDER/index.txt, one line per array: file, name in it ("-": the file
is a single array), number of axes, extents. Numbers are converted to float32
through double, as in data/format/number.h.
"""
import os

import numpy


class Index:
    def __init__(self, folder):
        self.folder = folder
        self.text = open(os.path.join(folder, "index.txt"), "w",
                         encoding="utf-8")
        self.data = open(os.path.join(folder, "expected.bin"), "wb")
        self.files = 0

    def path(self, end):
        """Returns the path of a new file."""
        self.files += 1
        return os.path.join(self.folder, "peer%04d%s" % (self.files, end))

    def expect(self, path, name, array):
        array = numpy.asarray(array)
        self.text.write(" ".join(
            [os.path.basename(path), name, str(array.ndim)]
            + [str(n) for n in array.shape]) + "\n")
        self.data.write(array.astype("f8").astype("<f4").tobytes(order="C"))

    def close(self):
        self.text.close()
        self.data.close()


SHAPES = [(), (1,), (7,), (2, 3), (3, 1), (4, 3, 2), (2, 1, 3, 2),
          (2, 1, 2, 1, 2, 1, 2, 2)]


def values(rng, kind, shape):
    """Returns numbers over the whole range of a type, including its limits."""
    kind = numpy.dtype(kind)
    count = int(numpy.prod(shape, dtype=int))
    if kind.kind == "b":
        flat = rng.integers(0, 2, count).astype(kind)
    elif kind.kind in "iu":
        info = numpy.iinfo(kind)
        flat = rng.integers(info.min, info.max, count, dtype=kind.newbyteorder(
            "="), endpoint=True)
        flat[:2] = [info.min, info.max][:count]
    else:
        flat = (rng.normal(size=count) * 10.0 ** rng.integers(-6, 4, count))
        flat = flat.astype(kind)
        # special values: infinities, a signed zero, the smallest subnormal
        odd = [numpy.inf, -numpy.inf, -0.0, numpy.nan,
               numpy.nextafter(kind.type(0), kind.type(1)), 1e300]
        if kind.itemsize < 8:
            odd.pop()
        else:
            odd[-1] = 3e38
        for i, v in enumerate(odd[:max(count - 1, 0)]):
            flat[i] = v
    return flat.astype(kind).reshape(shape)
