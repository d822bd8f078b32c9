#!/usr/bin/env python3
"""measure_golden.py -- the numbers of measure_golden.h, computed by numpy and scipy.

    python3 tests/golden/measure_golden.py > tests/golden/measure_golden.h

Only needed to make the header again; the tests read the header. Masks and doses
are closed formulas of the index in whole numbers, so that Python and the tests
compute the same values. Made with numpy 1.24 and scipy 1.10.
"""

import numpy as np
from scipy import ndimage, stats

SHAPE = (9, 20, 17)  # d, h, w
MM = (2.5, 0.7, 1.3)  # along d, h, w


def index(shape):
    return np.meshgrid(*[np.arange(n) for n in shape], indexing="ij")


def ellipsoid(shape, centre, radius):
    """9 * 16 * 25 is a multiple of all squared radii, so all terms are integers."""
    d, h, w = index(shape)
    x = [(v - c) ** 2 * 3600 // r**2 for v, c, r in zip((d, h, w), centre, radius)]
    return sum(x) <= 3600


def speckle(shape, a, b, below):
    d, h, w = index(shape)
    i = (d * shape[1] + h) * shape[2] + w
    return (i * a) % b < below


def masks():
    a = ellipsoid(SHAPE, (4, 9, 8), (3, 6, 5))
    b = ellipsoid(SHAPE, (5, 11, 7), (3, 5, 6)) | speckle(SHAPE, 389, 1009, 3)
    corner = ellipsoid(SHAPE, (0, 0, 0), (4, 6, 5))
    return a, b, corner


def edges(mask):
    """Voxels of the mask with a face neighbour outside the mask."""
    return mask & ~ndimage.binary_erosion(mask, ndimage.generate_binary_structure(3, 1))


def surface(a, b, mm, tolerance):
    ea, eb = edges(a), edges(b)
    ab = ndimage.distance_transform_edt(~eb, sampling=mm)[ea]
    ba = ndimage.distance_transform_edt(~ea, sampling=mm)[eb]
    both = np.hstack([ab, ba])
    return [
        both.max(),
        max(np.percentile(ab, 95), np.percentile(ba, 95)),
        np.percentile(both, 95),
        ab.mean(),
        ba.mean(),
        both.mean(),
        (both <= tolerance).mean(),
    ]


def roc(score, truth):
    """Area by ranks: U of Mann and Whitney over the number of pairs."""
    rank = stats.rankdata(score)
    n1, n0 = truth.sum(), (~truth).sum()
    return (rank[truth].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)


def dvh(dose, inside, mm):
    """The dose-volume metrics of a structure in the OpenKBP challenge."""
    roi = dose[inside]
    tenth = np.maximum(1, np.round(100 / np.prod(mm)))
    share = 100 - tenth / len(roi) * 100
    return [
        np.percentile(roi, max(0, share)),
        roi.mean(),
        np.percentile(roi, 1),
        np.percentile(roi, 5),
        np.percentile(roi, 99),
    ]


def show(name, values):
    print(f"static const double golden_{name}[{len(values)}] = {{")
    for v in values:
        text = f"{float(v):.17g}"
        print(f"    {text if '.' in text or 'e' in text else text + '.0'},")
    print("};\n")


def main():
    print("/* measure_golden.h -- numbers of numpy and scipy, made by")
    print(" * measure_golden.py. */")
    print("#ifndef SEG_MEASURE_GOLDEN_H\n#define SEG_MEASURE_GOLDEN_H")
    print("// clang-format off\n")
    a, b, corner = masks()
    d, h, w = index(SHAPE)
    i = (d * SHAPE[1] + h) * SHAPE[2] + w
    show("voxels", [a.sum(), b.sum(), corner.sum()])
    sums = []
    for mask in (a, b, corner):
        square = ndimage.distance_transform_edt(~mask, sampling=MM) ** 2
        sums += [square.sum(), (square * ((i * 7) % 31)).sum(), square.max()]
    show("distance", sums)
    show("surface_ab", surface(a, b, MM, 1.5))
    show("surface_a_corner", surface(a, corner, MM, 1.5))
    score = ((i * 389) % 257).astype(np.float32) / 256 - 0.25
    show("roc", [roc(score.ravel(), b.ravel()), roc((score + a).ravel(), b.ravel())])
    dose = (((i * 241) % 1021) / 16).astype(np.float32).astype(np.float64)
    show("dvh", dvh(dose, a, MM) + dvh(dose, b, (0.9, 0.8, 0.7)) + dvh(dose, corner, (5, 5, 4)))
    print("// clang-format on\n#endif")


if __name__ == "__main__":
    main()
