/* nifti.c -- fuzz target: any bytes as a NIfTI file, plain, gzip or a pair.
 *
 * The first byte selects options: bit 0 gzip, bit 1 a pair (split at the size
 * of a header), bits 2 and 3 the form, bit 4 labels, bit 5 assume_spacing, bit
 * 6 channels. */
#include "data/format/nifti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    uint8_t choice = *data++;
    size--;
    size_t split = choice & 2 ? 348 : size;
    if (split > size) split = size;
    NiftiBytes file = {data, split, choice & 1};
    NiftiBytes image = {data + split, size - split, choice & 1};
    NiftiOptions options = {.form =
                                (NiftiForm)((choice >> 2 & 3) + (choice >> 7)),
                            .label = choice & 16,
                            .assume_spacing = choice & 32,
                            .channels = choice & 64,
                            .max_voxels = 1 << 22};
    Volume v;
    double p[3], sum = 0;
    if (!nifti_decode(&file, choice & 2 ? &image : NULL, &options, &v, NULL)) {
        CHECK(!v.voxels.data);
        return 0;
    }

    // an accepted volume is complete, with a valid affine
    const uint8_t *bytes = v.voxels.data;
    size_t count = tensor_bytes(&v.voxels);
    for (size_t i = 0; i < count; i++) sum += bytes[i];
    volume_world(&v, 1, 2, 3, p);
    CHECK(p[0] - p[0] == 0 && p[1] - p[1] == 0 && p[2] - p[2] == 0);
    volume_free(&v);
    return sum == 0.5 ? -1 : 0;
}
