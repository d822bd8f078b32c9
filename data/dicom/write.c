/* write.c -- writes a series of single-frame images: the phantom's patients,
 * and the files that tests damage.
 *
 * Not a general writer: it writes the attributes on which a reader of MR and CT
 * may rely, in any of the transfer syntaxes of DicomSyntax, with the requested
 * slopes, signs and photometric interpretations. UIDs are functions of names
 * and the seed, so that a mask can refer to an image that is written later. */
#include "data/dicom/elements.h"
#include "data/dicom/encode.h"
#include "data/dicom/stack.h"
#include "engine/base/rng.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// op numbers of the two permutations in the phantom's random stream
enum { DRAW_NAMES = 61001, DRAW_NUMBERS = 61002 };

// The UID of an instance: by patient, series and slice, never by its contents,
// so that a mask can name its image before that exists.
static void instance_uid(const DicomWrite *how, const char *series, int slice,
                         char uid[UID_TEXT])
{
    char key[512];
    snprintf(key, sizeof key, "instance|%llu|%.200s|%.200s|%d",
             (unsigned long long)how->seed, how->patient_id, series, slice);
    uid_from(key, uid);
}

// a UID of the patient (study, frame) or of the series, by `kind`
static void common_uid(const DicomWrite *how, const char *kind,
                       const char *series, char uid[UID_TEXT])
{
    char key[512];
    snprintf(key, sizeof key, "%s|%llu|%.200s|%.200s", kind,
             (unsigned long long)how->seed, how->patient_id, series);
    uid_from(key, uid);
}

static bool is_ct(const DicomWrite *how)
{
    return how->modality && !strcmp(how->modality, "CT");
}

// writes patient, study, series and instance
static void put_identity(Elements *l, const DicomWrite *how, int slice)
{
    char uid[UID_TEXT];
    const char *sop_class = is_ct(how) ? CLASS_CT : CLASS_MR;
    elements_put(l, TAG_SpecificCharacterSet, "ISO_IR 192");
    elements_put(l, TAG_ImageType, "%s",
                 is_ct(how) ? "ORIGINAL\\PRIMARY\\AXIAL"
                            : "ORIGINAL\\PRIMARY\\OTHER");
    elements_put(l, TAG_SOPClassUID, "%s", sop_class);
    instance_uid(how, how->description, slice, uid);
    elements_put(l, TAG_SOPInstanceUID, "%s", uid);

    // no clock: equal arguments give equal bytes. Unknown elements that the
    // standard requires are written empty.
    elements_put(l, TAG_StudyDate, "%s", "");
    elements_put(l, TAG_StudyTime, "%s", "");
    elements_put(l, TAG_AccessionNumber, "%s", "");
    elements_put(l, TAG_Modality, "%s", how->modality ? how->modality : "MR");
    elements_put(l, TAG_Manufacturer, "segengine");
    elements_put(l, TAG_ReferringPhysicianName, "%s", "");
    if (how->study_description)
        elements_put(l, TAG_StudyDescription, "%s", how->study_description);
    elements_put(l, TAG_SeriesDescription, "%s", how->description);

    if (how->references) {
        instance_uid(how, how->references, slice, uid);
        elements_open(l, TAG_ReferencedImageSequence);
        elements_item(l);
        elements_put(l, TAG_ReferencedSOPClassUID, "%s", sop_class);
        elements_put(l, TAG_ReferencedSOPInstanceUID, "%s", uid);
        elements_close(l);
    }

    elements_put(l, TAG_PatientName, "%s",
                 how->patient_name ? how->patient_name : how->patient_id);
    elements_put(l, TAG_PatientID, "%s", how->patient_id);
    elements_put(l, TAG_PatientBirthDate, "%s", "");
    elements_put(l, TAG_PatientSex, "%s", "");
    common_uid(how, "study", "", uid);
    elements_put(l, TAG_StudyInstanceUID, "%s", uid);
    common_uid(how, "series", how->description, uid);
    elements_put(l, TAG_SeriesInstanceUID, "%s", uid);
    elements_put(l, TAG_StudyID, "1");
    elements_put(l, TAG_SeriesNumber, "%d",
                 how->series_number ? how->series_number : 1);
    common_uid(how, "frame", "", uid);
    elements_put(l, TAG_FrameOfReferenceUID, "%s", uid);
    elements_put(l, TAG_PositionReferenceIndicator, "%s", "");
}

