/* codec.h -- a C interface to DCMTK.
 *
 * DCMTK has two jobs: it decodes JPEG and JPEG-LS frames that this program has
 * cut out of a file and checked, and it writes files from a list of elements
 * and pixels. A build without DCMTK writes uncompressed and deflated files by
 * encode.h. No other bytes of an input file reach DCMTK. Implemented by
 * dcmtk.cc, or by dcmtk_none.c in a build without DCMTK. All functions are
 * thread-safe; the library is initialised once, by the first call. */
#ifndef SEG_DATA_DICOM_CODEC_H
#define SEG_DATA_DICOM_CODEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CODEC_WHY = 256 }; /* size of an error text           */

/* The pixel format of a frame to decode, or of all frames to write. */
typedef struct CodecPixels {
    const char *syntax_uid;     /* transfer syntax: of the compressed frame, or
                                 * of the file to write */
    uint16_t rows, cols;        /* of one frame                              */
    uint16_t allocated, stored; /* bits per sample; HighBit = stored - 1     */
    bool is_signed;
    int32_t frames; /* 1 when decoding */
} CodecPixels;

/* A fragment of a compressed frame; it points into the bytes of the file. */
typedef struct CodecBytes {
    const uint8_t *bytes;
    uint32_t length;
} CodecBytes;

/* The result of a call. fail() is C, so the C++ side writes the reason into
 * `why`, and the caller passes it to fail(). */
typedef enum CodecResult {
    CODEC_DONE,
    CODEC_REFUSED,   /* bad bytes or request; reason in why                  */
    CODEC_NO_MEMORY, /* the frame may be intact: not damaged                  */
} CodecResult;

/* Decodes one frame, given as `count` fragments, into out: rows * cols samples
 * of 8 or 16 bits, little endian. */
CodecResult codec_decode(const CodecPixels *form, const CodecBytes *fragments,
                         int32_t count, uint8_t *out, char why[CODEC_WHY]);

/* An element to write. An item follows its sequence, the elements of an item
 * follow the item; otherwise the order does not matter. Every value is text,
 * numbers too, with backslashes between multiple values. depth is the number of
 * items around the element. An item has tag 0xFFFEE000 and the depth of its
 * contents; a sequence has no value. */
typedef struct CodecElement {
    uint32_t tag;
    uint16_t vr; /* two letters */
    uint8_t depth;
    const char *value;
} CodecElement;

/* Writes `path` in the transfer syntax of `form`: the elements, then PixelData
 * from `bytes` bytes, little endian, frame by frame. The attributes of the
 * pixel module must be in the element list; none is added. */
CodecResult codec_write(const char *path, const CodecPixels *form,
                        const CodecElement *elements, int32_t count,
                        const uint8_t *pixels, size_t bytes,
                        char why[CODEC_WHY]);

#ifdef __cplusplus
}
#endif
#endif
