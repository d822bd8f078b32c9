/* patient.c -- see patient.h. */
#include "data/dicom/patient.h"
#include "data/dicom/file.h"
#include "data/dicom/header.h"
#include "data/dicom/text.h"

/* Returns a text of the source without its padding, "" if absent: unchanged if
 * the character set `set` is copied too, else in UTF-8, which a segment's name
 * requires. */
static const char *source_text(Elements *l, const Walk *w, const char *path,
                               uint32_t tag, const char *set,
                               int32_t beyond_ascii)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, tag);
    const char *p = e ? (const char *)w->bytes + e->offset : "";
    // longer than any of these elements may be: left empty, not cut
    const int n = (int)walk_unpadded(p, e && e->length < 900 ? e->length : 0);

    if (!beyond_ascii) return arena_printf(&l->arena, "%.*s", n, p);
    if (tag == TAG_SpecificCharacterSet) return "ISO_IR 192";
    bool known;
    const char *text = text_as_utf8(&l->arena, p, (size_t)n, set,
                                    e && e->vr == VR('P', 'N'), &known);

    if (!known)
        dicom_fail(path, tag,
                   "name the segments in ASCII, or convert the series to "
                   "ISO_IR 192",
                   "a text in character set \"%.40s\", which cannot be turned "
                   "into ISO_IR 192 for the name of segment %d",
                   set, beyond_ascii);
    return text;
}

// The elements are those of the patient and study modules.
bool patient_copy(Elements *l, const char *path, int32_t beyond_ascii)
{
    static const int tags[] = {
        TAG_SpecificCharacterSet,
        TAG_StudyDate,
        TAG_StudyTime,
        TAG_AccessionNumber,
        TAG_ReferringPhysicianName,
        TAG_StudyDescription,
        TAG_PatientName,
        TAG_PatientID,
        TAG_PatientBirthDate,
        TAG_PatientSex,
        TAG_PatientAge,
        TAG_PatientIdentityRemoved,
        TAG_DeidentificationMethod,
        TAG_StudyInstanceUID,
        TAG_StudyID,
        TAG_FrameOfReferenceUID,
        TAG_PositionReferenceIndicator,
    };

    // type 2: present even if unknown in the source
    static const int always[] = {
        TAG_StudyDate,       TAG_StudyTime,
        TAG_AccessionNumber, TAG_PatientName,
        TAG_PatientID,       TAG_ReferringPhysicianName,
        TAG_PatientSex,      TAG_PatientBirthDate,
        TAG_StudyID,         TAG_PositionReferenceIndicator};
    DicomFile f;
    // the series has been read: a missing transfer syntax was accepted
    const DicomOptions loose = {.assume_implicit_le = true};
    bool ok = dicom_file_open(path, &loose, true, &f) == WALK_DONE;
    const char *set = ok ? header_text(&f.walk,
                                       walk_find(&f.walk, WALK_ROOT,
                                                 TAG_SpecificCharacterSet),
                                       &l->arena, NULL)
                         : NULL;

    ok = set != NULL;
    for (size_t i = 0; ok && i < sizeof tags / sizeof *tags; i++) {
        const uint32_t tag = (uint32_t)tags[i];
        bool wanted = walk_find(&f.walk, WALK_ROOT, tag) != NULL;
        for (size_t k = 0; k < sizeof always / sizeof *always; k++)
            wanted = wanted || always[k] == tags[i];
        if (tag == TAG_SpecificCharacterSet && beyond_ascii) wanted = true;
        if (!wanted) continue;
        const char *text =
            source_text(l, &f.walk, path, tag, set, beyond_ascii);
        ok = text != NULL;
        if (ok) elements_put(l, tag, "%s", text);
    }

    dicom_file_close(&f);
    return ok;
}