// writes the elements that the standard requires in every MR or CT image
static void put_acquisition(Elements *l, const DicomWrite *how)
{
    if (is_ct(how)) {
        elements_put(l, TAG_KVP, "%s", "");
        elements_put(l, TAG_AcquisitionNumber, "%s", "");
    } else {
        elements_put(l, TAG_ScanningSequence, "RM");
        elements_put(l, TAG_SequenceVariant, "NONE");
        elements_put(l, TAG_ScanOptions, "%s", "");
        elements_put(l, TAG_MRAcquisitionType, "2D");
        elements_put(l, TAG_RepetitionTime, "%s", "");
        elements_put(l, TAG_EchoTime, "%s", "");
        elements_put(l, TAG_EchoTrainLength, "%s", "");
    }

    elements_put(l, TAG_PatientPosition, "HFS");
    elements_put(l, TAG_Laterality, "%s", "");
}

// writes the position of the slice and its pixel format
static void put_image(Elements *l, const DicomWrite *how, const Volume *v,
                      int slice, int instance, const CodecPixels *form)
{
    double mm[3], position[3], orientation[6], spacing[2];

    // PixelSpacing is between rows first, then between columns: h, then w
    volume_spacing_mm(v, mm);
    volume_world(v, 0, 0, slice, position);
    for (int a = 0; a < 3; a++) {
        orientation[a] = v->affine[a][0] / mm[0];
        orientation[3 + a] = v->affine[a][1] / mm[1];
    }
    spacing[0] = mm[1], spacing[1] = mm[0];
    elements_decimals(l, TAG_SliceThickness, &mm[2], 1);
    elements_put(l, TAG_InstanceNumber, "%d", instance);
    elements_decimals(l, TAG_ImagePositionPatient, position, 3);
    elements_decimals(l, TAG_ImageOrientationPatient, orientation, 6);
    elements_put(l, TAG_SamplesPerPixel, "1");
    elements_put(l, TAG_PhotometricInterpretation, "MONOCHROME%d",
                 how->monochrome1 ? 1 : 2);
    elements_put(l, TAG_Rows, "%d", form->rows);
    elements_put(l, TAG_Columns, "%d", form->cols);
    elements_decimals(l, TAG_PixelSpacing, spacing, 2);
    elements_put(l, TAG_BitsAllocated, "%d", form->allocated);
    elements_put(l, TAG_BitsStored, "%d", form->stored);
    elements_put(l, TAG_HighBit, "%d", form->stored - 1);
    elements_put(l, TAG_PixelRepresentation, "%d", form->is_signed);
    double slope = how->slope;

    if (slope != 0 || is_ct(how)) {
        if (slope == 0) slope = 1;
        elements_decimals(l, TAG_RescaleIntercept, &how->intercept, 1);
        elements_decimals(l, TAG_RescaleSlope, &slope, 1);
        elements_put(l, TAG_RescaleType, "%s", is_ct(how) ? "HU" : "US");
    }
}

// voxel i of any type that check_arguments accepts
static double voxel(const Volume *v, int64_t i)
{
    if (v->voxels.type == U8) return ((const uint8_t *)v->voxels.data)[i];
    if (v->voxels.type == I16) return ((const int16_t *)v->voxels.data)[i];
    return (double)((const float *)v->voxels.data)[i];
}

// converts one slice to stored samples, little endian
static bool store_slice(const Volume *v, const DicomWrite *how, int slice,
                        const CodecPixels *form, const char *path, uint8_t *out)
{
    int64_t plane = (int64_t)form->rows * form->cols;
    // low .. high is the range of the bits; low + high - s inverts it
    int32_t range = 1 << form->stored;
    int32_t low = form->is_signed ? -range / 2 : 0, high = low + range - 1;
    double slope = how->slope != 0 ? how->slope : 1;
    double intercept = how->slope != 0 || is_ct(how) ? how->intercept : 0;
    // as dicom_load inverts: a rescale, or HU, applies to the stored value
    bool inverted =
        how->monochrome1 && !is_ct(how) && slope == 1 && intercept == 0;

    for (int64_t i = 0; i < plane; i++) {
        double value = voxel(v, slice * plane + i);
        // half up, so that .5 rounds in the same direction on either side of 0
        double stored = floor((value - intercept) / slope + 0.5);
        // written so that NaN is refused too
        if (!(stored >= low && stored <= high))
            return fail_data("%s: dicom: value %g is stored as %g, which %d "
                             "%s bits cannot hold",
                             path, value, stored, form->stored,
                             form->is_signed ? "signed" : "unsigned");
        int32_t s = (int32_t)stored;
        if (inverted) s = low + high - s;
        // a negative number as its low bits
        uint32_t bits = (uint32_t)s & (uint32_t)(range - 1);
        if (form->allocated == 8) {
            out[i] = (uint8_t)bits;
        } else {
            out[2 * i] = (uint8_t)bits;
            out[2 * i + 1] = (uint8_t)(bits >> 8);
        }
    }
    return true;
}

