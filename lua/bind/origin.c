/* origin.c -- facts of a case that show whether it is similar to the training
 * data: its path, its spacing, the range of its voxel values. */
#include "data/dicom/file.h"
#include "data/preprocess/pipeline.h"
#include "lua/bind/data.h"

/* data.seen(pipeline, case) -> {path=, rank=, modality=, description=,
 * spacing={w,h,d} in mm, channels={{lo=,hi=,mean=,sd=}, ...}}: the file or
 * folder of its first field and the number of its axes without channels; of a
 * DICOM series also Modality and SeriesDescription; spacing and voxels as
 * loaded, before any step (channels: the first four of an image) */
static int l_seen(lua_State *L)
{
    Pipeline *p = check_pipeline(L, 1);
    const Dataset *ds = pipeline_dataset(p);
    const int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const CaseFacts *f = pipeline_facts(p, i);
    const DicomSeries *series = case_series(ds, i);
    double spacing[3];

    grid_spacing_mm(&f->input, spacing);
    lua_createtable(L, 0, 6);
    set_integer(L, "rank", ds->field[0].rank);
    set_text(L, "path", ds->cases[i].field[0].source->path);
    if (series) {
        set_text(L, "modality", series->modality);
        set_text(L, "description", series->description);
    }
    push_numbers(L, 3, spacing);
    lua_setfield(L, -2, "spacing");
    lua_createtable(L, f->intensities, 0);

    for (int c = 0; c < f->intensities; c++) {
        lua_createtable(L, 0, 4);
        set_number(L, "lo", (double)f->intensity[c].lo);
        set_number(L, "hi", (double)f->intensity[c].hi);
        set_number(L, "mean", (double)f->intensity[c].mean);
        set_number(L, "sd", (double)f->intensity[c].sd);
        lua_rawseti(L, -2, c + 1);
    }

    lua_setfield(L, -2, "channels");
    return 1;
}

/* data.patient_name(ds, case) -> PatientName of a DICOM series, "" when the
 * case has none, cannot be read or is not DICOM. It serves only to remove the
 * name from texts that are kept. */
static int l_patient_name(lua_State *L)
{
    const Dataset *ds = check_dataset(L, 1);
    const int i = (int)check_int(L, 2, "case", 1, ds->count) - 1;
    const DicomSeries *series = case_series(ds, i);
    const char *text = NULL;
    Arena mem = {NULL};
    DicomFile f;

    if (series && series->count > 0) {
        if (dicom_file_open(series->paths[0], NULL, true, &f) == WALK_DONE)
            text = header_text(&f.walk,
                               walk_find(&f.walk, WALK_ROOT, TAG_PatientName),
                               &mem, NULL);
        dicom_file_close(&f);
    }

    lua_pushstring(L, text ? text : "");
    arena_release(&mem);
    return 1;
}

void bind_origin(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"seen", l_seen}, {"patient_name", l_patient_name}, {NULL, NULL}};
    lua_getfield(L, -1, "data");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
