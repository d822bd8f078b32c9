/* image.h -- reads photographs and mask images (PNG, JPEG, BMP, TIFF) into
 * volumes.
 *
 * The format is determined by the first bytes and never by the name; if the
 * name indicates another format, the reason of a failure says so. Pixels keep
 * their values and their resolution: row 0 is the top one, d is 1, c is 1
 * (grey) or 3 (red, green, blue), the affine is the identity and the unit none,
 * because a photograph has no position in a patient. Nothing is guessed: alpha,
 * a rotated photograph, several pages and bytes after the image are errors
 * unless an option selects their treatment. No file is passed to a library
 * before its structure has been checked here.
 *
 * Sources: PNG, ISO/IEC 15948:2004; JPEG, ITU-T T.81, and Exif 2.3, 4.6; BMP,
 * the BITMAPINFOHEADER of the Windows SDK; TIFF 6.0 (Adobe, 1992). Reasons read
 * "PATH: png: PROBLEM; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_IMAGE_IMAGE_H
#define SEG_DATA_IMAGE_IMAGE_H
#include "data/volume.h"

/* Treatment of an orientation (Exif, or tag 274 of a TIFF) other than "as
 * stored". */
typedef enum ImageExif {
    IMAGE_EXIF_REFUSE, /* an error                                  */
    IMAGE_EXIF_APPLY,  /* rotates and mirrors the pixels accordingly */
    IMAGE_EXIF_IGNORE, /* as stored; the entry is not even read */
} ImageExif;

typedef struct ImageOptions {
    bool label;      /* class numbers: values as stored, of a palette the index,
                      * of 1 to 4 bits unscaled; one channel, whole numbers,
                      * lossless; unit becomes UNIT_LABEL */
    bool drop_alpha; /* drops an alpha channel; colours as stored */
    bool trailing;   /* ignores bytes after the image */
    ImageExif exif;
    int page;            /* of a TIFF, from 1; 0: the file must have exactly
                          * one */
    int32_t max_side;    /* pixels along one side; 0: 65535 */
    int64_t max_samples; /* width x height x channels; 0: 2^29, so that F32
                          * takes at most 2^31 bytes */
    int64_t max_bytes;   /* of the file; 0: 2^30 */
} ImageOptions;

/* Information from the file. */
typedef struct ImageInfo {
    const char *format; /* "png", "jpeg", "bmp" or "tiff" */
    int32_t w, h;       /* as stored, before an orientation is applied */
    int channels;       /* 1 or 3, alpha not counted */
    int bits;           /* of a stored sample: 1 to 32 */
    char kind;          /* u unsigned, i signed, f float */
    bool palette, alpha;
    int orientation; /* 1 to 8; 0: absent, or ignored */
    int pages;
} ImageInfo;

/* Reads extents, channels and bits without decoding; checks the structure as
 * for image_read. `options` may be NULL; page, exif, trailing and the limits
 * are used. */
bool image_probe(const char *path, const ImageOptions *options,
                 ImageInfo *info);

/* Reads U8 up to 8 bits (1, 2 and 4 bits of grey are scaled to 0 .. 255). 16
 * bits become I16 when every value fits, else F32, with the same values; float
 * stays F32, and NaN is accepted. `options` may be NULL. On failure *out is
 * zero. */
bool image_read(const char *path, const ImageOptions *options, Volume *out);

/* The same two functions from memory. Reasons begin at the format. */
bool image_look(const uint8_t *bytes, size_t size, const ImageOptions *options,
                ImageInfo *info);
bool image_decode(const uint8_t *bytes, size_t size,
                  const ImageOptions *options, Volume *out);

/* Returns the format indicated by the first bytes: one of the four above, the
 * name of a known but unsupported one ("GIF"), or NULL. `size` may be limited
 * to the first IMAGE_MAGIC bytes. *read: it is one of the four. */
enum { IMAGE_MAGIC = 32 };
const char *image_format(const uint8_t *bytes, size_t size, bool *read);
/* The same for a file; NULL also when it cannot be opened. */
const char *image_file_format(const char *path, bool *read);

/* Writes h rows of w pixels, red, green, blue, as a JPEG; quality 1 .. 100. The
 * whole file or none; the same pixels give the same bytes. */
bool image_write_jpeg(const char *path, const uint8_t *rgb, int w, int h,
                      int quality);
#endif
