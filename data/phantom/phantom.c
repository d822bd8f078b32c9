/* phantom.c -- the kinds of synthetic data, and the names of data sets. */
#include "data/phantom/phantom.h"
#include "data/dicom/dicom.h"
#include "data/phantom/dose.h"
#include "data/phantom/face_write.h"
#include "data/phantom/hippocampus.h"
#include "data/phantom/scan.h"
#include "data/phantom/sequence.h"
#include "engine/base/err.h"
#include "engine/base/rng.h"
#include <stdio.h>
#include <string.h>

static const PhantomForm forms[] = {
    {.format = "dicom",
     .prefix = "flair",
     .version = 1,
     .number = {{"patients", 28, 1, 999},
                {"size", 256, 16, 1024},
                {"slices", 24, 2, 1024}},
     .noise = 0.03, // sigma relative to the brightest tissue
     .write = scan_write_flair},
    {.format = "nifti",
     .prefix = "t1",
     .version = 1,
     .number = {{"patients", 28, 1, 999},
                {"size", 256, 16, 1024},
                {"slices", 24, 2, 1024}},
     .noise = 0.03,
     .write = scan_write_t1},
    {.format = "faces",
     .prefix = "faces",
     .version = 1,
     .number = {{"people", 40, 1, 999},
                {"photos", 30, 1, 999},
                {"size", 128, 32, 450}},
     .noise = 0.02, // sigma relative to white
     .write = face_write},
    {.format = "openkbp",
     .prefix = "dose",
     .version = 1,
     .number = {{"patients", 12, 1, 999}},
     .noise = 0.02, // sigma of soft tissue in the CT
     .write = dose_write},
    {.format = "hippocampus",
     .prefix = "hippocampus",
     .version = 1,
     .number = {{"patients", 60, 1, 999}},
     .noise = 0.05, // sigma relative to a brightness of 1
     .write = hippocampus_write},
    {.format = "sequences",
     .prefix = "sequences",
     .version = 1,
     .number = {{"speakers", 6, 1, 999},
                {"takes", 10, 1, 999},
                {"classes", 4, 2, 10},
                {"features", 16, 8, 1024}},
     .noise = 0.1, // sigma relative to the peak of a syllable
     .write = sequence_write,
     .finish = sequence_table},
};

enum { FORMS = sizeof forms / sizeof *forms };

const PhantomForm *phantom_form_at(int i)
{
    return i >= 0 && i < FORMS ? &forms[i] : NULL;
}

const PhantomForm *phantom_form(const char *format)
{
    char list[256] = "";
    size_t end = 0;

    for (int i = 0; i < FORMS; i++) {
        if (!strcmp(forms[i].format, format)) return &forms[i];
        int n = snprintf(list + end, sizeof list - end, "%s\"%s\"",
                         !i              ? ""
                         : i + 1 < FORMS ? ", "
                                         : " or ",
                         forms[i].format);
        end += (size_t)n < sizeof list - end ? (size_t)n : 0;
    }

    fail_usage("data.phantom: format must be %s, got \"%.40s\"", list, format);
    return NULL;
}

bool phantom_check(const Phantom *how)
{
    for (int i = 0; i < PHANTOM_NUMBERS && how->form->number[i].name; i++) {
        const PhantomNumber *want = &how->form->number[i];
        if (how->number[i] < want->least || how->number[i] > want->most)
            return fail_usage("phantom: %s must be from %d to %d, got %d",
                              want->name, want->least, want->most,
                              how->number[i]);
    }
    if (!(how->noise >= 0 && how->noise <= 1))
        return fail_usage("phantom: noise must be from 0 to 1, got %g",
                          how->noise);
    return true;
}

// The name contains or hashes everything that the bytes depend on, so equal
// names mean equal files.
char *phantom_name(const Phantom *how, char name[PHANTOM_NAME])
{
    char text[128], sizes[48] = "";
    size_t end = 0;
    for (int i = 0; i < PHANTOM_NUMBERS && how->form->number[i].name; i++)
        end += (size_t)snprintf(sizes + end, sizeof sizes - end, "%s%d",
                                i ? "x" : "", how->number[i]);
    // the parameters that are not in the name are in its hash
    snprintf(text, sizeof text, "%d %llu %.17g", how->form->version,
             (unsigned long long)how->seed, how->noise);
    snprintf(name, PHANTOM_NAME, "%s-%s-%08x", how->form->prefix, sizes,
             (unsigned)rng_hash(text));
    return name;
}
