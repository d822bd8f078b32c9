/* relabel.c -- see relabel.h. */
#include "data/dataset/relabel.h"
#include <string.h>

/* The smallest type that holds all label values; false: none does. */
static bool label_type(const int32_t *label, int count, Dtype *type)
{
    *type = U8;
    for (int i = 0; i < count; i++) {
        int32_t v = label[i];
        if (v > 1 << 24 || v < -(1 << 24))
            return fail_data("label %d: a value beyond 2^24 cannot be written",
                             (int)v);
        if (v < INT16_MIN || v > INT16_MAX)
            *type = F32;
        else if ((v < 0 || v > UINT8_MAX) && *type == U8)
            *type = I16;
    }
    return true;
}

bool volume_relabel(const Volume *classes, const int32_t *label, int count,
                    Volume *out)
{
    Dtype type;
    CHECK(classes->voxels.type == U8);
    if (!label_type(label, count, &type)) return false;
    if (!volume_new(out, classes->voxels.dim, type)) return false;
    memcpy(out->affine, classes->affine, sizeof out->affine);
    out->unit = classes->unit;
    const uint8_t *x = classes->voxels.data;

    for (int64_t i = 0, n = numel(classes->voxels.dim); i < n; i++) {
        int32_t v = x[i] && x[i] <= count ? label[x[i] - 1] : x[i];
        if (type == U8)
            ((uint8_t *)out->voxels.data)[i] = (uint8_t)v;
        else if (type == I16)
            ((int16_t *)out->voxels.data)[i] = (int16_t)v;
        else
            ((float *)out->voxels.data)[i] = (float)v;
    }
    return true;
}