// 0 .. n-1, or a random order that is not the spatial order
static void draw_order(const DicomWrite *how, int draw, uint32_t n,
                       uint32_t *order)
{
    Rng r = {.seed = how->seed,
             .stream = RNG_PHANTOM,
             .op = (uint16_t)draw,
             .sample = rng_hash(how->description)};
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    if (!how->shuffle || n < 2) return;
    rng_permutation(&r, n, order);
    // a shuffle that changes nothing would test nothing
    bool same = true;
    for (uint32_t i = 0; i < n; i++) same = same && order[i] == i;
    for (uint32_t i = 0; same && i < n; i++) order[i] = (i + 1) % n;
}

// an error of the user is a reason, a bug of the caller a CHECK
static bool check_arguments(const char *folder, const Volume *v,
                            const DicomWrite *how, CodecPixels *form)
{
    Dims d = v->voxels.dim;
    const char *texts[] = {how->patient_id, how->description, how->patient_name,
                           how->study_description, how->references};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i] && strlen(texts[i]) > 64)
            return fail_usage("%s: dicom: \"%.64s...\" is longer than 64 bytes",
                              folder, texts[i]);
    CHECK(how->patient_id && how->description && v->voxels.data);
    CHECK(how->syntax >= 0 && how->syntax < DICOM_SYNTAX_COUNT);
    CHECK(how->bits_stored >= 0 && how->bits_stored <= 16);
    if (d.n != 1 || d.c != 1 || d.h > 65535 || d.w > 65535 ||
        (v->voxels.type != U8 && v->voxels.type != I16 &&
         v->voxels.type != F32))
        return fail("%s: dicom: cannot write %d x %d x %d x %d %s voxels",
                    folder, d.d, d.h, d.w, d.c, dtype_name(v->voxels.type));

    int stored = how->bits_stored ? how->bits_stored : 16;
    *form = (CodecPixels){.syntax_uid = dicom_syntax_uid(how->syntax),
                          .rows = (uint16_t)d.h,
                          .cols = (uint16_t)d.w,
                          .allocated = stored <= 8 ? 8 : 16,
                          .stored = (uint16_t)stored,
                          .is_signed = how->is_signed,
                          .frames = 1};
    return true;
}

bool dicom_writes(DicomSyntax syntax)
{
    return dicom_encodes(dicom_syntax_uid(syntax)) || dicom_ready();
}

// one list of elements is used repeatedly: freed after each file
bool dicom_write_series(const char *folder, const Volume *v,
                        const DicomWrite *how)
{
    CodecPixels form;
    if (!check_arguments(folder, v, how, &form)) return false;
    if (!dicom_encodes(form.syntax_uid) && !dicom_ready()) return false;
    struct stat st;

    // an existing folder is written to: files of the same names are replaced
    if (mkdir(folder, 0777) &&
        (errno != EEXIST || stat(folder, &st) || !S_ISDIR(st.st_mode)))
        return fail("%s: cannot make folder: %s", folder, strerror(errno));
    uint32_t n = (uint32_t)v->voxels.dim.d;
    size_t bytes = (size_t)form.rows * form.cols * form.allocated / 8;
    Arena scratch = {0};
    Elements list = {0};
    bool ok = false;
    uint32_t *names = ARENA_NEW(&scratch, uint32_t, n);
    // file names and instance numbers in two different orders, as in real
    // archives
    uint32_t *numbers = ARENA_NEW(&scratch, uint32_t, n);
    uint8_t *pixels = arena_alloc(&scratch, bytes);
    TRY(names && numbers && pixels);
    draw_order(how, DRAW_NAMES, n, names);
    draw_order(how, DRAW_NUMBERS, n, numbers);

    for (uint32_t i = 0; i < n; i++) {
        int slice = (int)i;
        char *path = arena_printf(&scratch, "%s/IM%04u.dcm", folder,
                                  (unsigned)names[i] + 1);
        TRY(path);
        put_identity(&list, how, slice);
        put_acquisition(&list, how);
        put_image(&list, how, v, slice, (int)numbers[i] + 1, &form);
        TRY(store_slice(v, how, slice, &form, path, pixels));
        TRY(elements_write(&list, path, &form, pixels, bytes));
        elements_free(&list);
    }

    ok = true;

done:
    elements_free(&list);
    arena_release(&scratch);
    return ok;
}
