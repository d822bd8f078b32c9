/* codec.h -- what DCMTK does for us, as a C face.
 *
 * Two jobs: decode JPEG and JPEG-LS frames that were cut out of a file and
 * checked, and write a file from a list of elements and pixels. DCMTK gets
 * no bytes of a foreign file but those frames. Implemented by dcmtk.cc, or
 * by dcmtk_none.c in a build without DCMTK. May be called in any thread; the
 * library starts once, on the first call. */
#ifndef SEG_DATA_DICOM_CODEC_H
#define SEG_DATA_DICOM_CODEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CODEC_WHY = 256 }; /* bytes of a reason, with its end */

/* What a decoder must know of a frame, or a writer of all frames. */
typedef struct CodecPixels {
    const char *syntax_uid;     /* transfer syntax: compressed (decode), or of
                                 * the file to write */
    uint16_t rows, cols;        /* of one frame                              */
    uint16_t allocated, stored; /* bits a sample; HighBit is stored - 1      */
    bool is_signed;
    int32_t frames; /* 1 when decoding */
} CodecPixels;

/* A fragment of a compressed frame; it points into the bytes of the file. */
typedef struct CodecBytes {
    const uint8_t *bytes;
    uint32_t length;
} CodecBytes;

/* How a job ended. A reason of this side of the face is a text in `why`, as
 * fail() is C; whoever calls turns it into one. */
typedef enum CodecResult {
    CODEC_DONE,
    CODEC_REFUSED,   /* the bytes, or what was asked for, with why           */
    CODEC_NO_MEMORY, /* says nothing about the bytes: never call them damaged */
} CodecResult;

/* One frame in `count` fragments into out: rows * cols samples of 8 or 16
 * bits, little endian. */
CodecResult codec_decode(const CodecPixels *form, const CodecBytes *fragments,
                         int32_t count, uint8_t *out, char why[CODEC_WHY]);

/* An element to write, in the order of the file. Value is text, with
 * backslashes between values, also for numbers. depth counts the items
 * around it; an item is tag 0xFFFEE000 with the depth of its contents, and
 * a sequence has no value. */
typedef struct CodecElement {
    uint32_t tag;
    uint16_t vr; /* two letters */
    uint8_t depth;
    const char *value;
} CodecElement;

/* Write `path` in the transfer syntax of `form`: the elements, and PixelData
 * from `bytes` bytes, little endian, frame by frame. The element list has
 * no pixel module beyond what it names itself: nothing is added. */
CodecResult codec_write(const char *path, const CodecPixels *form,
                        const CodecElement *elements, int32_t count,
                        const uint8_t *pixels, size_t bytes,
                        char why[CODEC_WHY]);

#ifdef __cplusplus
}
#endif
#endif
