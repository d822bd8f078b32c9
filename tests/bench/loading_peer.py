"""The peer of loading.c: the same samples made in Python.

    loading_peer.py FOLDER    then on stdin lines "PEER THREADS SAMPLES"

The answer to each line is the time in seconds, 0 if the peer is not installed.
One thread: in this process. Two: two processes that were started before and
keep their samples, like workers of a PyTorch DataLoader without the transfer.
"""
import glob
import multiprocessing
import os
import sys
import time

import numpy

FOLDER = sys.argv[1]
PHOTOS = sorted(glob.glob(FOLDER + "/photos/*.jpg"))
SERIES = sorted(glob.glob(FOLDER + "/series/*"))
ARRAYS = [path.replace("/series/", "/array-") + ".npy" for path in SERIES]
BY = {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2}
HUE = 0.05
LEVELS = numpy.arange(256, dtype="f4")
draw = numpy.random.default_rng(1)
modules = {}
maps, ring = [], []


def factors():
    """Draws an order of the four parts of jitter, and a factor for each."""
    f = {name: draw.uniform(1 - by, 1 + by) for name, by in BY.items()}
    f["hue"] = draw.uniform(-HUE, HUE)
    return [(name, f[name]) for name in draw.permutation(list(f))]


def table(values):
    return numpy.clip(values, 0, 255).astype("u1")


def opencv(number):
    """Jitters bytes with tables of 256 entries: the fastest method known to us."""
    cv2 = modules["cv2"]
    x = cv2.cvtColor(cv2.imread(PHOTOS[number % len(PHOTOS)]),
                     cv2.COLOR_BGR2RGB)
    for name, f in factors():
        if name == "brightness":
            x = cv2.LUT(x, table(LEVELS * f))
        elif name == "contrast":
            mean = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY).mean()
            x = cv2.LUT(x, table(LEVELS * f + mean * (1 - f)))
        elif name == "saturation":
            gray = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)
            gray = cv2.cvtColor(gray, cv2.COLOR_GRAY2RGB)
            x = cv2.addWeighted(x, f, gray, 1 - f, 0)
        else:
            h, s, v = cv2.split(cv2.cvtColor(x, cv2.COLOR_RGB2HSV))
            h = cv2.LUT(h, numpy.mod(LEVELS + 180 * f, 180).astype("u1"))
            x = cv2.cvtColor(cv2.merge((h, s, v)), cv2.COLOR_HSV2RGB)
    return x.astype("f4")


def pillow(number):
    """Jitters like ColorJitter of torchvision for Pillow images."""
    image, enhance = modules["PIL.Image"], modules["PIL.ImageEnhance"]
    x = image.open(PHOTOS[number % len(PHOTOS)]).convert("RGB")
    for name, f in factors():
        if name == "brightness":
            x = enhance.Brightness(x).enhance(f)
        elif name == "contrast":
            x = enhance.Contrast(x).enhance(f)
        elif name == "saturation":
            x = enhance.Color(x).enhance(f)
        else:
            h, s, v = x.convert("HSV").split()
            turned = numpy.array(h) + numpy.uint8(int(f * 255) % 256)
            x = image.merge("HSV", (image.fromarray(turned), s, v))
            x = x.convert("RGB")
    return numpy.asarray(x, dtype="f4")


def pydicom(number):
    folder = SERIES[number % len(SERIES)]
    read = modules["pydicom"].dcmread
    slices = [read(folder + "/" + name) for name in os.listdir(folder)]
    cosines = numpy.array(slices[0].ImageOrientationPatient, dtype="f8")
    normal = numpy.cross(cosines[:3], cosines[3:])
    slices.sort(key=lambda s: numpy.dot(
        numpy.array(s.ImagePositionPatient, dtype="f8"), normal))
    x = numpy.stack([s.pixel_array for s in slices]).astype("f4")
    x = x * float(slices[0].get("RescaleSlope", 1))
    x += float(slices[0].get("RescaleIntercept", 0))
    return (x - x.mean()) / x.std()


def mapped(number):
    """Maps the files once, and copies to existing buffers: as many as in the
    loader of segengine, three batches of four."""
    if not maps:
        maps.extend(numpy.load(path, mmap_mode="r") for path in ARRAYS)
        ring.extend(numpy.zeros_like(maps[0]) for _ in range(12))
    out = ring[number % len(ring)]
    numpy.copyto(out, maps[number % len(maps)])
    return out


PEERS = {"opencv": (opencv, ["cv2"]),
         "pillow": (pillow, ["PIL.Image", "PIL.ImageEnhance"]),
         "pydicom": (pydicom, ["pydicom"]),
         "numpy": (mapped, ["pydicom"])}


def load(names):
    """Imports the modules; False if one is missing."""
    for name in names:
        try:
            __import__(name)
            modules[name] = sys.modules[name]
        except ImportError:
            return False
    return True


def make(job):
    """Makes `count` samples from `first` on; returns their bytes, which forces the work."""
    peer, first, count = job
    return sum(PEERS[peer][0](k).nbytes for k in range(first, first + count))


def main():
    there = {peer for peer, (_, needs) in PEERS.items() if load(needs)}
    if "cv2" in modules:
        modules["cv2"].setNumThreads(1)
    if "numpy" in there:
        for k, path in enumerate(ARRAYS):
            numpy.save(path, pydicom(k))
    pool = multiprocessing.Pool(2)
    for peer in there:  # loads everything on first use
        pool.map(make, [(peer, 0, 1)] * 8, 1)
        make((peer, 0, 1))
    if "numpy" in there:
        make(("numpy", 0, 64))
    for line in sys.stdin:
        peer, threads, count = line.split()
        count, began = int(count), time.perf_counter()
        if peer not in there:
            print(0, flush=True)
            continue
        if threads == "1":
            make((peer, 0, count))
        else:
            half = count // 2
            pool.map(make, [(peer, 0, half), (peer, half, count - half)], 1)
        print(time.perf_counter() - began, flush=True)


main()
