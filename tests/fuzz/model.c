/* model.c -- fuzz target: any bytes as a file of weights with its network.
 *
 * The input is a file without its first eight bytes, the length of the header:
 * the header ends at the first zero byte, which is left out. So a header can
 * grow and shrink. The inputs, the outputs and the output shapes of an accepted
 * model are read; small models are run. */
#include "engine/api/segengine.h"
#include "engine/base/file.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUTS = 16, OUTPUTS = 64, SMALL = 1 << 12 };

static size_t numbers_of(const seg_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->axes; i++)
        if (t->shape[i] < 1 || !size_mul(n, (size_t)t->shape[i], &n))
            return SIZE_MAX;
    return n;
}

/* Gives each tensor values (inputs) or memory; returns the number of
 * elements. */
static size_t fill(seg_tensor *t, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        size_t n = numbers_of(&t[i]);
        if (n > SMALL || sum + n > SMALL) return SIZE_MAX;
        t[i].data = mem_alloc(n * sizeof(float));
        CHECK(t[i].data);
        sum += n;
    }
    return sum;
}

static void empty(seg_tensor *t, int count)
{
    for (int i = 0; i < count; i++) mem_free(t[i].data);
}

static void run(seg_model *m)
{
    seg_tensor in[INPUTS], out[OUTPUTS];
    int inputs = seg_inputs(m, in, INPUTS),
        outputs = seg_outputs(m, out, OUTPUTS);
    CHECK(inputs >= 0 && inputs <= INPUTS && outputs > 0 && outputs <= OUTPUTS);
    if (fill(in, inputs) <= SMALL &&
        seg_run(m, in, inputs, out, outputs) == 0 &&
        fill(out, outputs) <= SMALL)
        seg_run(m, in, inputs, out, outputs);
    empty(in, inputs);
    empty(out, outputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    if (!*path)
        snprintf(path, sizeof path, "/tmp/fuzz-model-%ld", (long)getpid());
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t header = zero ? (size_t)(zero - data) : size;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header >> 8 * i);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    fwrite(length, 1, 8, f);
    fwrite(data, 1, header, f);
    if (zero) fwrite(zero + 1, 1, size - header - 1, f);
    fclose(f);
    seg_model *m = seg_open(path, "cpu", 1);
    if (m)
        run(m);
    else
        CHECK(*seg_error());
    seg_close(m);
    unlink(path);
    CHECK(mem_live() == 0);
    return 0;
}
