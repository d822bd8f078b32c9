"""Dose and DVH scores of synthetic predictions for OpenKBP patients, for
tests/lua/evaluate/openkbp_score.lua: from the CSV files alone, by the definitions of the
challenge (Babier and others, Medical Physics 2021).

    openkbp_score.py FOLDER ...

The prediction is 0.9 dose + 1.5 where dose is possible. Prints a line per patient:
name, dose score, sum and number of the DVH differences; then both scores.
"""
import os
import sys

import numpy
import pandas

EDGE = 128
ORGANS = ["Brainstem", "SpinalCord", "RightParotid", "LeftParotid",
          "Esophagus", "Larynx", "Mandible"]
TARGETS = ["PTV56", "PTV63", "PTV70"]


def dense(folder, name):
    """Returns the grid of a file, or None if the patient does not have it."""
    path = f"{folder}/{name}.csv"
    if not os.path.exists(path):
        return None
    table = pandas.read_csv(path, index_col=0)
    out = numpy.zeros(EDGE ** 3)
    out[table.index] = 1 if table["data"].isnull().all() else table["data"]
    return out


def points(dose, inside, voxel, target):
    roi = dose[inside > 0]
    if target:
        return numpy.percentile(roi, [1, 5, 99])
    tenth = numpy.maximum(1, numpy.round(100 / voxel))
    return numpy.array([numpy.percentile(roi, 100 - tenth / len(roi) * 100), roi.mean()])


scores, total, count = [], 0.0, 0
for folder in sys.argv[1:]:
    possible = dense(folder, "possible_dose_mask")
    dose = dense(folder, "dose").astype("f4").astype("f8")
    voxel = numpy.prod(numpy.loadtxt(f"{folder}/voxel_dimensions.csv"))
    predicted = possible * (0.9 * dose + 1.5)
    score = numpy.abs(predicted - dose).sum() / possible.sum()
    differences = []
    for name in ORGANS + TARGETS:
        inside = dense(folder, name)
        if inside is not None:
            differences += list(numpy.abs(points(predicted, inside, voxel, name in TARGETS)
                                          - points(dose, inside, voxel, name in TARGETS)))
    scores.append(score)
    total, count = total + sum(differences), count + len(differences)
    print(os.path.basename(folder), repr(score), repr(sum(differences)), len(differences))
print("all", repr(float(numpy.mean(scores))), repr(total / count), count)
