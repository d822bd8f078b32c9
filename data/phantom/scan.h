/* scan.h -- heads as scanners and public data sets have them.
 *
 * Volumes with noise, uneven coils, poses and contrasts that differ, whose
 * truth is known (head.h). Number by number of their Phantom. */
#ifndef SEG_DATA_PHANTOM_SCAN_H
#define SEG_DATA_PHANTOM_SCAN_H
#include "data/phantom/head.h"
#include "data/phantom/phantom.h"
#include "data/volume.h"

enum {
    SCAN_PATIENTS,
    SCAN_SIZE,  /* rows and columns     */
    SCAN_SLICES /* over the whole head  */
};

/* Patient 0 .. patients - 1: image I16, mask U8, on one grid. Of FLAIR the
 * mask is the tumour with its oedema, of T1 the brain. Both are freed by the
 * caller. */
bool scan_make(const Phantom *how, HeadContrast contrast, int patient,
               Volume *image, Volume *mask);

/* FLAIR of heads with a tumour; DICOM, one series FLAIR and one MASK (0 or 1)
 * a patient:
 *     patient_01/FLAIR/IM0001.dcm, patient_01/MASK/IM0001.dcm
 * 12 bits; names and instance numbers shuffled; transfer syntaxes, rescaling
 * and MONOCHROME1 mixed; every fourth head oblique. About 60 % of the slices
 * have no tumour. */
bool scan_write_flair(const char *folder, const Phantom *how, int patient);

/* T1 of heads that are well; NIfTI as NFBS has it:
 *     A00001/sub-A00001_ses-NFB3_T1w.nii.gz
 *     A00001/sub-A00001_ses-NFB3_T1w_brainmask.nii.gz
 * axes LAS and RAS mixed; some images scaled (scl_slope not 1). */
bool scan_write_t1(const char *folder, const Phantom *how, int patient);
#endif
