/* auto_device.h -- the device for `--device auto`: a GPU that passed its
 * self-check, else the CPU.
 *
 * The self-check (self_check.h) runs in f32 and in the precision of the run,
 * each unless this process has run it or a record of it exists. A GPU that
 * lacks the precision is not checked. */
#ifndef SEG_ENGINE_CHECK_AUTO_DEVICE_H
#define SEG_ENGINE_CHECK_AUTO_DEVICE_H
#include "engine/backend/backend.h"

enum { DEVICE_TEXT = 16 };

typedef struct AutoDevice {
    char device[DEVICE_TEXT]; /* for backend_find: "cuda:0", "cpu" */
    char why[ERR_MAX];        /* why the CPU; "" for a GPU          */
    char warning[ERR_MAX];    /* a line for the user, or "": the failed case to
                               * report, or why a result is not remembered */
} AutoDevice;

/* Chooses between GPU `number` of `gpu` (NULL: a build without GPUs) and the
 * CPU. */
void auto_device(const Backend *gpu, int number, Precision p, AutoDevice *out);

/* Would auto_device run a self-check now? Then describes the GPU. Opens no
 * device. */
bool auto_device_due(const Backend *gpu, int number, Precision p,
                     char text[BACKEND_TEXT]);
#endif
