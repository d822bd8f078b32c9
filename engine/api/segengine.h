/* segengine.h -- run a trained network from another program.
 *
 * The C API: open a weights file that training wrote, query inputs and outputs,
 * run. C and C++; link with -lsegengine (pkg-config segengine). Nothing here
 * prints, exits, aborts on bad input, or changes signals or the locale. Arrays
 * are f32 in the order (N,C,[D],[H],W), dense, last axis fastest.
 *
 *     seg_model *m = seg_open("checkpoint_best.safetensors", "auto", 0);
 *     seg_tensor in = {"image", 4, {1, 1, 256, 256}, pixels};
 *     seg_tensor out = {"mask", 0, {0}, NULL};
 *     seg_run(m, &in, 1, &out, 1);   // fills out.shape
 *     out.data = malloc(...);
 *     seg_run(m, &in, 1, &out, 1);   // fills out.data
 *     seg_close(m);
 *
 * or, with a bundle, from file to file:
 *
 *     seg_predict_file(m, "head.nii.gz", "head_mask.nii.gz");
 *
 * One thread at a time may use a model; several models may run in several
 * threads. Research use only, not a medical device. */
#ifndef SEG_ENGINE_API_SEGENGINE_H
#define SEG_ENGINE_API_SEGENGINE_H
#include <stdint.h>

#define SEG_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SEG_API __attribute__((visibility("default")))
#else
#define SEG_API
#endif

enum { SEG_MAX_AXES = 5 };

typedef struct seg_model seg_model;

/* A named array. */
typedef struct seg_tensor {
    const char *name;
    int axes;
    int64_t shape[SEG_MAX_AXES];
    float *data;
} seg_tensor;

/* `path`: a bundle (segengine SCRIPT.lua export --bundle), a checkpoint of a
 * training run, or weights saved by seg.model. A bundle of another version, or
 * with entries that this library does not know, is refused. `device`: "cpu",
 * "ref", "cuda", "cuda:N" or "auto": the GPU if it passes a self-check, which
 * takes seconds once for a program, a driver and a GPU; else the CPU, and
 * seg_error() says why. `threads` 0: the number of cores, minus
 * one if there are more than four. NULL on failure. */
SEG_API seg_model *seg_open(const char *path, const char *device, int threads);
SEG_API void seg_close(seg_model *m); /* NULL is fine */

/* Fill at most `max` entries of `out` with names and shapes for one sample
 * (data NULL; names live as long as the model); return the total number. */
SEG_API int seg_inputs(const seg_model *m, seg_tensor *out, int max);
SEG_API int seg_outputs(const seg_model *m, seg_tensor *out, int max);

/* Runs the network on all of its inputs, matched by name; N and, if the network
 * allows it, the image size may differ from the declared ones. Outputs are
 * selected by name: sets axes and shape, and fills data if it is not NULL (room
 * for all elements). 0 on success, else -1. */
SEG_API int seg_run(seg_model *m, const seg_tensor *in, int inputs,
                    seg_tensor *out, int outputs);

/* For a bundle: predicts the class numbers of the image `in` (a NIfTI file, or
 * a folder with one image in DICOM or NIfTI) and writes `out` on the image's
 * own grid: .nii or .nii.gz, or .dcm, a DICOM SEG of a DICOM image. The image
 * is preprocessed as in training; the bytes equal those of `segengine predict
 * --bundle`. Written completely or not at all, never over an input. 0 on
 * success, else -1. */
SEG_API int seg_predict_file(seg_model *m, const char *in, const char *out);

/* Returns the reason of this thread's last failure: one line, never NULL. */
SEG_API const char *seg_error(void);
SEG_API const char *seg_version(void);

#ifdef __cplusplus
}
#endif
#endif
