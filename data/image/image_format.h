/* image_format.h -- the interface of the four image formats.
 *
 * Each has two functions. NAME_look parses the file, checks everything that can
 * be checked without decoding, and returns the size of an array of its pixels;
 * NAME_pixels fills that array. Between the two calls the caller compares the
 * extents with its limits and with the size of the file. */
#ifndef SEG_DATA_IMAGE_IMAGE_FORMAT_H
#define SEG_DATA_IMAGE_IMAGE_FORMAT_H
#include "data/format/number.h"
#include "data/image/image.h"

/* Results of NAME_look for NAME_pixels; offsets count from the start of the
 * file. */
typedef struct PngLayout {
    int color;              /* type: 0, 2, 3, 4 or 6 */
    bool interlaced;        /* Adam7 */
    const uint8_t *palette; /* colors x 3 bytes; NULL: none */
    int colors;
    size_t first_idat, idat_bytes; /* of the first one; of all, compressed */
} PngLayout;

typedef struct BmpLayout {
    size_t begin, row_bytes; /* of the first stored row, the lowest or
                              * topmost */
    bool top_down;
    const uint8_t *palette; /* colors x 4 bytes, blue first */
    int colors;
} BmpLayout;

typedef struct JpegLayout {
    size_t coefficients; /* bytes of all coefficients that libjpeg buffers
                          * before the first row; 0: it decodes row by row */
} JpegLayout;

typedef struct TiffLayout {
    bool big;                      /* endian */
    int samples;                   /* per pixel, alpha included */
    int compression;               /* 1, 5, 8, 32773 or 32946 */
    int predictor;                 /* 1 to 3 */
    bool planar;                   /* each sample in a plane of its own
                                    * (PlanarConfiguration 2) */
    bool tiled, white_zero;        /* white is 0 */
    uint32_t piece_w;              /* pixels of a strip or tile */
    uint32_t piece_h;              /* rows; the last strip may have fewer */
    uint32_t across;               /* pieces per row of pieces */
    uint32_t per_plane;            /* in one plane */
    uint32_t pieces;               /* in all planes together */
    size_t offsets, counts;        /* offsets of the two arrays */
    int offset_bytes, count_bytes; /* size of one number in these arrays */
} TiffLayout;

typedef struct ImageFile {
    const uint8_t *bytes;
    size_t size;
    ImageOptions options; /* with default limits filled in */
    ImageInfo info;
    int xmp_orientation; /* 0: none; used if there is no Exif block with an
                          * orientation */
    int texts;           /* text chunks of a PNG that were inflated: limited in
                          * number */
    union {
        PngLayout png;
        JpegLayout jpeg;
        BmpLayout bmp;
        TiffLayout tiff;
    } of;
} ImageFile;

/* `out` receives h rows of w pixels of info.channels samples: bytes up to 8
 * bits, else 16-bit integers or floats in native byte order. */
typedef bool ImageLook(ImageFile *f);
typedef bool ImagePixels(const ImageFile *f, void *out);
ImageLook png_look, jpeg_look, bmp_look, tiff_look;
ImagePixels png_pixels, jpeg_pixels, bmp_pixels, tiff_pixels;

/* Fails (ERR_DATA) if the IDAT chunks of a PNG are too small for its rows: one
 * byte of deflate expands to at most GZIP_MOST bytes. */
bool png_holds_rows(const ImageFile *f);

/* Location of strip or tile i of a TIFF. */
typedef struct TiffPiece {
    uint32_t at, bytes; /* compressed */
    uint32_t rows;      /* of pixels; fewer in the last strip of a plane */
} TiffPiece;
TiffPiece tiff_piece(const ImageFile *f, uint32_t i);

/* Checks that width, height and channels are within the limits, and not 0. */
bool image_extents(const ImageFile *f);

/* Checks the bytes after the image, which ends at byte `end`. */
bool image_trailing(const ImageFile *f, size_t end);

/* Checks that the file has the requested page. */
bool image_page(const ImageFile *f);

/* Fails on alpha unless it is to be dropped. */
bool image_alpha(const ImageFile *f);

/* Reads the orientation from an Exif block (a TIFF without pixels); a
 * contradictory or unreadable block is an error. */
bool exif_orientation(ImageFile *f, const uint8_t *block, size_t size);
/* The same from the value. */
bool image_orientation(ImageFile *f, int value);
/* Stores the orientation of an XMP packet, tiff:Orientation (XMP specification,
 * part 2, 3.4). Viewers use it if there is no other: see image_settle_xmp. */
void xmp_orientation(ImageFile *f, const uint8_t *text, size_t size);
/* Called at the end of the file: uses the orientation of XMP if no other is
 * present. */
bool image_settle_xmp(ImageFile *f);

/* Reads a text chunk of a PNG (tEXt, zTXt, iTXt): the orientation of an XMP
 * packet, and of Exif and XMP in the encoding of ImageMagick ("Raw profile type
 * exif", hexadecimal). Other texts are skipped. */
bool png_text(ImageFile *f, const char *type, const uint8_t *data,
              size_t bytes);
#endif
