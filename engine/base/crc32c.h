/* crc32c.h -- the CRC of Castagnoli: polynomial 0x1EDC6F41, reflected.
 *
 * The checksum of iSCSI, ext4 and TensorBoard's event files, and ours of
 * checkpoints: it finds every error burst of up to 32 bits and misses any
 * other damage once in 2^32. The processor's instruction is used where there
 * is one; both ways give the same numbers. */
#ifndef SEG_ENGINE_BASE_CRC32C_H
#define SEG_ENGINE_BASE_CRC32C_H
#include <stddef.h>
#include <stdint.h>

/* CRC of what `crc` covers followed by `bytes` at `data`; start with 0. So
 * crc32c(crc32c(0, a, n), b, m) is the CRC of a and b one after the other. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same without the processor's help; for tests and other machines. */
uint32_t crc32c_plain(uint32_t crc, const void *data, size_t bytes);
#endif
