/* scan.h -- synthetic heads in the formats of scanners and public data sets.
 *
 * Volumes with noise, coil inhomogeneity, and varying poses and contrasts, with
 * known ground truth (head.h). Numbers of this Phantom: */
#ifndef SEG_DATA_PHANTOM_SCAN_H
#define SEG_DATA_PHANTOM_SCAN_H
#include "data/phantom/head.h"
#include "data/phantom/phantom.h"
#include "data/volume.h"

enum {
    SCAN_PATIENTS,
    SCAN_SIZE,  /* rows and columns */
    SCAN_SLICES /* over the whole head */
};

/* Makes patient 0 .. patients - 1: image I16, mask U8, on one grid. For FLAIR
 * the mask is the tumour with its oedema, for T1 the brain. The caller frees
 * both. */
bool scan_make(const Phantom *how, HeadContrast contrast, int patient,
               Volume *image, Volume *mask);

/* Writes FLAIR of heads with a tumour as DICOM, one series FLAIR and one MASK
 * (0 or 1) per patient:
 *     patient_01/FLAIR/IM0001.dcm, patient_01/MASK/IM0001.dcm
 * 12 bits; names and instance numbers shuffled; various transfer syntaxes,
 * rescaling and MONOCHROME1; every fourth head oblique. About 60 % of the
 * slices have no tumour. */
bool scan_write_flair(const char *folder, const Phantom *how, int patient);

/* Writes T1 of healthy heads as NIfTI in the layout of NFBS:
 *     A00001/sub-A00001_ses-NFB3_T1w.nii.gz
 *     A00001/sub-A00001_ses-NFB3_T1w_brainmask.nii.gz
 * axes LAS and RAS; some images scaled (scl_slope not 1). */
bool scan_write_t1(const char *folder, const Phantom *how, int patient);
#endif
