#!/usr/bin/env python3
"""Prints components_golden.h: connected components and holes by scipy.ndimage.

    python3 tests/golden/components_golden.py > tests/golden/components_golden.h

Blocks of random voxels of different density; for each block and for 6 and 26
neighbours the number of components, their sizes in the order of their first voxels,
a hash of the labels, and the number of voxels of binary_fill_holes."""
import numpy as np
from scipy import ndimage

CASES = [(7, 6, 5, 30), (7, 6, 5, 55), (12, 9, 1, 50), (1, 1, 9, 50), (16, 12, 10, 20),
         (16, 12, 10, 35), (16, 12, 10, 62), (9, 1, 8, 45)]
SIX = ndimage.generate_binary_structure(3, 1)
ALL = ndimage.generate_binary_structure(3, 3)


def block(index, w, h, d, percent):
    """The voxels of the test: a linear congruential generator."""
    seed, out = 1000 + index, []
    for _ in range(w * h * d):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        out.append((seed >> 16) % 100 < percent)
    return np.array(out).reshape(d, h, w)


def renumber(found, count):
    """Renumbers labels in the order of their first voxels, from 0; -1 outside."""
    flat, number, out = found.ravel(), {}, []
    for v in flat:
        if v and v not in number:
            number[v] = len(number)
        out.append(number[v] if v else -1)
    assert len(number) == count
    return out


def fnv(values):
    h = 0xCBF29CE484222325
    for v in values:
        h = ((h ^ (v & 0xFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    print("/* made by components_golden.py: do not edit */")
    print("static const struct {")
    print("    int32_t n[3];\n    int percent, connect, pieces;\n    int64_t largest;")
    print("    uint64_t hash;\n    int64_t filled;\n} golden[] = {")
    for index, (w, h, d, percent) in enumerate(CASES):
        x = block(index, w, h, d, percent)
        for connect, shape, other in ((6, SIX, ALL), (26, ALL, SIX)):
            found, count = ndimage.label(x, shape)
            numbers = renumber(found, count)
            sizes = np.bincount([v for v in numbers if v >= 0], minlength=1)
            # an axis of one voxel has no faces: find holes in the 2-D image
            axes = tuple(i for i, n in enumerate(x.shape) if n == 1)
            flat = np.squeeze(x, axes)
            near = ndimage.generate_binary_structure(flat.ndim, 1 if other is SIX else flat.ndim)
            holes = int(ndimage.binary_fill_holes(flat, near).sum() - flat.sum())
            print("    {{%d, %d, %d}, %d, %d, %d, %d, 0x%xu, %d}," % (
                w, h, d, percent, connect, count, sizes.max(), fnv(numbers), holes))
    print("};")


main()
