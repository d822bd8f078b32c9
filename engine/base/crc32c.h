/* crc32c.h -- CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected.
 *
 * The checksum of iSCSI, ext4, TensorBoard's event files and the checkpoints of
 * segengine. It detects every error burst of up to 32 bits and misses other
 * damage once in 2^32. The SSE 4.2 instruction is used if the processor has it;
 * both implementations return the same numbers. */
#ifndef SEG_ENGINE_BASE_CRC32C_H
#define SEG_ENGINE_BASE_CRC32C_H
#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of `bytes` at `data` appended to the data that `crc` covers;
 * start with 0. So crc32c(crc32c(0, a, n), b, m) is the CRC of a followed by
 * b. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same without the instruction; for tests and other processors. */
uint32_t crc32c_plain(uint32_t crc, const void *data, size_t bytes);
#endif
