/* png.c -- fuzz target: any bytes as a PNG file, after a byte of options.
 *
 * A fuzzer hardly ever finds a valid CRC, so the same bytes are run a second
 * time with every checksum corrected, as far as the chunks can be parsed. */
#include "data/format/number.h"
#include "tests/fuzz/picture.h"
#include <stdlib.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend(uint8_t *p, size_t size)
{
    for (size_t at = 8; at + 12 <= size;) {
        size_t n = number_u32(p + at, true);
        if (n > size - at - 12) return;
        uint32_t crc = (uint32_t)crc32(0, p + at + 4, (uInt)n + 4);
        for (int i = 0; i < 4; i++)
            p[at + 8 + n + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += n + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    picture(data, size);
    uint8_t *copy = malloc(size + !size);
    if (!copy) return 0;
    memcpy(copy, data, size);
    if (size) mend(copy + 1, size - 1);
    int r = picture(copy, size);
    free(copy);
    return r;
}
