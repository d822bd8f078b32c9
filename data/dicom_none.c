/* The part of DICOM that DCMTK does, in a build without it (make DICOM=0). */
#include "dicom.h"
#include "dicom_codec.h"
#include <stdio.h>

static const char how[] =
    "this program was built without DICOM; fix: install DCMTK (Debian: "
    "libdcmtk-dev, Fedora: dcmtk-devel, Arch: dcmtk) and build again with "
    "make DICOM=1, or convert the images to NIfTI";

bool dicom_ready(void)
{
    return fail("%s", how);
}

bool codec_decode(const CodecPixels *form, const CodecBytes *fragments,
                  int32_t count, uint8_t *out, char why[CODEC_WHY])
{
    (void)form, (void)fragments, (void)count, (void)out;
    snprintf(why, CODEC_WHY, "%s", how);
    return false;
}

bool codec_write(const char *path, const CodecPixels *form,
                 const CodecElement *elements, int32_t count,
                 const uint8_t *pixels, size_t bytes, char why[CODEC_WHY])
{
    (void)path, (void)form, (void)elements, (void)count;
    (void)pixels, (void)bytes;
    snprintf(why, CODEC_WHY, "%s", how);
    return false;
}
