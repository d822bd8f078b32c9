/* picture.h -- shared code of the fuzz targets of image formats.
 *
 * The first byte selects options: bit 0 class numbers, bit 1 drops alpha, bit 2
 * ignores bytes after the image, bit 3 applies the orientation, bit 4 ignores
 * it, bit 5 the second page. */
#ifndef SEG_FUZZ_PICTURE_H
#define SEG_FUZZ_PICTURE_H
#include "data/image/image.h"
#include <string.h>

/* Reads an image, and compares it with the result of image_look. The limit is
 * 2^20 numbers: larger images would only cost time. */
static inline int picture(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    int choice = *data;
    const ImageOptions o = {
        .label = choice & 1,
        .drop_alpha = choice & 2,
        .trailing = choice & 4,
        .exif = choice & 8    ? IMAGE_EXIF_APPLY
                : choice & 16 ? IMAGE_EXIF_IGNORE
                              : IMAGE_EXIF_REFUSE,
        .page = choice & 32 ? 2 : 0,
        .max_samples = 1 << 20,
    };
    Volume v;
    ImageInfo info;
    long live = mem_live();
    double sum = 0;
    bool looked = image_look(data + 1, size - 1, &o, &info);
    if (!image_decode(data + 1, size - 1, &o, &v)) {
        CHECK(!v.voxels.data && *err_text());
        CHECK(mem_live() == live);
        return 0;
    }
    Dims d = v.voxels.dim;
    bool turned = info.orientation > 4;
    CHECK(looked && d.c == info.channels && d.w == (turned ? info.h : info.w) &&
          d.h == (turned ? info.w : info.h));
    // an accepted image is complete
    const uint8_t *p = v.voxels.data;
    for (size_t i = 0; i < tensor_bytes(&v.voxels); i++) sum += p[i];
    volume_free(&v);
    CHECK(mem_live() == live);
    return sum == 0.5 ? -1 : 0;
}
#endif
