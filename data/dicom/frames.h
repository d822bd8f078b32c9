/* frames.h -- the pixels of one file as stored values.
 *
 * Uncompressed and RLE frames are decoded here. JPEG frames are checked here
 * and decoded by DCMTK (codec.h). */
#ifndef SEG_DATA_DICOM_FRAMES_H
#define SEG_DATA_DICOM_FRAMES_H
#include "data/dicom/header.h"

/* Rows 19, 23 to 28, 42 and 45: checks that the file holds the pixel data that
 * its header promises. Call after header_image. */
bool frames_check(const Walk *w, const DicomHeader *h, const char *where,
                  DicomNotes *notes);

/* Size of all frames uncompressed: frames * rows * cols * allocated / 8 bytes;
 * frames of 1 bit are packed without gaps and the total is rounded up. Call
 * after frames_check. */
size_t frames_bytes(const DicomHeader *h);

/* out[frames_bytes] = samples of 1, 8, 16 or 32 bits, little endian, frame by
 * frame. Call after frames_check. */
bool frames_decode(const Walk *w, const DicomHeader *h, uint8_t *out);

/* Decodes one RLE segment: the n bytes at `from` into `want` bytes, written to
 * every stride-th byte of out. Returns the number of bytes that the segment
 * yields, counted up to the run that exceeds `want`. With out NULL it only
 * counts. */
size_t frames_rle_segment(const uint8_t *from, size_t n, size_t want,
                          uint8_t *out, size_t stride);
#endif
