/* npz.h -- .npz files of NumPy: a zip archive of .npy files.
 *
 * Reads the archives that numpy.savez and savez_compressed write: stored and
 * deflated members, zip64 (PKWARE APPNOTE 6.3, sections 4.3 to 4.5). The local
 * header of each member must agree with the central directory; members must not
 * overlap, share a name, or be larger than deflate can make them. Reasons read
 * "PATH: npz: PROBLEM; fix: HOW", ERR_DATA; for one array "PATH: npz: NAME:
 * npy: PROBLEM". */
#ifndef SEG_DATA_FORMAT_NPZ_H
#define SEG_DATA_FORMAT_NPZ_H
#include "data/format/npy.h"

typedef struct NpzEntry {
    const char *name;   /* of the array: the member's name without .npy */
    bool deflated;      /* else stored uncompressed */
    uint32_t crc;       /* CRC-32 of the .npy                      */
    uint64_t size;      /* bytes of the .npy                       */
    uint64_t packed;    /* bytes in the archive, from `at` on      */
    uint64_t at, begin; /* offsets of its data and of its local header */
} NpzEntry;

/* An open archive; zero-initialised it is closed. */
typedef struct Npz {
    const uint8_t *bytes;
    size_t size;
    int entries;
    NpzEntry *entry; /* in the order of the directory */
    Arena mem;
    Map map; /* closed if the source is a buffer */
} Npz;

/* Reads and checks the directory and every local header; inflates no member. On
 * failure *z is closed. */
bool npz_open(const char *path, Npz *z);
/* The same from a buffer, which must outlive *z. Reasons begin at "npz:". */
bool npz_open_bytes(const uint8_t *bytes, size_t size, Npz *z);
void npz_close(Npz *z);

/* Reads the header of array `i`, inflating no more than that. */
bool npz_about(const Npz *z, int i, NpyHeader *h);
/* Reads the array `name`, complete and with a verified checksum; at most
 * `max_elements` (0: 2^33). On failure *out is zero. */
bool npz_read(const Npz *z, const char *name, int64_t max_elements,
              NpyArray *out);
#endif
