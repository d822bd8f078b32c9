/* exif.c -- the orientation of a photograph, from its Exif block or XMP packet.
 *
 * The block is a TIFF without pixels; only tag 274 of its first directory is
 * read. The rest (camera, date, place, thumbnail) is neither read nor
 * stored. */
#include "data/image/image_format.h"
#include <string.h>

enum { ORIENTATION = 274, SHORT = 3, ENTRY = 12 };

bool image_orientation(ImageFile *f, int value)
{
    if (f->options.exif == IMAGE_EXIF_IGNORE) return true;
    if (value < 1 || value > 8)
        return fail_data("orientation is %d, need 1 to 8; fix: exif = "
                         "\"ignore\", after a look at the picture",
                         value);
    if (f->info.orientation && f->info.orientation != value)
        return fail_data("two orientations, %d and %d; fix: exif = \"ignore\", "
                         "after a look at the picture",
                         f->info.orientation, value);
    f->info.orientation = value;
    if (value == 1 || f->options.exif == IMAGE_EXIF_APPLY) return true;

    // viewers rotate it and most training code does not: either choice would be
    // wrong for some users if made silently
    return fail_data("orientation is %d: the picture was taken turned or "
                     "mirrored; fix: exif = \"apply\" turns it as viewers do, "
                     "exif = \"ignore\" takes it as stored",
                     value);
}

bool exif_orientation(ImageFile *f, const uint8_t *b, size_t size)
{
    if (f->options.exif == IMAGE_EXIF_IGNORE) return true;
    bool big = size >= 8 && b[0] == 'M';
    if (size < 8 || b[0] != b[1] || (b[0] != 'M' && b[0] != 'I') ||
        number_u16(b + 2, big) != 42)
        return fail_data("the Exif block is damaged, so how the picture was "
                         "held is not known; fix: exif = \"ignore\"");
    size_t at = number_u32(b + 4, big);
    size_t count = at <= size - 2 ? number_u16(b + at, big) : 0;
    if (at > size - 2 || count > (size - at - 2) / ENTRY)
        return fail_data("the directory of the Exif block lies outside it; "
                         "fix: exif = \"ignore\"");

    // entries must be sorted, but some cameras write them in any order; only
    // this one is read
    for (const uint8_t *e = b + at + 2; count; count--, e += ENTRY) {
        if (number_u16(e, big) != ORIENTATION) continue;
        if (number_u16(e + 2, big) != SHORT || number_u32(e + 4, big) != 1)
            return fail_data("the orientation in the Exif block is not one "
                             "16-bit number; fix: exif = \"ignore\"");
        return image_orientation(f, (int)number_u16(e + 8, big));
    }
    return true;
}

void xmp_orientation(ImageFile *f, const uint8_t *text, size_t size)
{
    static const char name[] = "tiff:Orientation";
    const size_t n = sizeof name - 1;
    // an attribute, Orientation="6", or an element, <...Orientation>6</...
    for (size_t i = 0; i + n < size && !f->xmp_orientation; i++) {
        if (memcmp(text + i, name, n)) continue;
        size_t at = i + n;
        while (at < size && text[at] && strchr(" \t\r\n=>\"'", text[at])) at++;
        if (at < size && text[at] >= '1' && text[at] <= '8')
            f->xmp_orientation = text[at] - '0';
    }
}

bool image_settle_xmp(ImageFile *f)
{
    if (f->info.orientation || !f->xmp_orientation) return true;
    return image_orientation(f, f->xmp_orientation);
}
