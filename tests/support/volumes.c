#include "tests/support/volumes.h"
#include "engine/base/rng.h"
#include "tests/test.h"

void made_affine(int code, double turn, const double mm[3], double out[4][4])
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    double base[4][4] = {{0}}, rotation[4][4] = {{0}};
    for (int a = 0; a < 3; a++)
        base[order[code / 8][a]][a] = code >> a & 1 ? -mm[a] : mm[a];
    base[0][3] = -31.5, base[1][3] = 12.25, base[2][3] = 80.125;
    base[3][3] = rotation[3][3] = 1;
    double u[3] = {2 / 7.0, 3 / 7.0, 6 / 7.0}, c = cos(turn), s = sin(turn);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) rotation[i][k] = u[i] * u[k] * (1 - c);

    for (int i = 0; i < 3; i++) {
        int k = (i + 1) % 3, l = (i + 2) % 3;
        rotation[i][i] += c;
        rotation[i][k] -= s * u[l];
        rotation[k][i] += s * u[l];
    }
    affine_multiply(rotation, base, out);
}

Volume made_image(uint32_t seed, int d, int h, int w, bool whole)
{
    Volume v;
    REQUIRE(volume_new(&v, (Dims){1, d, h, w, 1}, F32));
    v.affine[2][2] = 2;
    const Rng r = {.seed = 11, .stream = RNG_TEST, .sample = seed};
    float *x = v.voxels.data;
    for (int64_t i = 0; i < numel(v.voxels.dim); i++) {
        x[i] = 1000 * rng_uniform(&r, (uint32_t)i);
        if (whole) x[i] = floorf(x[i]);
    }
    return v;
}

Volume made_mask(int d, int h, int w)
{
    Volume v;
    REQUIRE(volume_new(&v, (Dims){1, d, h, w, 1}, U8));
    v.affine[2][2] = 2;
    v.unit = UNIT_LABEL;
    uint8_t *x = v.voxels.data;
    for (int k = d / 4; k < d - d / 4; k++)
        for (int j = h / 4; j < h - h / 4; j++)
            for (int i = w / 4; i < w / 2; i++) x[(k * h + j) * w + i] = 1;
    return v;
}

Dataset *made_dataset(int cases, int per, int d, int h, int w)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(NULL, &b));

    // added in reverse: the order must not matter
    for (int i = cases - 1; i >= 0; i--) {
        char key[32], patient[32];
        Volume image = made_image((uint32_t)i, d, h, w, true);
        Volume mask = made_mask(d, h, w);
        snprintf(key, sizeof key, "case_%02d", i);
        snprintf(patient, sizeof patient, "p%d", i / per);
        REQUIRE(dataset_add(b, key, patient, &image, &mask));
        volume_free(&image);
        volume_free(&mask);
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

Steps made_steps(const char *text)
{
    Steps s;
    REQUIRE(steps_parse(text, &s));
    return s;
}

Pipeline *made_pipeline(const Dataset *ds, const char *steps)
{
    const PipelineOptions options = {.cache_bytes = INT64_C(1) << 30,
                                     .seed = 5};
    Steps s = made_steps(steps);
    Pipeline *p;
    REQUIRE(pipeline_open(ds, &s, &options, &p));
    return p;
}

void made_moments(const float *x, int64_t n, double *mean, double *std)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *std = sqrt(square / (double)n);
}
