/* safetensors.h -- the reader and writer of safetensors files.
 *
 * Eight bytes hold the length of a JSON header (little endian); the header
 * gives name, type, shape and offsets of every tensor; the data follows without
 * gaps. The reader does not trust the file: lengths, names, shapes and offsets
 * are checked against each other and against the file size before any data is
 * used. It parses at most 100,000,000 bytes and 65,536 entries.
 *
 * Files written here carry checksums in __metadata__: "crc32c.tensors" has 8
 * hex digits per tensor in the order of the names, "crc32c.header" the CRC32C
 * of all bytes before the data with these 8 digits as zeros. A file with
 * checksums is verified, one without (PyTorch's, say) is read without. */
#ifndef SEG_ENGINE_CHECKPOINT_SAFETENSORS_H
#define SEG_ENGINE_CHECKPOINT_SAFETENSORS_H
#include "engine/base/mem.h"

enum {
    ST_AXES = 8,           /* axes of a tensor                       */
    ST_NAME = 256,         /* bytes of a name and of a metadata key  */
    ST_ENTRIES = 65536,    /* tensors, and pairs of metadata         */
    ST_HEADER = 100000000, /* bytes of the header                    */
    ST_ALIGN = 64,         /* alignment of the data in written files */
};

/* Element types that can be read: name in the file and bytes. */
#define ST_TYPES(X) \
    X(F64, 8)       \
    X(F32, 4)       \
    X(F16, 2)       \
    X(BF16, 2)      \
    X(I64, 8)       \
    X(I32, 4)       \
    X(I16, 2)       \
    X(I8, 1)        \
    X(U8, 1)        \
    X(BOOL, 1)

typedef enum StType {
#define X(name, bytes) ST_##name,
    ST_TYPES(X)
#undef X
        ST_TYPE_COUNT
} StType;

const char *st_type_name(StType t);
size_t st_type_bytes(StType t);

typedef struct StTensor {
    const char *name;
    StType type;
    int axes;               /* 0: a scalar                         */
    int64_t shape[ST_AXES]; /* slowest first; 0 is possible        */
    uint64_t at;            /* first byte, from the start of data  */
    size_t bytes;           /* product of shape times element size */
} StTensor;

/* A pair of strings. Keys have 1 to 256 bytes, values any length; both are
 * UTF-8 without a zero byte. */
typedef struct MetaPair {
    const char *key, *value;
} MetaPair;

typedef struct Meta {
    MetaPair *pair; /* sorted by key                                     */
    int count;
    const char *note; /* a hint about the file for the user, "" or a
                         sentence                                          */
} Meta;

const char *meta_get(const Meta *m, const char *key); /* or NULL */

/* An open file, or one in memory. A zeroed struct is closed. */
typedef struct Safetensors {
    const char *path;
    StTensor *tensor; /* sorted by name, bytewise                 */
    int count;
    Meta meta; /* includes the checksums                  */
    uint32_t header_crc;
    const char *crcs; /* 8 digits per tensor; NULL: no checksums */
    uint64_t data_at; /* first byte of the data in the file      */
    Arena mem;        /* of everything above                     */
    bool open;        /* fd is to be closed                      */
    int fd;
    const char *bytes; /* the file in memory, not owned, else NULL */
    uint64_t size;     /* of the file                              */
} Safetensors;

/* Opens a file and checks its header. The reason for a file of another format
 * names that format. */
bool safetensors_open(const char *path, Safetensors *f);
/* The same for `size` bytes in memory that outlive *f; `path` is for
 * messages. */
bool safetensors_memory(const char *path, const void *bytes, uint64_t size,
                        Safetensors *f);
void safetensors_close(Safetensors *f);

int safetensors_find(const Safetensors *f, const char *name); /* or -1 */

/* Returns the number of elements of tensor i. */
size_t safetensors_count(const Safetensors *f, int i);

/* Read tensor i as it is in the file (little endian), or as doubles (exact for
 * all types except I64 beyond 2^53). Its checksum is verified. */
bool safetensors_read(const Safetensors *f, int i, void *out);
bool safetensors_read_f64(const Safetensors *f, int i, double *out);

/* Verifies all checksums; true for a file without any (f->crcs is NULL). */
bool safetensors_verify(const Safetensors *f);

/* Content of a file to write: tensors and pairs may be in any order, `at` and
 * `bytes` of the tensors are ignored, checksums are added. fill(ctx, i, out)
 * writes the bytes of tensor[i] to `out`, one tensor at a time. */
typedef struct StWrite {
    const StTensor *tensor;
    int count;
    const MetaPair *pair;
    int pairs;
    bool (*fill)(void *ctx, int i, void *out);
    void *ctx;
} StWrite;

/* Writes a draft, reads it back and renames it (see file.h). The bytes of the
 * file depend on names, shapes, values and pairs only. */
bool safetensors_save(const char *path, const StWrite *w);
/* The same for one file under several paths, in this order: path[0] is written,
 * the others are linked to it (file_link). Each is complete, and on the disk,
 * before the next changes; after a failure the later ones are as they were. */
bool safetensors_save_as(const char *const *path, int paths, const StWrite *w);
#endif
