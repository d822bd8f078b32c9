/* bad.h -- helpers of the planted faults, see bad.cu. */
#ifndef EMU_BAD_H
#define EMU_BAD_H
#include "tests/cuda/emulator/kit.h"

struct Case {
    int number;
    const char *name;
    bool (*run)(bool broken); /* is the result right? */
};

/* The call must succeed; when it does not, CUDA's name of the error is the
 * finding: print it and end. */
static inline void need(cudaError_t e)
{
    if (!e) return;
    printf("%s\n", cudaGetErrorName(e));
    exit(3);
}
#endif
