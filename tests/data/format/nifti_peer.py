"""NIfTI files as read by nibabel, for tests/data/format/nifti_write.c.

    nifti_peer.py show FILE     shape, codes, units, spacing, affine, voxels
    nifti_peer.py make FOLDER   files of many kinds, each with FILE.txt as shown
"""
import os
import shutil
import sys

import nibabel
import numpy

OWN = ["anatomical.nii", "reoriented_anat_moved.nii",
       "resampled_anat_moved.nii", "standard.nii.gz"]


def show(path, out):
    image = nibabel.load(path)
    header = image.header
    print(*image.shape, file=out)
    print(int(header["qform_code"]), int(header["sform_code"]),
          int(header["xyzt_units"]), header.get_data_dtype().str, file=out)
    print(*("%.9g" % z for z in header.get_zooms()[:3]), file=out)
    print(*("%.9g" % a for a in image.affine[:3].ravel()), file=out)
    values = numpy.asarray(image.get_fdata()).ravel(order="F")
    print(*("%.17g" % v for v in values), file=out)


def make(folder):
    rng = numpy.random.default_rng(1)
    turn = numpy.linalg.qr(rng.normal(size=(3, 3)))[0]
    kinds = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    number = 0
    classes = (nibabel.Nifti1Image, nibabel.Nifti2Image, nibabel.Nifti1Pair,
               nibabel.Nifti2Pair)
    slopes = [(0.5, -3), (2, 1), (0.25, 0), (1, -7)]
    for kind in kinds:
        for endian in "<>":
            for cls in classes * 3:
                number += 1
                shape = (4, 3, 5, 1)[:3 + number % 2]
                # the range of the type, limited to whole numbers of a double
                info = numpy.iinfo(kind if kind[0] != "f" else "i2")
                data = rng.integers(max(info.min, -2**53),
                                    min(info.max, 2**53), shape)
                affine = numpy.eye(4)
                affine[:3, :3] = turn * [0.75, 1.25, 3]
                if number % 3 == 0:
                    affine[:3, 0] *= -1
                affine[:3, 3] = [-12.5, 7.25, 40]
                header = cls.header_class(endianness=endian)
                header.set_data_dtype(endian + kind)
                image = cls(data.astype(kind), affine, header)
                image.set_sform(affine, code=number // 2 % 2 * 2)
                image.set_qform(affine, code=1)
                if number % 5 < 2 and kind != "f4":
                    image.header.set_slope_inter(*slopes[number // 5 % 4])
                image.header.set_xyzt_units("mm", "sec")
                end = ".hdr" if issubclass(cls, nibabel.Nifti1Pair) else ".nii"
                if number // 4 % 2:
                    end += ".gz"
                path = os.path.join(folder, "peer%03d%s" % (number, end))
                nibabel.save(image, path)
                with open(path + ".txt", "w") as out:
                    show(path, out)
    # and files of nibabel, from real scanners and other programs
    own = os.path.join(os.path.dirname(nibabel.__file__), "tests", "data")
    for name in OWN:
        if os.path.exists(os.path.join(own, name)):
            path = os.path.join(folder, name)
            shutil.copy(os.path.join(own, name), path)
            with open(path + ".txt", "w") as out:
                show(path, out)


if sys.argv[1] == "show":
    show(sys.argv[2], sys.stdout)
else:
    make(sys.argv[2])
