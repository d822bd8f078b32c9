/* scan_write.c -- writes synthetic heads in the formats of hospitals and
 * NFBS. */
#include "data/dicom/dicom.h"
#include "data/format/gzip.h"
#include "data/format/nifti.h"
#include "data/phantom/scan.h"
#include "engine/base/file.h"
#include <stdio.h>
#include <string.h>

enum { PATH_TEXT = 4096 };

/* -- DICOM ---------------------------------------------------------------- */

// The transfer syntaxes in turn. A build without DCMTK writes no compressed
// file; all of them are lossless, so its patients have the same voxels.
static DicomSyntax syntax_of(int number)
{
    const DicomSyntax syntax = (DicomSyntax)(number % DICOM_SYNTAX_COUNT);
    return dicom_writes(syntax) ? syntax : DICOM_EXPLICIT_LE;
}

// Transfer syntax, slope, photometric interpretation and bits vary between
// patients, so that a run over the data set reads every form.
static bool write_dicom(const char *folder, const Phantom *how, int patient,
                        const Volume *image, const Volume *mask)
{
    char path[PATH_TEXT], id[32];
    snprintf(id, sizeof id, "PHANTOM_%03d", patient + 1);
    snprintf(path, sizeof path, "%s/patient_%02d", folder, patient + 1);
    if (!phantom_mkdir(path)) return false;

    // Properties in which scanners differ, with different periods. The study
    // description stays, as cache files identify a case by the bytes of its
    // files.
    DicomWrite w = {.patient_id = id,
                    .study_description = "made-up head",
                    .description = "FLAIR",
                    .seed = how->seed,
                    .series_number = 1,
                    .syntax = syntax_of(patient),
                    .bits_stored = 12,
                    .monochrome1 = patient % 6 == 4,
                    .shuffle = true};
    if (patient % 3 == 1) w.slope = 0.5, w.bits_stored = 16;
    size_t end = strlen(path);
    snprintf(path + end, sizeof path - end, "/FLAIR");
    if (!dicom_write_series(path, image, &w)) return false;
    w.description = "MASK";

    // slice by slice, so that masks are matched by reference
    w.references = "FLAIR";
    w.series_number = 2;
    w.syntax = syntax_of(patient + 2);
    w.bits_stored = 8;
    w.slope = 0;
    w.monochrome1 = false;
    snprintf(path + end, sizeof path - end, "/MASK");
    return dicom_write_series(path, mask, &w);
}

/* -- NIfTI ---------------------------------------------------------------- */

// little endian, as in nifti_write
static void put_f32(char *at, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 4; i++) at[i] = (char)(bits >> 8 * i & 255);
}

/* Writes an image with stored values scaled by slope * value + inter, which
 * nifti_write does not support: patches the two numbers in its header. */
static bool write_scaled(const char *path, const Volume *v, float slope,
                         float inter)
{
    enum { SLOPE_AT = 112, INTER_AT = 116, HEADER = 348 };
    char plain[PATH_TEXT], *file = NULL;
    uint8_t *packed = NULL;
    size_t bytes = 0, packed_bytes = 0;
    Arena mem = {0};
    bool ok = false;

    // path without ".gz"
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

// File names as in NFBS, one folder per patient.
static bool write_nifti(const char *folder, int patient, const Volume *image,
                        const Volume *mask)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/A%05d", folder, patient + 1);
    if (!phantom_mkdir(path)) return false;
    size_t end = strlen(path);
    snprintf(path + end, sizeof path - end, "/sub-A%05d_ses-NFB3_T1w.nii.gz",
             patient + 1);
    bool ok = patient % 3 == 2 ? write_scaled(path, image, 0.25f, 10)
                               : nifti_write(path, image, NULL);
    snprintf(path + end, sizeof path - end,
             "/sub-A%05d_ses-NFB3_T1w_brainmask.nii.gz", patient + 1);
    return ok && nifti_write(path, mask, NULL);
}

/* -- one patient ---------------------------------------------------------- */

// both volumes are in memory only while their files are written
static bool write_head(const char *folder, const Phantom *how,
                       HeadContrast contrast, int patient)
{
    Volume image, mask;
    if (!scan_make(how, contrast, patient, &image, &mask)) return false;
    bool ok = contrast == HEAD_FLAIR
                  ? write_dicom(folder, how, patient, &image, &mask)
                  : write_nifti(folder, patient, &image, &mask);
    volume_free(&image);
    volume_free(&mask);
    return ok;
}

bool scan_write_flair(const char *folder, const Phantom *how, int patient)
{
    return write_head(folder, how, HEAD_FLAIR, patient);
}

bool scan_write_t1(const char *folder, const Phantom *how, int patient)
{
    return write_head(folder, how, HEAD_T1, patient);
}
