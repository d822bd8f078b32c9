/* jpeg_pixels.c -- decodes the pixels of a JPEG with libjpeg.
 *
 * libjpeg reports errors with longjmp. No local variable that is read after the
 * jump is modified between setjmp and the jump: the state of a call is in a Run
 * that outlives both, and everything else belongs to libjpeg, which frees it at
 * the end. A warning means that libjpeg invented pixels, so it is an error
 * here. */
#include "data/image/image_format.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

typedef struct Run {
    struct jpeg_decompress_struct z;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    bool memory; /* the failure was lack of memory */
    char text[JMSG_LENGTH_MAX];
} Run;

_Noreturn static void give_up(j_common_ptr z)
{
    Run *r = z->client_data;
    r->memory = z->err->msg_code == JERR_OUT_OF_MEMORY;
    z->err->format_message(z, r->text);
    longjmp(r->back, 1);
}

/* Levels below 0 are warnings, the others are trace messages. */
static void message(j_common_ptr z, int level)
{
    if (level < 0) give_up(z);
}

/* Returns false with the reason in r->text if libjpeg fails. Decodes with the
 * defaults of libjpeg: accurate integer transform, smooth upsampling. */
static bool decode(Run *r, const ImageFile *f, uint8_t *out)
{
    struct jpeg_decompress_struct *z = &r->z;
    const ImageInfo *info = &f->info;
    z->err = jpeg_std_error(&r->errors);
    r->errors.error_exit = give_up;
    r->errors.emit_message = message;
    z->client_data = r;
    if (setjmp(r->back)) return false;
    jpeg_create_decompress(z);

    // coefficients of a progressive file take 2 bytes per sample, and up to
    // four times as many with unequal subsampling
    z->mem->max_memory_to_use =
        (64L << 20) + 16L * info->w * (long)info->h * info->channels;
    jpeg_mem_src(z, f->bytes, f->size);
    jpeg_read_header(z, TRUE);
    z->out_color_space = info->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    z->dct_method = JDCT_ISLOW;
    jpeg_start_decompress(z);
    CHECK(z->output_width == (JDIMENSION)info->w &&
          z->output_height == (JDIMENSION)info->h &&
          z->output_components == info->channels);
    while (z->output_scanline < z->output_height) {
        JSAMPROW row = out + (size_t)z->output_scanline * (size_t)info->w *
                                 (size_t)info->channels;
        jpeg_read_scanlines(z, &row, 1);
    }

    jpeg_finish_decompress(z);
    return true;
}

/* libjpeg calls malloc, which succeeds beyond the memory of the machine (Linux
 * overcommits). So the coefficients are first allocated by mem.h, which checks
 * the available memory, and freed unused. */
static bool has_room(size_t bytes)
{
    void *p = mem_pages(bytes);
    mem_pages_free(p);
    return p;
}

bool jpeg_pixels(const ImageFile *f, void *out)
{
    if (!has_room(f->of.jpeg.coefficients)) return false;
    Run *r = mem_alloc(sizeof *r);
    if (!r) return false;
    bool ok = decode(r, f, out);
    // valid even if it was not created: the struct is zero then
    jpeg_destroy_decompress(&r->z);
    if (!ok && r->memory) fail("no memory to read a jpeg: %s", r->text);
    if (!ok && !r->memory) fail_data("damaged: %s", r->text);
    mem_free(r);
    return ok;
}
