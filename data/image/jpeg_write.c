/* jpeg_write.c -- pixels as a JPEG, by libjpeg.
 *
 * Baseline, the exact integer transform: the same pixels give the same bytes.
 * libjpeg leaves by a jump when it gives up; as in jpeg_pixels.c nothing that
 * is looked at behind it is changed between setjmp and the jump. */
#include "file.h"
#include "image.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

typedef struct Run {
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    unsigned char *bytes; // libjpeg's, from malloc
    unsigned long size;
    char text[JMSG_LENGTH_MAX];
} Run;

_Noreturn static void give_up(j_common_ptr z)
{
    Run *r = z->client_data;
    z->err->format_message(z, r->text);
    longjmp(r->back, 1);
}

/* False: libjpeg gave up, and why is in r->text. */
static bool encode(Run *r, const uint8_t *rgb, int w, int h, int quality)
{
    struct jpeg_compress_struct *z = &r->z;
    z->err = jpeg_std_error(&r->errors);
    r->errors.error_exit = give_up;
    z->client_data = r;
    if (setjmp(r->back)) return false;
    jpeg_create_compress(z);
    jpeg_mem_dest(z, &r->bytes, &r->size);
    z->image_width = (JDIMENSION)w, z->image_height = (JDIMENSION)h;
    z->input_components = 3;
    z->in_color_space = JCS_RGB;
    jpeg_set_defaults(z);
    jpeg_set_quality(z, quality, TRUE);
    z->dct_method = JDCT_ISLOW;
    jpeg_start_compress(z, TRUE);
    while (z->next_scanline < z->image_height) {
        // libjpeg reads the row, but its type lacks the const
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(rgb + 3 * (size_t)w * z->next_scanline);
        jpeg_write_scanlines(z, &row, 1);
    }
    jpeg_finish_compress(z);
    return true;
}

bool image_write_jpeg(const char *path, const uint8_t *rgb, int w, int h,
                      int quality)
{
    Run r = {0};
    CHECK(w > 0 && h > 0 && w <= JPEG_MAX_DIMENSION && h <= JPEG_MAX_DIMENSION);
    bool ok = encode(&r, rgb, w, h, quality) ||
              fail("%s: jpeg: libjpeg: %s", path, r.text);
    jpeg_destroy_compress(&r.z);
    ok = ok && file_replace(path, r.bytes, r.size);
    free(r.bytes);
    return ok;
}
