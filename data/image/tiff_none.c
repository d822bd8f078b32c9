/* tiff_none.c -- stands in for tiff_pixels.c in a build without libtiff
 * (make TIFF=0): what a TIFF is can still be said, by tiff.c. */
#include "data/image/image_format.h"

bool tiff_pixels(const ImageFile *f, void *out)
{
    (void)f, (void)out;
    return fail_data("this segengine was built without libtiff; fix: save it "
                     "as PNG, or install libtiff-dev (4.5 or newer) and build "
                     "again");
}
