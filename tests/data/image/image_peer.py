"""Images written and read by Pillow and OpenCV, for tests/data/image/image_peer.c.

    image_peer.py make FOLDER   files of every kind, for each FILE also
                                FILE.raw with its pixels as read by a peer,
                                and FOLDER/list with one line per FILE:
                                FILE option type width height channels exact

`option` is the option that segengine needs: none, label, drop, apply or page2.
`type` is the type of the numbers in FILE.raw: u1, u2, i2 or f4, little endian.
`exact` is the largest allowed difference.
"""
import io
import os
import struct
import sys
import zlib

import numpy
from PIL import Image, ImageOps

try:
    import cv2
except ImportError:
    cv2 = None

folder = sys.argv[2]
listing = open(os.path.join(folder, "list"), "w")
rng = numpy.random.default_rng(7)
count = 0


def smooth(h, w, c, top=255):
    """Returns an image similar to a photograph: waves and a little noise."""
    y, x = numpy.mgrid[0:h, 0:w]
    planes = [numpy.sin(x / (5 + 3 * k)) * numpy.cos(y / (7 - k)) for k in range(c)]
    noise = rng.normal(0, 0.03, (h, w, c))
    picture = (numpy.stack(planes, -1) * 0.45 + 0.5 + noise) * top
    return picture.clip(0, top)


def put(name, write, pixels, option="none", exact=0):
    """Calls write(path) and stores the expected pixels: (h, w) or (h, w, c), or
    a function that reads an array from the path."""
    global count
    path = os.path.join(folder, name)
    write(path)
    if callable(pixels):
        pixels = pixels(path)
    if pixels.dtype == bool:
        pixels = pixels.astype("u1") * 255
    pixels = pixels.reshape(pixels.shape[0], pixels.shape[1], -1)
    kind = pixels.dtype.newbyteorder("<")
    with open(path + ".raw", "wb") as out:
        out.write(pixels.astype(kind).tobytes())
    h, w, c = pixels.shape
    print(name, option, kind.str[1:], w, h, c, exact, file=listing)
    count += 1


def pil(image, **options):
    return lambda path: image.save(path, **options)


def reread(mode=None):
    def read(path):
        with Image.open(path) as image:
            return numpy.array(image.convert(mode) if mode else image)
    return read


def numbers(dtype, shape, top):
    return rng.integers(0, top + 1, shape).astype(dtype)


