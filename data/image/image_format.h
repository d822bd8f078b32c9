/* image_format.h -- what the four image formats have in common.
 *
 * Each has two functions. NAME_look walks the file, checks everything that can
 * be checked without decoding, and says what an array of its pixels needs;
 * NAME_pixels fills that array. Between the two the caller has compared the
 * extents with its limits and found that the file can hold them. */
#ifndef SEG_DATA_IMAGE_IMAGE_FORMAT_H
#define SEG_DATA_IMAGE_IMAGE_FORMAT_H
#include "data/format/number.h"
#include "data/image/image.h"

/* What look found and pixels needs again; byte numbers count from the start of
 * the file. */
typedef struct PngLayout {
    int color;              /* type: 0, 2, 3, 4 or 6 */
    bool interlaced;        /* Adam7 */
    const uint8_t *palette; /* colors x 3 bytes; NULL: none */
    int colors;
    size_t first_idat, idat_bytes; /* of the first one; of all, packed */
} PngLayout;

typedef struct BmpLayout {
    size_t begin, row_bytes; /* of the lowest or topmost row */
    bool top_down;
    const uint8_t *palette; /* colors x 4 bytes, blue first */
    int colors;
} BmpLayout;

typedef struct JpegLayout {
    size_t coefficients; /* bytes of all that libjpeg keeps of a picture before
                          * its first row comes; 0: it comes row by row */
} JpegLayout;

typedef struct TiffLayout {
    bool big;               /* endian */
    int samples;            /* a pixel, alpha and all */
    int compression;        /* 1, 5, 8, 32773 or 32946 */
    int predictor;          /* 1 to 3 */
    bool apart;             /* each sample in a plane of its own */
    bool tiled, white_zero; /* white is 0 */
    uint32_t piece_w;       /* pixels of a strip or tile */
    uint32_t piece_h;       /* rows of it; the last strip may have fewer */
    uint32_t across;        /* pieces in a row of them */
    uint32_t per_plane;     /* in one plane */
    uint32_t pieces;        /* in all planes together */
    size_t offsets, counts; /* where the two arrays stand */
    int offset_bytes, count_bytes; /* of one number in them */
} TiffLayout;

typedef struct ImageFile {
    const uint8_t *bytes;
    size_t size;
    ImageOptions options; /* with the limits filled in */
    ImageInfo info;
    int xmp_orientation; /* 0: none; counts where no Exif block says one */
    int texts;           /* of a PNG that were unpacked: a few at most */
    union {
        PngLayout png;
        JpegLayout jpeg;
        BmpLayout bmp;
        TiffLayout tiff;
    } of;
} ImageFile;

/* `out` takes h rows of w pixels of info.channels samples: bytes up to 8 bits,
 * else 16-bit integers or floats of this machine. */
typedef bool ImageLook(ImageFile *f);
typedef bool ImagePixels(const ImageFile *f, void *out);
ImageLook png_look, jpeg_look, bmp_look, tiff_look;
ImagePixels png_pixels, jpeg_pixels, bmp_pixels, tiff_pixels;

/* Fails (ERR_DATA) where the IDAT chunks of a PNG are too small for its rows:
 * deflate packs at most GZIP_MOST bytes into one. */
bool png_holds_rows(const ImageFile *f);

/* Strip or tile i of a TIFF, as the file says it. */
typedef struct TiffPiece {
    uint32_t at, bytes; /* packed */
    uint32_t rows;      /* of pixels; fewer in the last strip of a plane */
} TiffPiece;
TiffPiece tiff_piece(const ImageFile *f, uint32_t i);

/* Width, height and channels are within the limits, and not 0. */
bool image_extents(const ImageFile *f);

/* `count` bytes lie behind the image, which ends at byte `end`. */
bool image_trailing(const ImageFile *f, size_t end);

/* The page that is wanted is one of those that the file has. */
bool image_page(const ImageFile *f);

/* Alpha is there: an error unless it is to be dropped. */
bool image_alpha(const ImageFile *f);

/* Take over the orientation from an Exif block (a TIFF without pixels); one
 * that says two things, or nothing readable, is an error. */
bool exif_orientation(ImageFile *f, const uint8_t *block, size_t size);
/* And from its number. */
bool image_orientation(ImageFile *f, int value);
/* Take down the orientation of an XMP packet, tiff:Orientation (XMP
 * specification, part 2, 3.4). Viewers follow it where there is no other: see
 * image_settle_xmp. */
void xmp_orientation(ImageFile *f, const uint8_t *text, size_t size);
/* After the whole file was walked: that of XMP, where nothing else said one. */
bool image_settle_xmp(ImageFile *f);

/* A text chunk of a PNG (tEXt, zTXt, iTXt): of an XMP packet, and of Exif and
 * XMP as ImageMagick keeps them ("Raw profile type exif", hexadecimal), the
 * orientation. Other texts are passed over. */
bool png_text(ImageFile *f, const char *type, const uint8_t *data,
              size_t bytes);
#endif
