/* phantom_write.c -- made-up patients as files, several at a time.
 *
 * The data set is written into FOLDER.tmp.<pid> and renamed: a program that
 * finds FOLDER finds all of it. */
#include "crew.h"
#include "dicom.h"
#include "file.h"
#include "gzip.h"
#include "nifti.h"
#include "phantom.h"
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_TEXT = 4096 };

// the parent is there; a folder that is there already is a fault
static bool make_folder(const char *path)
{
    if (!mkdir(path, 0777)) return true;
    return fail("%s: cannot make folder: %s", path, strerror(errno));
}

/* -- DICOM ---------------------------------------------------------------- */

// Transfer syntax, slope, photometric sense and bits change from patient to
// patient, so that a run over the set has read every form.
static bool write_dicom(const char *folder, const Phantom *how, int patient,
                        const Volume *image, const Volume *mask)
{
    char path[PATH_TEXT], id[32];
    snprintf(id, sizeof id, "PHANTOM_%03d", patient + 1);
    snprintf(path, sizeof path, "%s/patient_%02d", folder, patient + 1);
    if (!make_folder(path)) return false;
    // what scanners do in different ways, each at its own pace
    DicomWrite w = {.patient_id = id,
                    .study_description = "made-up head",
                    .description = "FLAIR",
                    .seed = how->seed,
                    .series_number = 1,
                    .syntax = (DicomSyntax)(patient % DICOM_SYNTAX_COUNT),
                    .bits_stored = 12,
                    .monochrome1 = patient % 6 == 4,
                    .shuffle = true};
    if (patient % 3 == 1) w.slope = 0.5, w.bits_stored = 16;
    size_t end = strlen(path);
    snprintf(path + end, sizeof path - end, "/FLAIR");
    if (!dicom_write_series(path, image, &w)) return false;
    w.description = "MASK";
    // slice by slice, so that masks pair by reference
    w.references = "FLAIR";
    w.series_number = 2;
    w.syntax = (DicomSyntax)((patient + 2) % DICOM_SYNTAX_COUNT);
    w.bits_stored = 8;
    w.slope = 0;
    w.monochrome1 = false;
    snprintf(path + end, sizeof path - end, "/MASK");
    return dicom_write_series(path, mask, &w);
}

/* -- NIfTI ---------------------------------------------------------------- */

// little endian, as nifti_write writes
static void put_f32(char *at, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 4; i++) at[i] = (char)(bits >> 8 * i & 255);
}

/* An image whose stored values mean slope * value + inter, which nifti_write
 * never makes: its file with the two numbers put into the header. */
static bool write_scaled(const char *path, const Volume *v, float slope,
                         float inter)
{
    enum { SLOPE_AT = 112, INTER_AT = 116, HEADER = 348 };
    char plain[PATH_TEXT], *file = NULL;
    uint8_t *packed = NULL;
    size_t bytes = 0, packed_bytes = 0;
    Arena mem = {0};
    bool ok = false;
    // without its ".gz"
    snprintf(plain, sizeof plain, "%.*s", (int)strlen(path) - 3, path);
    TRY(nifti_write(plain, v, NULL));
    TRY(file_read(plain, SIZE_MAX / 2, &mem, &file, &bytes));
    CHECK(bytes > HEADER);
    put_f32(file + SLOPE_AT, slope);
    put_f32(file + INTER_AT, inter);
    TRY(gzip_deflate(file, HEADER, file + HEADER, bytes - HEADER, &packed,
                     &packed_bytes));
    TRY(file_replace(path, packed, packed_bytes));
    ok = true;
done:
    remove(plain);
    mem_free(packed);
    arena_release(&mem);
    return ok;
}

// Named as the NFBS data set names its files, one folder a patient.
static bool write_nifti(const char *folder, int patient, const Volume *image,
                        const Volume *mask)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/A%05d", folder, patient + 1);
    if (!make_folder(path)) return false;
    size_t end = strlen(path);
    snprintf(path + end, sizeof path - end, "/sub-A%05d_ses-NFB3_T1w.nii.gz",
             patient + 1);
    bool ok = patient % 3 == 2 ? write_scaled(path, image, 0.25f, 10)
                               : nifti_write(path, image, NULL);
    snprintf(path + end, sizeof path - end,
             "/sub-A%05d_ses-NFB3_T1w_brainmask.nii.gz", patient + 1);
    return ok && nifti_write(path, mask, NULL);
}

/* -- all of them ---------------------------------------------------------- */

typedef struct Work {
    const Phantom *how;
    const char *folder;
} Work;

// both volumes live only while their files are written
static bool write_patient(void *context, int thread, int patient)
{
    const Work *work = context;
    Volume image, mask;
    (void)thread;
    if (!phantom_make(work->how, patient, &image, &mask)) return false;
    bool ok = work->how->kind == PHANTOM_FLAIR
                  ? write_dicom(work->folder, work->how, patient, &image, &mask)
                  : write_nifti(work->folder, patient, &image, &mask);
    volume_free(&image);
    volume_free(&mask);
    return ok;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

// contents first; links are removed, not followed
static void remove_tree(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// Several programs may want the same set at once: each writes aside under its
// own process number, and the first to rename wins.
bool phantom_write(const char *folder, const Phantom *how, bool *made)
{
    char aside[PATH_TEXT / 2];
    if (made) *made = false;
    if (!phantom_check(how)) return false;
    if (is_folder(folder)) return true;
    if (how->kind == PHANTOM_FLAIR && !dicom_ready()) return false;
    int n = snprintf(aside, sizeof aside, "%s.tmp.%ld", folder, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof aside)
        return fail_usage("%.64s...: the name is too long", folder);
    remove_tree(aside);
    if (!file_mkdirs(aside)) return false;
    Work work = {how, aside};
    bool ok =
        crew_run(how->patients, how->threads, how->stop, write_patient, &work);
    if (ok && !rename(aside, folder)) {
        if (made) *made = true;
        return true;
    }
    int why = errno;
    remove_tree(aside);
    if (!ok) return false;
    // another program was faster; its files have the same bytes
    if (is_folder(folder)) return true;
    return fail("%s: cannot rename %s: %s", folder, aside, strerror(why));
}
