/* bundle.c -- fuzz target: any bytes as the text of a bundle.
 *
 * Accepted values must be in the ranges that prediction relies on; a rejected
 * text must leave a reason; no memory may leak. */
#include "engine/api/segengine_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool within_names(const char *const *name, int count, int most)
{
    for (int i = 0; i < count; i++)
        if (!name[i]) return false;
    return count >= 0 && count <= most;
}

static void promises(const Bundle *b)
{
    CHECK(within_names(b->input, b->inputs, MAX_INPUTS) && b->output);
    CHECK(within_names(b->segment, b->segments, MAX_SEGMENTS));
    CHECK(within_names(b->dicom.image, b->dicom.images, MAX_CHANNELS));
    CHECK(within_names(b->nifti.image, b->nifti.images, MAX_CHANNELS));
    CHECK(b->threshold > 0 && b->threshold < 1 && b->batch >= 1);
    CHECK(b->labels >= 0 && b->labels <= MAX_LABELS);
    CHECK(b->tidies >= 0 && b->tidies <= MAX_SEGMENTS);

    for (int i = 0; i < b->tidies; i++) {
        const BundleTidy *t = &b->tidy[i];
        CHECK(t->how.value == i + 1 && t->how.keep >= 0);
        CHECK(t->how.connect == 6 || t->how.connect == 26);
        CHECK(t->min_ml >= 0 && t->min_ml < HUGE_VAL);
    }

    for (int i = 0; i < b->steps.count; i++)
        if (b->steps.step[i].id == STEP_patches)
            CHECK(b->steps.step[i].patches.overlap >= 0 &&
                  b->steps.step[i].patches.overlap <= 0.9);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena mem = {NULL};
    Bundle *b;
    char *text = mem_alloc(size + 1);

    if (!text) return 0;
    memcpy(text, data, size);
    if (bundle_read(text, &mem, &b))
        promises(b);
    else
        CHECK(*err_text());
    arena_release(&mem);
    mem_free(text);
    CHECK(mem_live() == 0);
    return 0;
}
