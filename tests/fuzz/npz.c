/* npz.c -- fuzz target: any bytes as a .npz archive. */
#include "data/format/npz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 18 };
    Npz z;
    double sum = 0;
    if (!npz_open_bytes(data, size, &z)) {
        CHECK(!z.entries && !z.mem.top);
        return 0;
    }
    CHECK(z.entries > 0);

    for (int i = 0; i < z.entries && i < 16; i++) {
        const NpzEntry *e = &z.entry[i];
        NpyHeader h;
        NpyArray a;
        CHECK(e->at <= size && e->packed <= size - e->at);
        bool told = npz_about(&z, i, &h);
        if (!npz_read(&z, e->name, MOST, &a)) {
            CHECK(!a.data);
            continue;
        }
        // an accepted array agrees with its header, and is complete
        CHECK(told && a.count == h.count && a.axes == h.axes);
        for (int64_t k = 0; k < a.count; k++) sum += (double)a.data[k];
        mem_free(a.data);
    }

    npz_close(&z);
    return sum == 0.5 ? -1 : 0;
}
