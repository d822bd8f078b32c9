"""MATLAB files for tests/data/array_peer.c: mat_peer.py FOLDER

Files written by SciPy. Because SciPy writes one byte order and never stores a
class in a narrower type, also files assembled here; SciPy must read the same
numbers from them before segengine does.
"""
import glob
import os
import shutil
import struct
import sys
import zlib

import numpy
import scipy.io

from array_index import Index, values

KINDS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
MX = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12,
      "u4": 13, "i8": 14, "u8": 15}
MI = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9,
      "i8": 12, "u8": 13}
SHAPES = [(1, 1), (1, 7), (7, 1), (3, 4), (2, 3, 4), (2, 1, 3, 2), (1, 2, 400)]


def element(order, kind, data):
    """Returns a tag and its data, as a small element if they fit."""
    if 0 < len(data) <= 4:
        head = struct.pack(order + "I", len(data) << 16 | kind)
        return head + data.ljust(4, b"\0")
    return (struct.pack(order + "II", kind, len(data)) + data
            + b"\0" * (-len(data) % 8))


def matrix(order, name, array, kind, stored, logical, packed):
    numbers = array.astype(order + stored).tobytes(order="F")
    body = (struct.pack(order + "IIII", 6, 8, MX[kind] | logical << 9, 0)
            + element(order, 5, struct.pack(order + "%di" % array.ndim,
                                            *array.shape))
            + element(order, 1, name.encode())
            + element(order, MI[stored], numbers))
    whole = struct.pack(order + "II", 14, len(body)) + body
    if not packed:
        return whole
    data = zlib.compress(whole, 6)
    return struct.pack(order + "II", 15, len(data)) + data


def header(order):
    text = b"MATLAB 5.0 MAT-file, made for tests".ljust(116)
    return text + b"\0" * 8 + struct.pack(order + "HH", 0x0100, 0x4d49)


def equal(a, b):
    return a.shape == b.shape and numpy.array_equal(
        a.astype("f8"), b.astype("f8"), equal_nan=a.dtype.kind == "f")


def by_hand(index, rng):
    for order in "<>":
        for kind in KINDS:
            for shape in SHAPES:
                stored = kind
                if index.files % 3 == 0 and kind in ("f8", "i4", "i2", "u4"):
                    stored = "u1"
                array = values(rng, stored, shape)
                logical = int(index.files % 5 == 0 and stored == "u1")
                if logical:
                    array = array % 2
                path = index.path(".mat")
                other = values(rng, "i2", (2, 2))
                with open(path, "wb") as out:
                    out.write(header(order) + matrix(
                        order, "x", array, kind, stored, logical,
                        index.files % 2) + matrix(
                        order, "another_one", other, "i2", "i2", 0, 0))
                back = scipy.io.loadmat(path)
                assert equal(back["x"], array), path
                index.expect(path, "x", array)
                index.expect(path, "another_one", other)


def by_scipy(index, rng):
    for kind in KINDS + ["b1"]:
        for shape in SHAPES:
            path = index.path(".mat")
            arrays = {"Pose_Para": values(rng, kind, shape),
                      "pt2d": values(rng, "f8", (2, 21))}
            others = {"words": "text", "box": {"a": 1, "b": [1, 2]},
                      "z": numpy.array([1 + 2j]),
                      "cells": numpy.array([1, "two"], dtype=object)}
            scipy.io.savemat(path, {**arrays, **others},
                             do_compression=index.files % 2 == 0)
            for name, array in arrays.items():
                index.expect(path, name, array)


def by_matlab(index):
    """Files written by MATLAB on several systems: the test files of SciPy."""
    own = os.path.join(os.path.dirname(scipy.io.__file__), "matlab", "tests",
                       "data", "*.mat")
    for real in sorted(glob.glob(own)):
        with open(real, "rb") as head:
            if not head.read(128).startswith(b"MATLAB 5.0"):
                continue
        try:
            arrays = scipy.io.loadmat(real)
        except Exception:  # files that are damaged on purpose
            continue
        numbers = {name: a for name, a in arrays.items()
                   if name[0] != "_" and isinstance(a, numpy.ndarray)
                   and a.dtype.kind in "biuf" and a.size}
        if not numbers:
            continue
        path = index.path(".mat")
        shutil.copy(real, path)
        for name, array in numbers.items():
            index.expect(path, name, array)


def main():
    index = Index(sys.argv[1])
    rng = numpy.random.default_rng(3)
    by_hand(index, rng)
    by_scipy(index, rng)
    by_matlab(index)
    index.close()
    print(index.files)


main()
