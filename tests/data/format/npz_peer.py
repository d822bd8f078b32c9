"""Archives of NumPy and zipfile for tests/data/array_peer.c: npz_peer.py FOLDER

Stored and compressed, one array and many, written to a file and to a pipe,
appended to, with comments, with every level of deflate.
"""
import io
import sys
import zipfile

import numpy

from array_index import SHAPES, Index, values

KINDS = ["|b1", "|i1", "|u1", "<i2", ">u2", "<i4", ">i8", "<f2", ">f4", "<f8"]


class Pipe(io.RawIOBase):
    """A file that cannot seek: zipfile then writes sizes after the data."""

    def __init__(self, path):
        self.out = open(path, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.out.write(data)

    def close(self):
        self.out.close()
        super().close()


def member(array):
    data = io.BytesIO()
    numpy.save(data, array)
    return data.getvalue()


def main():
    index = Index(sys.argv[1])
    rng = numpy.random.default_rng(2)
    # files of NumPy
    for kind in KINDS:
        for shape in SHAPES:
            for save in numpy.savez, numpy.savez_compressed:
                path = index.path(".npz")
                arrays = {"x": values(rng, kind, shape),
                          "folder/y": numpy.asfortranarray(
                              values(rng, "<i2", shape)),
                          "\u00e4": values(rng, "<f4", (40, 5))}
                save(path, *[values(rng, kind, (3,))] * (index.files % 3),
                     **arrays)
                with numpy.load(path) as back:
                    for name in back.files:
                        index.expect(path, name, back[name])
    # files of zipfile
    for k in range(60):
        path = index.path(".npz")
        out = Pipe(path) if k % 3 == 0 else path
        method = zipfile.ZIP_STORED if k % 4 == 0 else zipfile.ZIP_DEFLATED
        arrays = {"a%d" % i: values(rng, KINDS[(k + i) % len(KINDS)],
                                    (1 + 50 * i, 2)) for i in range(1 + k % 4)}
        with zipfile.ZipFile(out, "w", method, compresslevel=k % 10) as z:
            for name, array in arrays.items():
                with z.open(name + ".npy", "w", force_zip64=k % 2 == 0) as to:
                    to.write(member(array))
            z.comment = b"a comment" * (k % 5)
        if k % 3 == 1:
            with zipfile.ZipFile(path, "a") as z:
                arrays["more"] = values(rng, "<f8", (5, 5))
                z.writestr("more.npy", member(arrays["more"]))
        if k % 3 == 0:
            out.close()
        for name, array in arrays.items():
            index.expect(path, name, array)
    index.close()
    print(index.files)


main()
