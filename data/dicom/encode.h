/* encode.h -- encodes a data set in an uncompressed transfer syntax, without
 * DCMTK (PS3.5, section 7 and annex A; PS3.10, section 7). */
#ifndef SEG_DATA_DICOM_ENCODE_H
#define SEG_DATA_DICOM_ENCODE_H
#include "data/dicom/codec.h"
#include "engine/base/mem.h"

/* Can dicom_encode write this transfer syntax? Implicit and explicit little
 * endian, explicit big endian, deflated explicit little endian. */
bool dicom_encodes(const char *syntax_uid);

/* Encodes a whole file, from preamble to PixelData; the arguments are those of
 * codec_write, elements in any order; of two with the same tag the last one is
 * written. Sequences and items get explicit lengths, values an even length.
 * *out lies in `mem`. Fails without memory, with a value that its VR cannot
 * hold, or with more pixels than a length of 32 bits counts. */
bool dicom_encode(const CodecPixels *form, const CodecElement *elements,
                  int32_t count, const uint8_t *pixels, size_t bytes,
                  Arena *mem, uint8_t **out, size_t *out_bytes);
#endif
