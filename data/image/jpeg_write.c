/* jpeg_write.c -- encodes pixels as a JPEG with libjpeg.
 *
 * Baseline, accurate integer transform: the same pixels give the same bytes.
 * libjpeg reports errors with longjmp; as in jpeg_pixels.c, no local variable
 * that is read after the jump is modified between setjmp and the jump. The
 * output buffer is allocated here: libjpeg publishes the address of a buffer
 * that it has reallocated only at the end, so after a failure it could not be
 * freed. */
#include "data/image/image.h"
#include "engine/base/file.h"
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

enum { FIRST_ROOM = 1 << 14 };

typedef struct Run {
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr to;
    jmp_buf back;
    uint8_t *bytes; /* the file so far, and free space after it */
    size_t room;
} Run;

_Noreturn static void give_up(j_common_ptr z)
{
    Run *r = z->client_data;
    char text[JMSG_LENGTH_MAX];
    z->err->format_message(z, text);
    fail("jpeg: libjpeg: %s", text);
    longjmp(r->back, 1);
}

/* Called when the buffer is full, or not yet allocated. */
static boolean grow(j_compress_ptr z)
{
    Run *r = z->client_data;
    const size_t room = r->room ? 2 * r->room : FIRST_ROOM;
    uint8_t *bytes = mem_realloc(r->bytes, room);
    if (!bytes) longjmp(r->back, 1);
    r->to.next_output_byte = bytes + r->room;
    r->to.free_in_buffer = room - r->room;
    r->bytes = bytes, r->room = room;
    return TRUE;
}

static void begin(j_compress_ptr z)
{
    grow(z);
}

static void end(j_compress_ptr z)
{
    (void)z;
}

/* Returns false with the reason of libjpeg, or without memory. */
static bool encode(Run *r, const uint8_t *rgb, int w, int h, int quality)
{
    struct jpeg_compress_struct *z = &r->z;
    z->err = jpeg_std_error(&r->errors);
    r->errors.error_exit = give_up;
    z->client_data = r;
    if (setjmp(r->back)) return false;
    jpeg_create_compress(z);
    r->to = (struct jpeg_destination_mgr){.init_destination = begin,
                                          .empty_output_buffer = grow,
                                          .term_destination = end};
    z->dest = &r->to;
    z->image_width = (JDIMENSION)w, z->image_height = (JDIMENSION)h;
    z->input_components = 3;
    z->in_color_space = JCS_RGB;
    jpeg_set_defaults(z);
    jpeg_set_quality(z, quality, TRUE);
    z->dct_method = JDCT_ISLOW;
    jpeg_start_compress(z, TRUE);

    while (z->next_scanline < z->image_height) {
        // libjpeg only reads the row, but its parameter is not const
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
    bool ok = encode(&r, rgb, w, h, quality) || within("%s", path);
    jpeg_destroy_compress(&r.z);
    ok = ok && file_replace(path, r.bytes, r.room - r.to.free_in_buffer);
    mem_free(r.bytes);
    return ok;
}
