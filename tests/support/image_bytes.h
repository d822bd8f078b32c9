/* image_bytes.h -- image files for tests, built byte by byte.
 *
 * PNG, BMP and TIFF are built here without the tables of the reader; JPEG comes
 * from libjpeg. A defect is one change to a valid file. */
#ifndef SEG_TESTS_SUPPORT_IMAGE_BYTES_H
#define SEG_TESTS_SUPPORT_IMAGE_BYTES_H
#include "data/image/image.h"

enum { IMAGE_BYTES_ROOM = 1 << 18 };

/* A file being made; zero: empty. */
typedef struct ImageBytes {
    uint8_t bytes[IMAGE_BYTES_ROOM];
    size_t size;
} ImageBytes;

void image_bytes_add(ImageBytes *f, const void *bytes, size_t count);
void image_bytes_cut(ImageBytes *f, size_t at, size_t count);
void image_bytes_insert(ImageBytes *f, size_t at, const void *bytes,
                        size_t count);
/* Whole numbers of 2 or 4 bytes. */
void image_bytes_put(ImageBytes *f, size_t at, uint32_t value, int bytes,
                     bool big);

/* Signature and header; then chunks, rows compressed in one IDAT, and IEND. */
void image_bytes_png(ImageBytes *f, uint32_t w, uint32_t h, int depth,
                     int color, int interlace);
void image_bytes_chunk(ImageBytes *f, const char *type, const void *data,
                       size_t count);
void image_bytes_idat(ImageBytes *f, const void *rows, size_t count);
/* Offset of the first chunk of the type; recomputes its CRC. */
size_t image_bytes_find(const ImageBytes *f, const char *type);
void image_bytes_mend(ImageBytes *f, const char *type);
/* A whole file: 3 x 2 pixels of 8 bits grey, 10 * (row + 1) + column. */
void image_bytes_small_png(ImageBytes *f);

/* A ramp, compressed by libjpeg; channels 1, 3 or 4 (CMYK). `restart`: an
 * interval in MCUs, 0: none. */
void image_bytes_jpeg(ImageBytes *f, int w, int h, int channels,
                      bool progressive, int restart);
/* Offset of the n-th (from 0) marker of this kind; ends the test if missing. */
size_t image_bytes_marker(const ImageBytes *f, int marker, int n);
/* An Exif block with this orientation, as segment APP1 after SOI. */
void image_bytes_exif(ImageBytes *f, int orientation, bool big);
/* The block alone, of 26 bytes. */
void image_bytes_exif_block(uint8_t block[26], int orientation, bool big);

/* Headers and palette (blue, green, red, 0 each); then the rows. */
void image_bytes_bmp(ImageBytes *f, int32_t w, int32_t h, int bits,
                     const uint8_t *palette, int colors);

/* The directory of a TIFF: tag, type (1 byte, 3 short, 4 long), count, value or
 * offset of the values. A row with tag 0 is left out. */
typedef struct TiffTag {
    int tag, type;
    uint32_t count, value;
} TiffTag;
/* Header, then `count` bytes from byte 8 on, then the directory. */
void image_bytes_tiff(ImageBytes *f, bool big, const void *data, size_t count,
                      const TiffTag *tag, int tags);

/* image_decode of a copy of exactly the size of the file. */
bool image_bytes_decode(const ImageBytes *f, const ImageOptions *o, Volume *v);
/* It must fail as damaged data with this reason, and leak nothing. */
void image_bytes_refused(const char *file, int line, const ImageBytes *f,
                         const ImageOptions *o, const char *reason);
#define EXPECT_REFUSED(f, o, reason) \
    image_bytes_refused(__FILE__, __LINE__, f, o, reason)
/* Number i of a volume of any type. */
double image_bytes_value(const Volume *v, int64_t i);
/* It must decode to these numbers, w pixels wide (0: not checked). */
void image_bytes_expect(const ImageBytes *f, const ImageOptions *o, Dtype type,
                        int w, int channels, const double *want, int count);
#endif
