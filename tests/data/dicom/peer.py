"""DICOM as pydicom writes and reads it, for tests/data/dicom/peer.c.

    peer.py make FOLDER        cases of many kinds: FOLDER/NAME/ with the
                                     files, FOLDER/NAME.txt with the voxels
    peer.py show LIST          for each line "FILE OUT": what pydicom
                                     reads of FILE, into OUT
    peer.py seg FILE           frames, segments and sums of a SEG
    peer.py fractions FILE     type and frames of a fractional SEG
    peer.py names FILE         patient and segments of a SEG, in UTF-8

A text is: kind, extents w h d, the first three rows of the affine, voxels.
"""
import os
import sys
import warnings

import numpy
import pydicom
import pydicom.data
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import RLELossless

warnings.simplefilter("ignore")
ROOT = "1.2.826.0.1.3680043.8.498."
SYNTAX = {"implicit": "1.2.840.10008.1.2", "explicit": "1.2.840.10008.1.2.1",
          "big": "1.2.840.10008.1.2.2", "deflated": "1.2.840.10008.1.2.1.99",
          "rle": str(RLELossless)}
rng = numpy.random.default_rng(11)
number = 0


def item(**fields):
    ds = Dataset()
    for name, value in fields.items():
        setattr(ds, name, value)
    return ds


def new(sop_class, series, syntax="explicit", modality="MR"):
    global number
    number += 1
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = sop_class
    meta.MediaStorageSOPInstanceUID = ROOT + "1.%d" % number
    meta.TransferSyntaxUID = SYNTAX["explicit" if syntax == "rle" else syntax]
    ds = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    ds.is_little_endian = syntax != "big"
    ds.is_implicit_VR = syntax == "implicit"
    ds.SOPClassUID = sop_class
    ds.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    ds.Modality = modality
    ds.PatientID = "PEER"
    ds.StudyInstanceUID = ROOT + "2"
    ds.SeriesInstanceUID = ROOT + "3.%d" % series
    ds.FrameOfReferenceUID = ROOT + "4"
    return ds


