/* jpeg.c -- fuzz target: any bytes as a JPEG file, after a byte of options. */
#include "tests/fuzz/picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return picture(data, size);
}
