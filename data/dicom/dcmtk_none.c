/* dcmtk_none.c -- the functions of codec.h in a build without DCMTK (make
 * DICOM=0).
 *
 * Parsing, sorting, and uncompressed, deflated and RLE pixels need no DCMTK and
 * work in every build, and so does writing uncompressed and deflated files
 * (encode.h). JPEG and JPEG-LS inside DICOM, and writing compressed files, need
 * DCMTK; here they fail with the fix. */
#include "data/dicom/codec.h"
#include "data/dicom/dicom.h"
#include <stdio.h>

static const char how[] =
    "built without DCMTK: JPEG and JPEG-LS inside DICOM are not read, and "
    "compressed files not written; fix: install DCMTK (Debian: libdcmtk-dev, "
    "Fedora: dcmtk-devel, Arch: dcmtk) and build again with make DICOM=1";

bool dicom_ready(void)
{
    return fail("%s", how);
}

CodecResult codec_decode(const CodecPixels *form, const CodecBytes *fragments,
                         int32_t count, uint8_t *out, char why[CODEC_WHY])
{
    (void)form, (void)fragments, (void)count, (void)out;
    snprintf(why, CODEC_WHY, "%s", how);
    return CODEC_REFUSED;
}

CodecResult codec_write(const char *path, const CodecPixels *form,
                        const CodecElement *elements, int32_t count,
                        const uint8_t *pixels, size_t bytes,
                        char why[CODEC_WHY])
{
    (void)path, (void)form, (void)elements, (void)count;
    (void)pixels, (void)bytes;
    snprintf(why, CODEC_WHY, "%s", how);
    return CODEC_REFUSED;
}