def put_pixels(ds, stored, bits, signed, inverted, big):
    ds.SamplesPerPixel = 1
    ds.PhotometricInterpretation = "MONOCHROME%d" % (2 - inverted)
    ds.Rows, ds.Columns = stored.shape[-2:]
    ds.BitsAllocated = 8 if bits <= 8 else 16 if bits <= 16 else 32
    ds.BitsStored, ds.HighBit = bits, bits - 1
    ds.PixelRepresentation = int(signed)
    kind = "%su%d" % (">" if big else "<", ds.BitsAllocated // 8)
    mask = (1 << bits) - 1
    data = (stored.astype("i8") & mask).astype(kind).tobytes()
    if big and ds.BitsAllocated == 8:
        # bytes that are stored as words (OW)
        data += b"\0" * (len(data) % 2)
    ds.PixelData = data + b"\0" * (len(data) % 2)
    ds["PixelData"].VR = "OB" if ds.BitsAllocated == 8 else "OW"


def write(ds, path, syntax):
    if syntax == "rle":
        ds.compress(RLELossless)
        ds.is_little_endian, ds.is_implicit_VR = True, False
    ds.save_as(path, write_like_original=False)


def turn():
    q = numpy.linalg.qr(rng.normal(size=(3, 3)))[0]
    q[:, 2] = numpy.cross(q[:, 0], q[:, 1])
    return q


def text(path, kind, affine, voxels):
    with open(path, "w") as out:
        print(kind, *voxels.shape[::-1], file=out)
        print(*("%.12g" % a for a in affine[:3].ravel()), file=out)
        print(*("%.9g" % v for v in voxels.astype("f4").ravel()), file=out)


def geometry(d):
    """A grid, and where its slices lie, as the texts of a file say it."""
    q, mm = turn(), numpy.array([0.75, 1.25, 2.5])
    q = numpy.round(q, 9)
    affine = numpy.eye(4)
    affine[:3, :3] = q * mm
    affine[:3, 3] = numpy.round(rng.uniform(-100, 100, 3), 4)
    places = [numpy.round(affine[:3, 3] + k * affine[:3, 2], 6)
              for k in range(d)]
    cosines = ["%.9f" % v for v in q[:, 0]] + ["%.9f" % v for v in q[:, 1]]
    return affine, places, cosines


def values(stored, bits, signed, inverted, slope, intercept):
    """inverted: MONOCHROME1, of a series whose values have no unit"""
    low = -(1 << bits - 1) if signed else 0
    high = low + (1 << bits) - 1
    v = low + high - stored if inverted else stored
    return (v.astype("f8") * slope + intercept).astype("f4")


def draw(shape, bits, signed):
    low = -(1 << bits - 1) if signed else 0
    stored = rng.integers(low, low + (1 << bits), shape)
    stored.ravel()[:2] = low, low + (1 << bits) - 1
    # runs, which RLE compresses
    stored[..., 1:3] = stored[..., :1]
    return stored


def make_series(folder, series):
    for bits in 8, 12, 16, 32:
        for signed in False, True:
            for inverted in False, True:
                for syntax in list(SYNTAX) * 2:
                    # pydicom compresses no other sizes
                    if syntax == "rle" and bits not in (8, 16):
                        continue
                    slopes = [(1, 0), (0.5, -7), (2, 1)][series % 3]
                    series += 1
                    # a rescale applies to the stored value, so no inversion
                    grey = slopes == (1, 0) and series % 4 != 0
                    name = "s%03d" % series
                    d = 3 + series % 2
                    stored = draw((d, 4, 5 + series % 2), bits, signed)
                    affine, places, cosines = geometry(d)
                    os.mkdir(os.path.join(folder, name))
                    parts = []
                    for k in rng.permutation(d):
                        # a slope per slice in one case of four
                        s, i = slopes
                        s += k if series % 4 == 0 else 0
                        ds = new("1.2.840.10008.5.1.4.1.1.4", series, syntax)
                        ds.ImagePositionPatient = ["%.6f" % v
                                                   for v in places[k]]
                        ds.ImageOrientationPatient = cosines
                        ds.PixelSpacing = ["1.25", "0.75"]
                        ds.SliceThickness = "2.5"
                        ds.RescaleIntercept, ds.RescaleSlope = str(i), str(s)
                        put_pixels(ds, stored[k], bits, signed, inverted,
                                   syntax == "big")
                        path = os.path.join(folder, name, "%d" % len(parts))
                        write(ds, path, syntax)
                        # check that pydicom reads the same values
                        seen = pydicom.dcmread(path).pixel_array
                        assert (seen.astype("i8") == stored[k]).all() or bits == 12
                        parts.append((k, values(stored[k], bits, signed,
                                                inverted and grey, s, i)))
                    parts.sort(key=lambda p: p[0])
                    text(os.path.join(folder, name + ".txt"), "image", affine,
                         numpy.stack([p[1] for p in parts]))
    return series


def plane(cosines, **more):
    return dict(PlaneOrientationSequence=[item(
        ImageOrientationPatient=cosines)], PixelMeasuresSequence=[item(
            PixelSpacing=["1.25", "0.75"], SliceThickness="2.5")], **more)


def make_enhanced(folder, series):
    for bits in 8, 16:
        for signed in False, True:
            for syntax in SYNTAX:
                series += 1
                name = "e%03d" % series
                stored = draw((5, 4, 6), bits, signed)
                affine, places, cosines = geometry(5)
                ds = new("1.2.840.10008.5.1.4.1.1.4.1", series, syntax)
                order = rng.permutation(5)
                ds.NumberOfFrames = 5
                ds.SharedFunctionalGroupsSequence = [item(**plane(cosines))]
                ds.PerFrameFunctionalGroupsSequence = [item(
                    PlanePositionSequence=[item(ImagePositionPatient=[
                        "%.6f" % v for v in places[k]])],
                    FrameContentSequence=[item(StackID="1")],
                    PixelValueTransformationSequence=[item(
                        RescaleIntercept="-4", RescaleSlope=str(1 + k / 2))])
                    for k in order]
                put_pixels(ds, stored[order], bits, signed, False,
                           syntax == "big")
                os.mkdir(os.path.join(folder, name))
                path = os.path.join(folder, name, "multi")
                write(ds, path, syntax)
                seen = pydicom.dcmread(path).pixel_array
                got = numpy.empty(stored.shape, "f4")
                for frame, k in enumerate(order):
                    got[k] = values(seen[frame], bits, signed, False,
                                    1 + k / 2, -4)
                text(os.path.join(folder, name + ".txt"), "image", affine, got)
    return series


def make_dose(folder, series):
    for bits in 16, 32:
        for syntax in "implicit", "explicit", "big":
            for absolute in False, True:
                series += 1
                name = "d%03d" % series
                stored = draw((4, 5, 3), bits, False)
                affine = numpy.diag([2.5, 3, 2, 1])
                affine[:3, 3] = -20, 11, -35.5
                ds = new("1.2.840.10008.5.1.4.1.1.481.2", series, syntax,
                         "RTDOSE")
                ds.ImagePositionPatient = ["-20", "11", "-35.5"]
                ds.ImageOrientationPatient = ["1", "0", "0", "0", "1", "0"]
                ds.PixelSpacing = ["3", "2.5"]
                ds.FrameIncrementPointer = 0x3004000C
                ds.DoseUnits, ds.DoseType = "GY", "PHYSICAL"
                ds.DoseSummationType, ds.DoseGridScaling = "PLAN", "1.5e-4"
                ds.NumberOfFrames = 4
                ds.GridFrameOffsetVector = [
                    str(2 * k + (-35.5 if absolute else 0)) for k in range(4)]
                put_pixels(ds, stored, bits, False, False, syntax == "big")
                os.mkdir(os.path.join(folder, name))
                path = os.path.join(folder, name, "dose")
                write(ds, path, syntax)
                back = pydicom.dcmread(path)
                seen = back.pixel_array * float(back.DoseGridScaling)
                text(os.path.join(folder, name + ".txt"), "dose", affine, seen)
    return series


def make_real(folder):
    """pydicom's own dose, whose units it says are relative, called Gy; and its
    structure set, which lacks a transfer syntax."""
    find = pydicom.data.get_testdata_file
    ds = pydicom.dcmread(find("rtstruct.dcm"), force=True)
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = SYNTAX["implicit"]
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID
    os.mkdir(os.path.join(folder, "r999"))
    ds.save_as(os.path.join(folder, "r999", "set"), write_like_original=False)
    with open(os.path.join(folder, "r999.txt"), "w") as out:
        print(len(ds.StructureSetROISequence), sum(
            len(roi.get("ContourSequence", []))
            for roi in ds.ROIContourSequence), file=out)
    ds = pydicom.dcmread(find("rtdose.dcm"))
    ds.DoseUnits = "GY"
    os.mkdir(os.path.join(folder, "d999"))
    ds.save_as(os.path.join(folder, "d999", "dose"))
    affine = numpy.eye(4)
    o = numpy.array(ds.ImageOrientationPatient, float)
    affine[:3, 0] = o[:3] * float(ds.PixelSpacing[1])
    affine[:3, 1] = o[3:] * float(ds.PixelSpacing[0])
    offsets = [float(v) for v in ds.GridFrameOffsetVector]
    affine[:3, 2] = numpy.cross(o[:3], o[3:]) * (offsets[1] - offsets[0])
    affine[:3, 3] = ds.ImagePositionPatient
    text(os.path.join(folder, "d999.txt"), "dose", affine,
         ds.pixel_array * float(ds.DoseGridScaling))


def inside(polygon, w, h):
    """Even-odd by crossings to the right of each centre, in numpy."""
    u, v = numpy.meshgrid(numpy.arange(w), numpy.arange(h))
    odd = numpy.zeros((h, w), bool)
    for (a, b), (c, d) in zip(polygon, numpy.roll(polygon, -1, 0)):
        if b == d:
            continue
        crosses = (b > v) != (d > v)
        odd ^= crosses & (u < (c - a) * (v - b) / (d - b) + a)
    return odd


def make_masks(folder, series):
    d, h, w = 4, 17, 19
    for n in range(24):
        series += 1
        name = "m%03d" % series
        affine, places, cosines = geometry(d)
        os.mkdir(os.path.join(folder, name))
        image = []
        for k in range(d):
            ds = new("1.2.840.10008.5.1.4.1.1.4", 1000 + series)
            ds.SeriesDescription = "image"
            ds.ImagePositionPatient = ["%.6f" % v for v in places[k]]
            ds.ImageOrientationPatient = cosines
            ds.PixelSpacing = ["1.25", "0.75"]
            put_pixels(ds, draw((h, w), 8, False), 8, False, False, False)
            write(ds, os.path.join(folder, name, "i%d" % k), "")
            image.append(ds)
        labels = numpy.zeros((d, h, w))
        if n % 3 == 0:
            make_contours(folder, name, series, affine, labels)
        else:
            make_seg(folder, name, series, places, cosines, labels, n % 3 == 1)
        text(os.path.join(folder, name + ".txt"), "mask", affine, labels)
    return series


def make_contours(folder, name, series, affine, labels):
    ds = new("1.2.840.10008.5.1.4.1.1.481.3", series, "explicit", "RTSTRUCT")
    ds.SeriesDescription = "mask"
    ds.StructureSetROISequence, ds.ROIContourSequence = [], []
    for roi in 1, 2:
        contours = []
        for k in range(labels.shape[0]):
            odd = numpy.zeros(labels.shape[1:], bool)
            for part in range(2):
                angle = numpy.linspace(0, 2 * numpy.pi, 23, endpoint=False)
                r = rng.uniform(2, 4.4, 23) / (1 + part)
                centre = numpy.array([5 + 9 * (roi - 1), 8]) \
                    + rng.uniform(-0.5, 0.5, 2)
                uv = centre + numpy.stack([numpy.cos(angle),
                                           numpy.sin(angle) * 1.7], 1) \
                    * r[:, None]
                odd ^= inside(uv, labels.shape[2], labels.shape[1])
                mm = affine[:3, 3] + uv[:, :1] * affine[:3, 0] \
                    + uv[:, 1:] * affine[:3, 1] + k * affine[:3, 2]
                contours.append(item(
                    ContourGeometricType="CLOSED_PLANAR",
                    NumberOfContourPoints=len(uv),
                    ContourData=["%.10g" % v for v in mm.ravel()]))
            labels[k][odd] = roi
        ds.StructureSetROISequence.append(item(
            ROINumber=roi, ROIName="roi%d" % roi,
            ReferencedFrameOfReferenceUID=ROOT + "4"))
        ds.ROIContourSequence.append(item(ReferencedROINumber=roi,
                                          ContourSequence=contours))
    write(ds, os.path.join(folder, name, "set"), "")


def make_seg(folder, name, series, places, cosines, labels, binary):
    d, h, w = labels.shape
    ds = new("1.2.840.10008.5.1.4.1.1.66.4", series, "explicit", "SEG")
    ds.SeriesDescription = "mask"
    ds.SegmentationType = "BINARY" if binary else "FRACTIONAL"
    ds.SegmentSequence = [item(SegmentNumber=n, SegmentLabel="s%d" % n)
                          for n in (1, 2)]
    labels[:] = rng.integers(0, 3, labels.shape)
    frames = [(n, k) for k in range(d) for n in (2, 1)]
    planes = numpy.stack([labels[k] == n for n, k in frames])
    put_pixels(ds, planes.astype("i4"), 8, False, False, False)
    if binary:
        ds.BitsAllocated, ds.BitsStored, ds.HighBit = 1, 1, 0
        data = numpy.packbits(planes.ravel(), bitorder="little").tobytes()
        ds.PixelData = data + b"\0" * (len(data) % 2)
        ds["PixelData"].VR = "OB"
    else:
        ds.MaximumFractionalValue = 200
        grey = numpy.where(planes, rng.integers(100, 201, planes.shape),
                           rng.integers(0, 100, planes.shape))
        put_pixels(ds, grey, 8, False, False, False)
    ds.NumberOfFrames = len(frames)
    ds.SharedFunctionalGroupsSequence = [item(**plane(cosines))]
    ds.PerFrameFunctionalGroupsSequence = [item(
        PlanePositionSequence=[item(ImagePositionPatient=[
            "%.6f" % v for v in places[k]])],
        SegmentIdentificationSequence=[item(ReferencedSegmentNumber=n)])
        for n, k in frames]
    write(ds, os.path.join(folder, name, "seg"), "")


def show(path, out):
    """What pydicom reads of a grey image of one frame; "cannot" if it cannot."""
    try:
        ds = pydicom.dcmread(path, force=True)
        seen = ds.pixel_array.astype("i8")
        assert seen.ndim == 2
    except Exception as e:  # any error of pydicom: no comparison
        with open(out, "w") as f:
            print("cannot", type(e).__name__, file=f)
        return
    bits, signed = ds.BitsStored, ds.PixelRepresentation
    seen &= (1 << bits) - 1
    if signed:
        seen = numpy.where(seen >> bits - 1, seen - (1 << bits), seen)
    slope = float(ds.get("RescaleSlope", 1))
    intercept = float(ds.get("RescaleIntercept", 0))
    inverted = (ds.PhotometricInterpretation[-1:] == "1" and slope == 1
                and intercept == 0 and ds.get("Modality") != "CT")
    v = values(seen, bits, signed, inverted, slope, intercept)
    text(out, "image", numpy.eye(4), v[None])


def show_seg(path, gap):
    ds = pydicom.dcmread(path)
    if gap:
        print(ds.SegmentationType, ds.SegmentationFractionalType,
              ds.MaximumFractionalValue, ds.NumberOfFrames)
    else:
        print(len(ds.SegmentSequence), ds.NumberOfFrames)
    bits = ds.pixel_array.reshape(ds.NumberOfFrames, ds.Rows, ds.Columns)
    for frame, group in zip(bits, ds.PerFrameFunctionalGroupsSequence):
        n = group.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        z = group.PlanePositionSequence[0].ImagePositionPatient
        print(n, "%.6f %.6f %.6f" % tuple(z), gap.join(
            "%d" % b for b in frame.ravel()))


if sys.argv[1] == "make":
    count = make_series(sys.argv[2], 0)
    count = make_enhanced(sys.argv[2], count)
    count = make_dose(sys.argv[2], count)
    make_masks(sys.argv[2], count)
    make_real(sys.argv[2])
    print(number, "files")
elif sys.argv[1] == "show":
    for line in open(sys.argv[2]):
        show(*line.rstrip("\n").split("\t"))
elif sys.argv[1] == "names":
    ds = pydicom.dcmread(sys.argv[2])
    for name in [ds.PatientName] + [s.SegmentLabel for s in
                                    ds.SegmentSequence]:
        sys.stdout.buffer.write(("%s\n" % name).encode("utf-8"))
else:
    show_seg(sys.argv[2], " " if sys.argv[1] == "fractions" else "")
