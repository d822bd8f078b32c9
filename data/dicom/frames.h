/* frames.h -- the pixels of one file, as the file stores them.
 *
 * Uncompressed and RLE frames are taken from the bytes here; JPEG frames are
 * checked here and decoded by DCMTK (codec.h). */
#ifndef SEG_DATA_DICOM_FRAMES_H
#define SEG_DATA_DICOM_FRAMES_H
#include "data/dicom/header.h"

/* Rows 19, 23 to 28, 42, 45: is there what the header promises, where it
 * promises it? After header_image. */
bool frames_check(const Walk *w, const DicomHeader *h, const char *where,
                  DicomNotes *notes);

/* Bytes of all frames uncompressed: frames * rows * cols * allocated / 8,
 * for 1 bit the frames packed without gaps, rounded up. After frames_check. */
size_t frames_bytes(const DicomHeader *h);

/* out[frames_bytes] = samples of 1, 8, 16 or 32 bits, little endian, frame
 * by frame. After frames_check. */
bool frames_decode(const Walk *w, const DicomHeader *h, uint8_t *out);

/* One RLE segment: decode n bytes of `from` into every stride-th byte of
 * out, `want` of them; returns how many the segment gives, counted up to the
 * run that passes `want`. out may be NULL: count only. */
size_t frames_rle_segment(const uint8_t *from, size_t n, size_t want,
                          uint8_t *out, size_t stride);
#endif
