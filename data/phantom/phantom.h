/* phantom.h -- data sets of made-up patients, as files that scanners write.
 *
 * For trying the program without data and for tests: volumes with noise,
 * uneven coils, poses and contrasts that differ, whose truth is known. A
 * volume is a function of (options, patient) alone: the same bytes for any
 * number of threads. Made to resemble, never to be taken for real: files name
 * segengine as the manufacturer and patients PHANTOM. */
#ifndef SEG_PHANTOM_H
#define SEG_PHANTOM_H
#include "volume.h"
#include <stdatomic.h>

typedef enum PhantomKind {
    /* FLAIR of heads with a tumour; DICOM, one series FLAIR and one MASK
     * (0 or 1; 1 = tumour with its oedema) a patient:
     *     patient_01/FLAIR/IM0001.dcm, patient_01/MASK/IM0001.dcm
     * 12 bits; names and instance numbers shuffled; transfer syntaxes,
     * rescaling and MONOCHROME1 mixed; every fourth head oblique. About 60 %
     * of the slices have no tumour. */
    PHANTOM_FLAIR,
    /* T1 of heads that are well, and the brain as mask; NIfTI as NFBS has it:
     *     A00001/sub-A00001_ses-NFB3_T1w.nii.gz
     *     A00001/sub-A00001_ses-NFB3_T1w_brainmask.nii.gz
     * axes LAS and RAS mixed; some images scaled (scl_slope not 1). */
    PHANTOM_T1,
} PhantomKind;

typedef struct Phantom {
    PhantomKind kind;
    int patients; /* 1 .. 999                                       */
    int size;     /* rows and columns, 16 .. 1024                   */
    int slices;   /* 2 .. 1024, over the whole head                 */
    uint64_t seed;
    double noise; /* sigma against the brightest tissue; 0: none    */
    int threads;  /* for writing; 0: one                            */
    const atomic_bool *stop; /* raise it to give up writing; may be NULL */
} Phantom;

/* Are the options inside the ranges named above? */
bool phantom_check(const Phantom *how);

/* Patient 0 .. patients - 1: image I16, mask U8, on one grid. Both are freed by
 * the caller. */
bool phantom_make(const Phantom *how, int patient, Volume *image, Volume *mask);

/* The whole data set in `folder`, which appears complete or not at all; one
 * that is there is kept as it is. The folders above it are made. Two programs
 * may do this at once. *made (may be NULL): it was not there before. */
bool phantom_write(const char *folder, const Phantom *how, bool *made);

/* "flair-28x256x24-1f2e3d4c": a name that tells data sets apart. */
enum { PHANTOM_NAME = 64 };
char *phantom_name(const Phantom *how, char name[PHANTOM_NAME]);
#endif
