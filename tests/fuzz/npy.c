/* npy.c -- fuzz target: any bytes as a .npy file, whole and in ranges. */
#include "data/format/npy.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reading in pieces gives the same numbers as reading at once. */
static void check_ranges(const uint8_t *data, size_t size, const NpyArray *a)
{
    NpyFile f;
    float piece[7];
    CHECK(npy_open_bytes(data, size, 1 << 22, &f));
    CHECK(f.header.count == a->count && f.header.axes == a->axes);

    // a sample of a large array, to limit the time
    int64_t step = 7 + a->count / 500;
    for (int64_t at = 0; at < a->count; at += step) {
        int64_t n = a->count - at < 7 ? a->count - at : 7;
        CHECK(npy_read_range(&f, at, n, piece));
        CHECK(!memcmp(piece, a->data + at, (size_t)n * sizeof *piece));
    }

    CHECK(!npy_read_range(&f, a->count, 1, piece));
    npy_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    NpyArray a;
    double sum = 0;
    // the calls of an archive before it inflates the rest
    size_t have = size < NPY_PREFIX ? size : NPY_PREFIX;
    size_t end = npy_header_end(data, have);

    CHECK(end <= NPY_PREFIX + (1 << 20));
    NpyHeader h;
    // these bytes suffice to parse the header
    bool told = npy_about(data, end < size ? end : size, size, 1 << 22, &h);
    if (!npy_decode(data, size, 1 << 22, &a)) {
        CHECK(!a.data);
        return 0;
    }
    CHECK(told && h.count == a.count);

    // an accepted array is complete
    for (int64_t i = 0; i < a.count; i++) sum += (double)a.data[i];
    check_ranges(data, size, &a);
    mem_free(a.data);
    return sum == 0.5 ? -1 : 0;
}
