/* mat_write.c -- see mat_write.h.
 *
 * A file is a header of 128 bytes followed by elements: 8 bytes of type and
 * size, the data, and zeros up to a multiple of 8. A matrix is an element of
 * four: flags with the class, extents, name, numbers column by column. */
#include "data/format/mat_write.h"
#include "engine/base/err.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include <string.h>

enum { HEADER = 128, HEADER_TEXT = 116, NAME_MAX = 63 };
// types of elements
enum { MI_INT8 = 1, MI_INT32 = 5, MI_UINT32 = 6, MI_MATRIX = 14 };

/* Class of a matrix; type and size of its numbers. */
static const struct {
    int class_number, type, bytes;
} kinds[] = {[MAT_DOUBLE] = {6, 9, 8},
             [MAT_SINGLE] = {7, 7, 4},
             [MAT_INT16] = {10, 3, 2}};

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static uint8_t *put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint8_t *put_tag(uint8_t *at, int type, size_t bytes)
{
    return put(put(at, (uint64_t)type, 4), bytes, 4);
}

static uint8_t *put_number(uint8_t *at, MatKind kind, double x)
{
    uint64_t bits = 0;
    uint32_t half = 0;
    float single = (float)x;
    if (kind == MAT_INT16) return put(at, (uint64_t)(int64_t)x, 2);
    memcpy(&bits, &x, sizeof bits);
    memcpy(&half, &single, sizeof half);
    return kind == MAT_DOUBLE ? put(at, bits, 8) : put(at, half, 4);
}

static size_t numbers(const MatMatrix *m)
{
    return (size_t)m->rows * (size_t)m->columns * (size_t)kinds[m->kind].bytes;
}

// after its own tag: three tags with 8, 8 and the name's bytes, and one more
static size_t matrix_bytes(const MatMatrix *m)
{
    return 4 * 8 + 8 + 8 + padded(strlen(m->name)) + padded(numbers(m));
}

// the memory is zeroed, so padding needs no write
static void put_matrix(uint8_t *at, const MatMatrix *m)
{
    const size_t letters = strlen(m->name);
    at = put_tag(at, MI_MATRIX, matrix_bytes(m));
    at = put_tag(at, MI_UINT32, 8);
    at = put(at, (uint64_t)kinds[m->kind].class_number, 8);
    at = put_tag(at, MI_INT32, 8);
    at = put(put(at, (uint64_t)m->rows, 4), (uint64_t)m->columns, 4);
    at = put_tag(at, MI_INT8, letters);
    memcpy(at, m->name, letters);
    at = put_tag(at + padded(letters), kinds[m->kind].type, numbers(m));
    for (int c = 0; c < m->columns; c++)
        for (int r = 0; r < m->rows; r++)
            at = put_number(at, m->kind, m->x[r * m->columns + c]);
}

bool mat_write(const char *path, const MatMatrix *list, int count)
{
    size_t size = HEADER;
    for (int i = 0; i < count; i++) {
        CHECK(strlen(list[i].name) <= NAME_MAX && list[i].rows > 0 &&
              list[i].columns > 0);
        size += 8 + matrix_bytes(&list[i]);
    }

    uint8_t *file = mem_alloc(size);
    if (!file) return false;
    memset(file, 0, size);
    uint8_t *at = file + HEADER;

    // text padded with spaces to byte 116; then version and byte order
    memset(file, ' ', HEADER_TEXT);
    memcpy(file, "MATLAB 5.0 MAT-file, segengine", 30);
    put(file + 124, 0x0100, 2);
    memcpy(file + 126, "IM", 2);
    for (int i = 0; i < count; i++) {
        put_matrix(at, &list[i]);
        at += 8 + matrix_bytes(&list[i]);
    }
    bool ok = file_replace(path, file, size);
    mem_free(file);
    return ok;
}
