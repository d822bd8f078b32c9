/* npz.h -- NumPy's .npz files: a zip archive of .npy files.
 *
 * A reader of its own for what numpy.savez and savez_compressed write: stored
 * and deflated members, zip64 (PKWARE APPNOTE 6.3, sections 4.3 to 4.5). The
 * central directory says what is there, and each member's own header must say
 * the same; members must not overlap, share a name, or be larger than deflate
 * can make them. Reasons read "PATH: npz: WHAT; fix: HOW", ERR_DATA; those
 * about one array "PATH: npz: NAME: npy: WHAT". */
#ifndef SEG_DATA_FORMAT_NPZ_H
#define SEG_DATA_FORMAT_NPZ_H
#include "data/format/npy.h"

typedef struct NpzEntry {
    const char *name;   /* of the array: the member's without .npy */
    bool deflated;      /* else stored as it is                    */
    uint32_t crc;       /* CRC-32 of the .npy                      */
    uint64_t size;      /* bytes of the .npy                       */
    uint64_t packed;    /* bytes in the archive, from `at` on      */
    uint64_t at, begin; /* of its data; of its own header          */
} NpzEntry;

/* An open archive; zeroed it is a closed one. */
typedef struct Npz {
    const uint8_t *bytes;
    size_t size;
    int entries;
    NpzEntry *entry; /* in the order of the directory */
    Arena mem;
    Map map; /* closed when it is bytes */
} Npz;

/* Read and check the directory and every member's header; no member is
 * unpacked. On failure *z is closed. */
bool npz_open(const char *path, Npz *z);
/* The same of bytes, which must outlive *z. Reasons begin at "npz:". */
bool npz_open_bytes(const uint8_t *bytes, size_t size, Npz *z);
void npz_close(Npz *z);

/* The header of array `i`: only so much is unpacked. */
bool npz_about(const Npz *z, int i, NpyHeader *h);
/* The array called `name`, whole and with the right checksum; at most
 * `max_elements` (0: 2^33). On failure *out is zero. */
bool npz_read(const Npz *z, const char *name, int64_t max_elements,
              NpyArray *out);
#endif
