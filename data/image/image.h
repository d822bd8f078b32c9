/* image.h -- photographs and mask images: PNG, JPEG, BMP and TIFF to volumes.
 *
 * What a file is, is told by its first bytes and never by its name; a name
 * that says something else is in the reason when the file is refused. Pixels
 * keep their numbers and their size: row 0 is the top one, d is 1, c is 1
 * (grey) or 3 (red, green, blue), the affine is the identity and the unit none,
 * for a photograph lies nowhere in a patient. Nothing is guessed: alpha, a
 * turned photograph, several pages and bytes behind the image are refused
 * until an option says what to do with them. No file reaches a library before
 * its structure was checked here.
 *
 * Sources: PNG, ISO/IEC 15948:2004; JPEG, ITU-T T.81, and Exif 2.3, 4.6; BMP,
 * the BITMAPINFOHEADER of the Windows SDK; TIFF 6.0 (Adobe, 1992). Reasons
 * read "PATH: png: WHAT; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_IMAGE_IMAGE_H
#define SEG_DATA_IMAGE_IMAGE_H
#include "data/volume.h"

/* What a file's orientation (Exif, or tag 274 of a TIFF) other than "as
 * stored" means for the pixels. */
typedef enum ImageExif {
    IMAGE_EXIF_REFUSE, /* an error                                  */
    IMAGE_EXIF_APPLY,  /* turned and mirrored as it says            */
    IMAGE_EXIF_IGNORE, /* as stored; the entry is not even read     */
} ImageExif;

typedef struct ImageOptions {
    bool label;      /* class numbers: the numbers as stored, of a palette the
                      * index, of 1 to 4 bits unscaled; one channel, whole
                      * numbers, lossless; unit becomes UNIT_LABEL */
    bool drop_alpha; /* an alpha channel is left out: colours as stored */
    bool trailing;   /* bytes behind the image are nobody's business */
    ImageExif exif;
    int page;            /* of a TIFF, from 1; 0: it must have only one */
    int32_t max_side;    /* pixels along one side; 0: 65535 */
    int64_t max_samples; /* width x height x channels; 0: 2^29, so that F32
                          * takes at most 2^31 bytes */
    int64_t max_bytes;   /* of the file; 0: 2^30 */
} ImageOptions;

/* What a file says about itself. */
typedef struct ImageInfo {
    const char *format; /* "png", "jpeg", "bmp" or "tiff" */
    int32_t w, h;       /* as stored, before an orientation is applied */
    int channels;       /* 1 or 3, alpha not counted */
    int bits;           /* of a stored sample: 1 to 32 */
    char kind;          /* u unsigned, i signed, f float */
    bool palette, alpha;
    int orientation; /* 1 to 8; 0: not said, or ignored */
    int pages;
} ImageInfo;

/* Extents, channels and bits without decoding; what is structure is checked
 * all the same. `options` may be NULL; of them page, exif, trailing and the
 * limits count. */
bool image_probe(const char *path, const ImageOptions *options,
                 ImageInfo *info);

/* U8 up to 8 bits (1, 2 and 4 bits of grey are spread over 0 .. 255); 16 bits
 * become I16 when every number fits and F32 otherwise, with the same numbers;
 * float stays F32, not a number passes. `options` may be NULL. On failure *out
 * is zero. */
bool image_read(const char *path, const ImageOptions *options, Volume *out);

/* The same two from memory. Reasons begin at the format. */
bool image_look(const uint8_t *bytes, size_t size, const ImageOptions *options,
                ImageInfo *info);
bool image_decode(const uint8_t *bytes, size_t size,
                  const ImageOptions *options, Volume *out);

/* The format that the first bytes say: one of the four above, the name of one
 * that is known but not read ("GIF"), or NULL. `size` may be that of the first
 * IMAGE_MAGIC bytes only. *read says whether it is one of the four. */
enum { IMAGE_MAGIC = 32 };
const char *image_format(const uint8_t *bytes, size_t size, bool *read);
/* Of a file; NULL also when it cannot be opened. */
const char *image_file_format(const char *path, bool *read);

/* h rows of w pixels, red, green, blue, as a JPEG; quality 1 .. 100. Whole or
 * not at all; the same pixels give the same bytes. */
bool image_write_jpeg(const char *path, const uint8_t *rgb, int w, int h,
                      int quality);
#endif
