/* mat.c -- fuzz target: any bytes as a MATLAB file.
 *
 * The first byte selects options. Bit 0: the rest is one element, which is
 * compressed here and put after a header, because mutations never give a valid
 * checksum. Bit 1: that header is big endian. Otherwise the rest is the
 * file. */
#include "data/format/mat.h"
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes a file of one compressed element; returns its size, 0 without
 * memory. */
static size_t wrap(const uint8_t *data, size_t size, bool big, uint8_t **out)
{
    uLongf packed = compressBound((uLong)size);
    *out = mem_alloc(136 + packed);
    if (!*out) return 0;
    uint8_t *p = *out;
    memcpy(p + 124, big ? "\1\0MI" : "\0\1IM", 4);
    CHECK(compress2(p + 136, &packed, data, (uLong)size, 1) == Z_OK);
    p[big ? 131 : 128] = 15;
    for (int i = 0; i < 4; i++)
        p[big ? 135 - i : 132 + i] = (uint8_t)(packed >> 8 * i);

    // a header of zeros looks like version 4
    memcpy(p, "MATLAB", 6);
    return 136 + packed;
}

static void read_all(const uint8_t *data, size_t size)
{
    Mat m;
    volatile double sum = 0;
    if (!mat_open_bytes(data, size, &m)) {
        CHECK(!m.variables && !m.mem.top);
        return;
    }
    CHECK(m.variables > 0);

    for (int i = 0; i < m.variables && i < 16; i++) {
        NpyArray a;
        const MatVariable *v = &m.variable[i];
        CHECK(v->at <= size && v->stored <= size - v->at && *v->name);
        if (!mat_read(&m, v->name, 1 << 18, &a)) {
            CHECK(!a.data);
            continue;
        }
        CHECK(a.axes == v->axes && !v->complex);
        for (int64_t k = 0; k < a.count; k++) sum += (double)a.data[k];
        mem_free(a.data);
    }
    mat_close(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    uint8_t choice = *data++, *own = NULL;
    size--;
    if (choice & 1) {
        size = wrap(data, size, choice & 2, &own);
        data = own;
    }
    read_all(data, size);
    mem_free(own);
    return 0;
}
