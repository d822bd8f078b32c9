/* siphash.h -- SipHash-2-4: a keyed hash of short texts.
 *
 * Shared files contain hashes instead of names of patients: without the key, a
 * name can neither be read nor guessed and checked. Source: Aumasson and
 * Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012; checked against
 * the vector of its appendix. */
#ifndef SEG_ENGINE_BASE_SIPHASH_H
#define SEG_ENGINE_BASE_SIPHASH_H
#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint8_t key[16], const void *data, size_t bytes);
#endif
