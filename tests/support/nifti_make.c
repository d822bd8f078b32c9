/* nifti_make.c -- see nifti_make.h. */
#include "tests/support/nifti_make.h"
#include "tests/test.h"

void put(Maker *m, size_t at, char type, double v)
{
    union {
        uint8_t b[8];
        int16_t s;
        int32_t i;
        int64_t l;
        float f;
        double d;
    } u = {{0}};
    size_t n = type == 'b' ? 1 : type == 's' ? 2 : type == 'i' ? 4 : 8;

    switch (type) {
    case 'b':
        u.b[0] = (uint8_t)v;
        break;
    case 's':
        u.s = (int16_t)v;
        break;
    case 'i':
        u.i = (int32_t)v;
        break;
    case 'l':
        u.l = (int64_t)v;
        break;
    case 'f':
        u.f = (float)v, n = 4;
        break;
    default:
        u.d = v;
    }

    REQUIRE(at + n <= ROOM);
    for (size_t k = 0; k < n; k++)
        m->bytes[at + k] = u.b[m->big ? n - 1 - k : k];
}

const Place dim = {{40, 16}, {'s', 'l'}}, intent = {{68, 504}, {'s', 'i'}},
            datatype = {{70, 12}, {'s', 's'}}, bitpix = {{72, 14}, {'s', 's'}},
            pixdim = {{76, 104}, {'f', 'd'}},
            vox_offset = {{108, 168}, {'f', 'l'}},
            slope = {{112, 176}, {'f', 'd'}}, inter = {{116, 184}, {'f', 'd'}},
            units = {{123, 500}, {'b', 'i'}}, qform = {{252, 344}, {'s', 'i'}},
            sform = {{254, 348}, {'s', 'i'}},
            quatern = {{256, 352}, {'f', 'd'}},
            offset = {{268, 376}, {'f', 'd'}}, srow = {{280, 400}, {'f', 'd'}};

void set(Maker *m, const Place *p, int index, double v)
{
    int k = m->version - 1;
    char t = p->type[k];
    int n = t == 'b' ? 1 : t == 's' ? 2 : t == 'i' || t == 'f' ? 4 : 8;
    put(m, (size_t)(p->at[k] + index * n), t, v);
}

void make(Maker *m, int version, bool big)
{
    static const double rows[3][4] = {
        {0, -1.5, 0, 10}, {0.5, 0, 0, -20}, {0, 0, 2, 30}};
    static const int extents[] = {3, W, H, D, 1, 1, 1, 1};
    *m = (Maker){.version = version, .big = big};
    size_t begin = version == 1 ? 352 : 544;
    put(m, 0, 'i', version == 1 ? 348 : 540);
    memcpy(m->bytes + (version == 1 ? 344 : 4),
           version == 1 ? "n+1\0" : "n+2\0\r\n\032\n", version == 1 ? 4 : 8);
    for (int i = 0; i < 8; i++) set(m, &dim, i, extents[i]);
    set(m, &datatype, 0, 4);
    set(m, &bitpix, 0, 16);
    set(m, &pixdim, 0, 1);
    set(m, &pixdim, 1, 0.5);
    set(m, &pixdim, 2, 1.5);
    set(m, &pixdim, 3, 2);
    set(m, &vox_offset, 0, (double)begin);
    set(m, &slope, 0, 1);
    set(m, &units, 0, 2);
    set(m, &qform, 0, 1);
    set(m, &sform, 0, 1);
    set(m, &quatern, 2, sqrt(0.5));
    for (int r = 0; r < 3; r++) {
        set(m, &offset, r, rows[r][3]);
        for (int c = 0; c < 4; c++) set(m, &srow, r * 4 + c, rows[r][c]);
    }
    for (size_t i = 0; i < COUNT; i++)
        put(m, begin + 2 * i, 's', 100 + (double)i);
    m->size = begin + sizeof(int16_t) * COUNT;
}

bool decode(const Maker *m, const NiftiOptions *o, Volume *v)
{
    // a copy of exactly the size, so that the sanitizer notices reads beyond it
    uint8_t *copy = mem_alloc(m->size);
    REQUIRE(copy);
    memcpy(copy, m->bytes, m->size);
    bool ok =
        nifti_decode(&(NiftiBytes){copy, m->size, false}, NULL, o, v, NULL);
    mem_free(copy);
    return ok;
}

double voxel(const Volume *v, int64_t i)
{
    const void *x = v->voxels.data;
    return v->voxels.type == U8    ? ((const uint8_t *)x)[i]
           : v->voxels.type == I16 ? ((const int16_t *)x)[i]
                                   : (double)((const float *)x)[i];
}

const double made_lps[3][4] = {
    {0, 1.5, 0, -10}, {-0.5, 0, 0, 20}, {0, 0, 2, 30}};

void expect_affine(const Volume *v, const double want[3][4], double tol)
{
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++)
            EXPECT_NEAR(v->affine[r][c], want[r][c], tol);
    EXPECT(v->affine[3][3] == 1 && v->affine[3][0] == 0);
}

bool decode_gz(const uint8_t *bytes, size_t count, Volume *v)
{
    uint8_t *copy = mem_alloc(count);
    REQUIRE(copy);
    memcpy(copy, bytes, count);
    bool ok =
        nifti_decode(&(NiftiBytes){copy, count, true}, NULL, NULL, v, NULL);
    mem_free(copy);
    return ok;
}
