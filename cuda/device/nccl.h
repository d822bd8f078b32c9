/* nccl.h -- the few functions of NCCL 2 that allreduce.cu uses, as its manual
 * has them.
 *
 * The library is opened while the program runs and never linked, so that a
 * program starts where it is not installed; its own header is not wanted to
 * build. Numbers and layouts are those of the public interface of NCCL 2, the
 * same since 2.2. Functions return 0, or the number of an error. */
#ifndef SEG_CUDA_DEVICE_NCCL_H
#define SEG_CUDA_DEVICE_NCCL_H
#include <stddef.h>

struct CUstream_st;
struct ncclComm; /* ranks that sum together; one a rank */

/* What rank 0 makes and the others are given, by another way. */
typedef struct NcclId {
    char bytes[128];
} NcclId;

enum { NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8 }; /* ncclDataType_t */
enum { NCCL_SUM = 0 };                       /* ncclRedOp_t    */
enum { NCCL_LEAST = 21000 }; /* 2.10: what is queued can be recorded */

#define NCCL_FUNCTIONS(F)                                                   \
    F(ncclGetVersion, (int *))                                              \
    F(ncclGetUniqueId, (NcclId *))                                          \
    F(ncclCommInitRank, (struct ncclComm **, int ranks, NcclId, int rank))  \
    F(ncclAllReduce, (const void *from, void *to, size_t, int type, int op, \
                      struct ncclComm *, struct CUstream_st *))             \
    F(ncclCommGetAsyncError, (struct ncclComm *, int *))                    \
    F(ncclCommAbort, (struct ncclComm *))                                   \
    F(ncclCommDestroy, (struct ncclComm *))

typedef struct Nccl {
#define F(name, arguments) int(*name) arguments;
    NCCL_FUNCTIONS(F)
#undef F
    const char *(*ncclGetErrorString)(int);
    int version;
} Nccl;

#define NCCL_FILE "libnccl.so.2"
/* Names another file than the system's NCCL_FILE. */
#define NCCL_VARIABLE "SEGENGINE_NCCL"
#endif
