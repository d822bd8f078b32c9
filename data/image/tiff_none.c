/* tiff_none.c -- replaces tiff_pixels.c in a build without libtiff (make
 * TIFF=0); tiff.c still parses and describes TIFF files. */
#include "data/image/image_format.h"

bool tiff_pixels(const ImageFile *f, void *out)
{
    (void)f, (void)out;
    return fail_data("this segengine was built without libtiff; fix: save it "
                     "as PNG, or install libtiff-dev (4.5 or newer) and build "
                     "again");
}
