/* MATLAB files: tags, small elements, matrices, compressed elements. */
#include "tests/support/mat_make.h"
#include <zlib.h>

void mat_put(MatMaker *m, uint64_t value, int bytes)
{
    REQUIRE(m->size + 8 < MAT_ROOM);
    for (int i = 0; i < bytes; i++)
        m->bytes[m->size++] =
            (uint8_t)(value >> 8 * (m->big ? bytes - 1 - i : i));
}

void mat_patch(MatMaker *m, size_t at, uint64_t value, int bytes)
{
    size_t size = m->size;
    m->size = at;
    mat_put(m, value, bytes);
    m->size = size;
}

void mat_begin(MatMaker *m, bool big)
{
    *m = (MatMaker){.big = big};
    memset(m->bytes, ' ', 124);
    memcpy(m->bytes, "MATLAB 5.0 MAT-file", 19);
    memset(m->bytes + 116, 0, 8);
    m->size = 124;
    mat_put(m, 0x0100, 2), mat_put(m, 'M' << 8 | 'I', 2);
}

/* An element of `bytes` bytes at p, in the small format if `small`. */
void mat_element(MatMaker *m, int type, const void *p, size_t bytes, bool small)
{
    if (small) {
        mat_put(m, (uint64_t)bytes << 16 | (uint64_t)type, 4);
    } else {
        mat_put(m, (uint64_t)type, 4), mat_put(m, bytes, 4);
    }
    REQUIRE(m->size + bytes + 8 < MAT_ROOM);
    memcpy(m->bytes + m->size, p, bytes);
    m->size += small ? 4 : (bytes + 7) / 8 * 8;
}

/* Whole numbers, stored with the type of the element. */
void mat_numbers(MatMaker *m, int type, int width, const int *x, int count,
                 bool small)
{
    MatMaker data = {.big = m->big};
    for (int i = 0; i < count; i++) {
        double d = x[i];
        float f = (float)x[i];
        uint64_t bits = (uint64_t)(int64_t)x[i];
        if (type == 9) memcpy(&bits, &d, 8);
        if (type == 7) bits = 0, memcpy(&bits, &f, 4);
        mat_put(&data, bits, width);
    }
    mat_element(m, type, data.bytes, data.size, small);
}

/* The elements of a matrix before its numbers; returns the offset of its tag.
 */
size_t mat_matrix(MatMaker *m, int flags, int mx, const int *shape, int axes,
                  const char *name)
{
    size_t at = m->size, n = strlen(name);
    int word[2] = {flags << 8 | mx, 0};
    mat_put(m, 14, 4), mat_put(m, 0, 4);
    mat_numbers(m, 6, 4, word, 2, false);
    mat_numbers(m, 5, 4, shape, axes, false);
    mat_element(m, 1, name, n, n && n <= 4);
    return at;
}

void mat_end(MatMaker *m, size_t at)
{
    mat_patch(m, at + 4, m->size - at - 8, 4);
}

/* Compresses the element at `at`, which must be the last one. */
void mat_compress(MatMaker *m, size_t at)
{
    uint8_t packed[MAT_ROOM];
    uLongf n = MAT_ROOM;
    REQUIRE(compress2(packed, &n, m->bytes + at, m->size - at, 9) == Z_OK);
    m->size = at;
    mat_put(m, 15, 4), mat_put(m, n, 4);
    memcpy(m->bytes + m->size, packed, n);
    m->size += n;
}

const int mat_grid[] = {2, 3}, mat_counted[] = {1, 2, 3, 4, 5, 6};

/* Matrix "x" of 2 x 3, [1 3 5; 2 4 6], of class mx, stored as type mi. */
size_t mat_make(MatMaker *m, bool big, int mx, int mi, int width)
{
    mat_begin(m, big);
    size_t at = mat_matrix(m, 0, mx, mat_grid, 2, "x");
    mat_numbers(m, mi, width, mat_counted, 6, false);
    mat_end(m, at);
    return at;
}

bool mat_copy(const MatMaker *m, uint8_t **copy, Mat *mat)
{
    *copy = mem_alloc(m->size);
    REQUIRE(*copy);
    memcpy(*copy, m->bytes, m->size);
    return mat_open_bytes(*copy, m->size, mat);
}

/* Opens it and reads "x"; false with the reason of the first failure. */
bool mat_read_x(const MatMaker *m)
{
    uint8_t *copy;
    Mat mat;
    NpyArray a = {0};
    long live = mem_live();
    bool ok = mat_copy(m, &copy, &mat);

    if (!ok) EXPECT(!mat.variables && !mat.variable);
    ok = ok && mat_read(&mat, "x", 0, &a);
    if (!ok) EXPECT(!a.data && err_kind() == ERR_DATA);
    mem_free(a.data);
    mat_close(&mat);
    mem_free(copy);
    EXPECT_INT(mem_live(), live);
    return ok;
}
