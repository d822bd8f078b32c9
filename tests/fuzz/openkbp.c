/* openkbp.c -- fuzz target: any bytes as a sparse grid, values and mask. */
#include "data/datasets/openkbp.h"
#include "data/format/decimal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int kind = OPENKBP_VALUES; kind <= OPENKBP_MASK; kind++) {
        SparseGrid g;
        if (!openkbp_grid_decode((const char *)data, size, (OpenkbpKind)kind,
                                 &g)) {
            CHECK(!g.index && !g.value && !g.count);
            continue;
        }
        for (int32_t i = 0; i < g.count; i++) {
            CHECK(g.index[i] >= 0 && g.index[i] < OPENKBP_VOXELS);
            if (!g.value) continue;
            // an accepted value is printed and read back unchanged
            char text[DECIMAL_TEXT];
            double v = 0;
            size_t n = decimal_print(g.value[i], text);
            CHECK(decimal_read(text, n, &v) == n && (float)v == g.value[i]);
        }
        openkbp_grid_free(&g);
    }
    return 0;
}
