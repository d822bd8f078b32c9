/* nccl.h -- the few functions of NCCL 2 that allreduce.cu uses, declared from
 * its manual.
 *
 * The library is opened at run time and never linked, so the program starts on
 * machines without it and builds without its header. Numbers and layouts belong
 * to the public interface of NCCL 2 and are the same since 2.2. Functions
 * return 0 or an error number. */
#ifndef SEG_CUDA_DEVICE_NCCL_H
#define SEG_CUDA_DEVICE_NCCL_H
#include <stddef.h>

struct CUstream_st;
struct ncclComm; /* a communicator; one a rank */

/* Rank 0 creates it and distributes it by other means. */
typedef struct NcclId {
    char bytes[128];
} NcclId;

enum { NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8 }; /* ncclDataType_t */
enum { NCCL_SUM = 0 };                       /* ncclRedOp_t    */
enum { NCCL_LEAST = 21000 }; /* 2.10: an all-reduce can be captured */

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
/* Names a library file to use instead of NCCL_FILE. */
#define NCCL_VARIABLE "SEGENGINE_NCCL"
#endif
