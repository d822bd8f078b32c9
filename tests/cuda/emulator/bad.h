/* bad.h -- helpers of the planted faults, see bad.cu. */
#ifndef EMU_BAD_H
#define EMU_BAD_H
#include "tests/cuda/emulator/kit.h"

struct Case {
    int number;
    const char *name;
    bool (*run)(bool broken); /* is the result right? */
};

/* Requires that the call succeeds; otherwise prints CUDA's name of the error,
 * which is the finding of this case, and ends. */
static inline void need(cudaError_t e)
{
    if (!e) return;
    printf("%s\n", cudaGetErrorName(e));
    exit(3);
}
#endif
