/* npz_make.h -- zip archives for the tests of npz. */
#ifndef SEG_TESTS_SUPPORT_NPZ_MAKE_H
#define SEG_TESTS_SUPPORT_NPZ_MAKE_H
#include "data/format/npz.h"
#include "tests/test.h"

enum { ROOM = 8192, MEMBERS = 4 };

/* An archive of up to MEMBERS members, and the offsets of its parts. */
typedef struct Zip {
    uint8_t bytes[ROOM];
    size_t size, local[MEMBERS], data[MEMBERS], central[MEMBERS], end;
    int members;
} Zip;

/* Format of a member. */
typedef enum Kind {
    STORED = 0,
    DEFLATED = 1,
    WIDE = 2,   /* zip64 in its own header, like numpy           */
    BEHIND = 4, /* sizes after the data, as when writing a pipe  */
    ZIP64 = 8,  /* zip64 in the directory too, and in the end    */
} Kind;

/* Append bytes; numbers are little endian. */
void zip_put(Zip *z, uint64_t value, int bytes);
void zip_bytes(Zip *z, const void *p, size_t n);
/* Overwrite a number. */
void zip_patch(Zip *z, size_t at, uint64_t value, int bytes);

/* A .npy of `count` bytes, each `value` + its index; returns its size. */
size_t zip_npy(uint8_t out[ROOM], int value, int count);
/* A raw deflate stream; returns its size. */
size_t zip_deflate(const uint8_t *in, size_t n, uint8_t out[ROOM]);
/* One member with its header, and its directory entry in `entry`. */
void zip_add(Zip *z, Zip *entry, const char *name, int kind,
             const uint8_t *content, size_t size);
/* The directory and the end record. */
void zip_finish(Zip *z, const Zip *entry, bool huge);

/* Arrays "a" (3 numbers from 1 on) and "b" (40 from 50 on). */
void zip_make(Zip *z, int kind);
/* One member with any name and content. */
void zip_make_one(Zip *z, const char *name, int kind, const uint8_t *content,
                  size_t size);

/* npz_open_bytes of a copy of exactly the size, which stays with the Npz. */
bool zip_open(const Zip *zip, uint8_t **copy, Npz *z);
/* Opens it and reads "b"; false with the reason of the first failure. */
bool zip_read_b(const Zip *zip);
#endif