def interlaced(pixels, depth, color):
    """Returns write(path) of a PNG in seven passes, which neither peer can write."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    def row(samples):
        if depth == 16:
            return samples.astype(">u2").tobytes()
        if depth == 8:
            return samples.astype("u1").tobytes()
        bits = numpy.unpackbits(samples.astype("u1")[:, None], axis=1)[:, 8 - depth:]
        return numpy.packbits(bits.ravel()).tobytes()

    h, w = pixels.shape[:2]
    rows = b""
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4),
                         (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y::dy, x::dx]
        if part.size:
            rows += b"".join(b"\0" + row(line.ravel()) for line in part)

    def write(path):
        with open(path, "wb") as out:
            out.write(b"\x89PNG\r\n\x1a\n"
                      + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, 1))
                      + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return write


# sides that are multiples of bytes, blocks of 8 and tiles, and sides that are not
SIDES = [(1, 1), (7, 5), (16, 16), (33, 21), (64, 48)]

for w, h in SIDES:
    tag = "%dx%d" % (w, h)
    grey, rgb = numbers("u1", (h, w), 255), numbers("u1", (h, w, 3), 255)
    wide = numbers("u2", (h, w), 65535)
    wide[0, 0] = 65535  # one value does not fit int16
    narrow = numbers("u2", (h, w), 30000)
    few = numbers("u1", (h, w), 9)
    # PNG
    for level in (0, 6, 9):
        put("g%d-%s.png" % (level, tag), pil(Image.fromarray(grey), compress_level=level), grey)
        put("c%d-%s.png" % (level, tag), pil(Image.fromarray(rgb), compress_level=level), rgb)
    put("w-%s.png" % tag, pil(Image.fromarray(wide)), wide)
    put("n-%s.png" % tag, pil(Image.fromarray(narrow)), narrow)
    put("b-%s.png" % tag, pil(Image.fromarray(grey > 99)), grey > 99)
    put("i8-%s.png" % tag, interlaced(grey, 8, 0), reread())
    put("i24-%s.png" % tag, interlaced(rgb, 8, 2), reread())
    # Pillow stores 16 bits in 32
    put("i16-%s.png" % tag, interlaced(wide, 16, 0), lambda p: reread()(p).astype("u2"))
    for depth in (1, 2, 4):
        put("i%d-%s.png" % (depth, tag), interlaced(grey >> (8 - depth), depth, 0), reread("L"))
    palette = Image.fromarray(few, mode="P")
    colors = numbers("u1", (256, 3), 255)
    palette.putpalette(colors.tobytes())
    for bits in (4, 8):
        put("p%d-%s.png" % (bits, tag), pil(palette, bits=bits), reread("RGB"))
        put("m%d-%s.png" % (bits, tag), pil(palette, bits=bits), few, "label")
    put("p-%s.bmp" % tag, pil(palette), reread("RGB"))
    put("m-%s.bmp" % tag, pil(palette), few, "label")
    rgba = numbers("u1", (h, w, 4), 255)
    put("a-%s.png" % tag, pil(Image.fromarray(rgba)), rgba[:, :, :3], "drop")
    la = numbers("u1", (h, w, 2), 255)
    put("la-%s.png" % tag, pil(Image.fromarray(la, mode="LA")), la[:, :, 0], "drop")
    # BMP
    put("g-%s.bmp" % tag, pil(Image.fromarray(grey)), grey)
    put("c-%s.bmp" % tag, pil(Image.fromarray(rgb)), rgb)
    put("b-%s.bmp" % tag, pil(Image.fromarray(grey > 99)), grey > 99)
    # TIFF
    for packing in (None, "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits"):
        short = (packing or "none")[-7:]
        put("g%s-%s.tif" % (short, tag), pil(Image.fromarray(grey), compression=packing), grey)
        put("c%s-%s.tif" % (short, tag), pil(Image.fromarray(rgb), compression=packing), rgb)
    real = rng.normal(size=(h, w)).astype("f4")
    put("f-%s.tif" % tag, pil(Image.fromarray(real)), real)
    put("w-%s.tif" % tag, pil(Image.fromarray(wide)), wide)
    put("a-%s.tif" % tag, pil(Image.fromarray(rgba)), rgba[:, :, :3], "drop")
    # JPEG
    for progressive in (False, True):
        for quality in (30, 95):
            kind = "pq"[progressive] + str(quality)
            options = dict(quality=quality, progressive=progressive)
            one = Image.fromarray(smooth(h, w, 1)[:, :, 0].astype("u1"))
            three = Image.fromarray(smooth(h, w, 3).astype("u1"))
            put("g%s-%s.jpg" % (kind, tag), pil(one, **options), reread())
            for sub in (0, 1, 2):
                put("c%s%d-%s.jpg" % (kind, sub, tag), pil(three, subsampling=sub, **options),
                    reread())
    if cv2 is None:
        continue

    def ocv(array, *options):
        return lambda path: cv2.imwrite(path, array, list(options))

    def bgr(path):
        """Reads with OpenCV, colors in the order of segengine."""
        array = cv2.imread(path, cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
        return array[:, :, ::-1] if array.ndim == 3 else array
    rgb16 = numbers("u2", (h, w, 3), 65535)
    put("cv-c16-%s.png" % tag, ocv(rgb16), bgr)
    put("cv-bit-%s.png" % tag, ocv((grey > 99).astype("u1") * 255, cv2.IMWRITE_PNG_BILEVEL, 1),
        (grey > 99))
    put("cv-c-%s.bmp" % tag, ocv(rgb), bgr)
    for number in (1, 5, 8, 32773, 32946):
        for name, array in (("g", grey), ("c", rgb), ("c16", rgb16), ("g16", wide)):
            put("cv-%s%d-%s.tif" % (name, number, tag),
                ocv(array, cv2.IMWRITE_TIFF_COMPRESSION, number), bgr)
    put("cv-f-%s.tif" % tag, ocv(rng.normal(size=(h, w, 3)).astype("f4"),
                                 cv2.IMWRITE_TIFF_COMPRESSION, 1), bgr)
    put("cv-%s.jpg" % tag, ocv(smooth(h, w, 3).astype("u1")), bgr)
    put("cv-restart-%s.jpg" % tag,
        ocv(smooth(h, w, 3).astype("u1"), cv2.IMWRITE_JPEG_RST_INTERVAL, 1), bgr)

# orientations, rotated by Pillow
for turned in range(1, 9):
    exif = Image.Exif()
    exif[274] = turned
    photo = Image.fromarray(smooth(40, 24, 3).astype("u1"))

    def upright(path):
        with Image.open(path) as image:
            return numpy.array(ImageOps.exif_transpose(image))
    put("held%d.jpg" % turned, pil(photo, exif=exif), upright, "apply")
    # for a TIFF, Pillow returns the orientation but does not rotate
    method = [None, 0, 3, 1, 5, 4, 6, 2][turned - 1]
    seen = photo if method is None else photo.transpose(method)
    put("held%d.tif" % turned, pil(photo, tiffinfo={274: turned}), numpy.array(seen), "apply")

# several pages
pages = [Image.fromarray(numbers("u1", (9, 8), 255)) for _ in range(3)]
buffer = io.BytesIO()
pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])


def paged(path):
    with open(path, "wb") as out:
        out.write(buffer.getvalue())


put("pages.tif", paged, numpy.array(pages[1]), "page2")
listing.close()
print(count)
