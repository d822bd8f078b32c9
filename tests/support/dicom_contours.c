/* dicom_contours.c -- see dicom_contours.h. */
#include "tests/support/dicom_contours.h"
#include "data/dicom/polygon.h"

void desk_set_up(Desk *d, const char *name, const double (*affine)[4])
{
    char folder[80];
    *d = (Desk){.image = NULL};
    kit_volume(&d->v, D, H, W, true);
    if (affine) memcpy(d->v.affine, affine, sizeof d->v.affine);
    DicomWrite how = kit_write();
    how.shuffle = true;
    snprintf(folder, sizeof folder, "%s_image", name);
    REQUIRE(dicom_write_series(kit_folder(folder), &d->v, &how));
    d->image = kit_series(&d->arena, kit_folder(folder));
    snprintf(folder, sizeof folder, "%s_set", name);
    snprintf(d->path, sizeof d->path, "%s/set.dcm", kit_folder(folder));
}

void desk_clear(Desk *d)
{
    volume_free(&d->v);
    arena_release(&d->arena);
}

bool desk_load(Desk *d, const MadeRegion *r, int n, const char *series,
               const DicomMaskOptions *o, Volume *out, DicomNotes *notes)
{
    make_set(&(MadeSet){.v = &d->v,
                        .image = d->image,
                        .region = r,
                        .regions = n,
                        .series = series},
             d->path);
    return dicom_load_mask(d->image, kit_series(&d->arena, d->path), o, out,
                           notes);
}

const double desk_big[10] = {1.3, 1.2, 11.6, 2.4, 12.1, 9.7, 6.2, 10.4, 2, 8};
const double desk_hole[8] = {4.2, 3.7, 8.8, 4.1, 7.3, 7.9, 4.6, 7.2};

void desk_expect(const MadeContour *c, int n, int label, uint8_t *want)
{
    uint8_t plane[D * PLANE] = {0};
    for (int i = 0; i < n; i++)
        contour_add(plane + c[i].slice * PLANE, H, W, c[i].uv,
                    (size_t)c[i].points);
    contour_fill(plane, D * H, W);
    for (int i = 0; i < D * PLANE; i++)
        if (plane[i]) want[i] = (uint8_t)label;
}
