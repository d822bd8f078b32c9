/* dicom_source.c -- see dicom_source.h. */
#include "data/dataset/dicom_source.h"
#include "data/dataset/dataset_build.h"
#include <stdio.h>

bool dicom_may_be(const DicomSeries *s, DicomRole role)
{
    bool image = s->kind == DICOM_IMAGE || s->kind == DICOM_MULTI;
    if (role == DICOM_AS_DOSE) return s->kind == DICOM_DOSE;
    return role == DICOM_AS_IMAGE ? image : s->kind != DICOM_DOSE;
}

/* Is no file of the series, or of its image, damaged? */
static bool is_whole(const Source *s)
{
    const DicomSeries *own = s->what, *image = s->image;
    if (image && image->damaged) return fail_data("%s", image->damaged);
    return !own->damaged || fail_data("%s", own->damaged);
}

/* The three functions for Source.load. */
static bool load_image(const Source *s, Volume *out, DicomNotes *notes)
{
    const DicomRead *r = s->how;
    if (!is_whole(s)) return false;
    return dicom_load(s->what, &r->files, out, notes);
}

static bool load_mask(const Source *s, Volume *out, DicomNotes *notes)
{
    const DicomRead *r = s->how;
    if (!is_whole(s)) return false;
    return dicom_load_mask(s->image, s->what, &r->mask, out, notes);
}

static bool load_dose(const Source *s, Volume *out, DicomNotes *notes)
{
    const DicomRead *r = s->how;
    if (!is_whole(s)) return false;
    return dicom_load_dose(s->what, s->image, r->resample_dose, &r->files, out,
                           notes);
}

/* Lists the files of the series and of its image, and every option of the
 * readers; labels are part of the data set. */
static bool depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const DicomRead *r = s->how;
    const DicomSeries *own = s->what, *image = s->image;
    const DicomOptions *option[] = {&r->files, &r->mask.image};
    const char *text = "dicom";
    int files = own->count + (image && own != image ? image->count : 0);
    const char **file = ARENA_NEW(mem, const char *, files);

    if (!file) return false;
    for (int i = 0; i < files; i++)
        file[i] = i < own->count ? own->paths[i] : image->paths[i - own->count];
    for (int i = 0; text && i < r->mask.segment_count; i++)
        text = arena_printf(mem, "%s,%s", text, r->mask.segments[i]);
    for (int i = 0; text && i < 2; i++)
        text = arena_printf(mem, "%s %d %d %d %g", text, option[i]->assume_hu,
                            option[i]->resample_tilt,
                            option[i]->assume_implicit_le,
                            option[i]->position_tolerance);

    if (text)
        text =
            arena_printf(mem, "%s %d %d %d %d", text, r->mask.partial,
                         s->labels_ready, r->mask.fractions, r->resample_dose);

    // without the option the text is unchanged, so that existing caches stay
    // valid
    if (text && r->mask.contour_tolerance_mm > 0)
        text = arena_printf(mem, "%s contour %g", text,
                            r->mask.contour_tolerance_mm);
    out->file = file, out->files = files, out->asked = text;
    return text != NULL;
}

Source dicom_source(const DicomSeries *series, const DicomSeries *image,
                    DicomRole role, const DicomRead *how)
{
    static bool (*const loads[])(const Source *, Volume *, DicomNotes *) = {
        load_image, load_mask, load_dose};

    // selected segments become 1, 2, ... by name; values of an ordinary series
    // become class numbers by the list of labels
    bool named = series->kind == DICOM_SEG || series->kind == DICOM_STRUCTURE;
    return (Source){.load = loads[role],
                    .depends = depends,
                    .path = series->folder,
                    .what = series,
                    .image = image,
                    .how = how,
                    .labels_ready = named ? how->mask.segment_count > 0
                                          : how->mask.labels != NULL};
}

const DicomSeries *dicom_source_series(const Source *s)
{
    return s->load == load_image ? s->what : NULL;
}

const DicomSeries *case_series(const Dataset *ds, int number)
{
    return dicom_source_series(ds->cases[number].field[0].source);
}

/* The role of a series that is a field of a list. */
static DicomRole role_in(const DicomSeries *s, FieldKind kind)
{
    if (kind == FIELD_LABEL) return DICOM_AS_MASK;
    return kind == FIELD_VALUE && s->kind == DICOM_DOSE ? DICOM_AS_DOSE
                                                        : DICOM_AS_IMAGE;
}

bool dicom_source_find(const char *path, FieldKind kind, const Source *first,
                       const DicomRead *how, Arena *mem, Source *out)
{
    static const char *const wanted[] = {
        [FIELD_IMAGE] = "an image",
        [FIELD_VALUE] = "an image or a dose",
        [FIELD_LABEL] = "a mask",
    };
    const DicomSeries *image = first ? dicom_source_series(first) : NULL;
    const DicomSeries *found = NULL;
    Names suit = {.count = 0}, there = {.count = 0};
    DicomIndex index;

    CHECK(kind <= FIELD_LABEL);

    // slices of a mask are paired with, and contours filled on, the image
    if (kind == FIELD_LABEL && !image)
        return fail_usage("a mask in DICOM needs the series of its image: the "
                          "first field must be an image that is read by "
                          "\"dicom\", too");
    if (!dicom_scan(path, &how->files, mem, &index)) return false;

    for (int i = 0; i < index.count; i++) {
        const DicomSeries *s = &index.series[i];
        char text[160];
        snprintf(text, sizeof text, "%.60s (%s)",
                 *s->description ? s->description : s->series_uid, s->modality);
        names_add(&there, text);
        if (!dicom_may_be(s, role_in(s, kind))) continue;
        names_add(&suit, text);
        found = s;
    }

    if (suit.count > 1)
        return fail_data("%s: dicom: %d series here can be %s: %s; fix: the "
                         "folder, or the file, of one of them",
                         path, suit.count, wanted[kind], suit.text);
    if (!found)
        return fail_data("%s: dicom: no series here can be %s, there is %s",
                         path, wanted[kind], there.text);
    DicomRole role = role_in(found, kind);

    // an image is its own reference
    *out =
        dicom_source(found, role == DICOM_AS_IMAGE ? found : image, role, how);
    out->path = arena_strdup(mem, path);
    return out->path != NULL;
}
