/* safetensors_header.h -- between the JSON of a header and its entries.
 *
 * Used by safetensors.c only. A "head" is the eight bytes of the length and
 * the header behind them, as they stand at the start of the file. */
#ifndef SEG_ENGINE_CHECKPOINT_SAFETENSORS_HEADER_H
#define SEG_ENGINE_CHECKPOINT_SAFETENSORS_HEADER_H
#include "engine/checkpoint/safetensors.h"

#define HEADER_METADATA "__metadata__"
#define HEADER_CRC      "crc32c.header"
#define HEADER_CRCS     "crc32c.tensors"

enum {
    HEADER_LENGTH = 8, /* bytes of the length in front of the header */
    HEADER_DIGITS = 8, /* hex digits of one checksum                 */
};

/* Collect tensors and metadata of a head into f, in the order of the file.
 * Each tensor is right in itself: name, type, shape, and a place of as many
 * bytes as the shape needs. *crc is where the digits of the header's own
 * checksum stand in the head, or NULL. */
bool header_parse(const char *head, size_t bytes, Safetensors *f,
                  const char **crc);

/* Sort both lists; a name or key that appears twice is an error. */
bool header_sort(StTensor *tensor, int count, MetaPair *pair, int pairs);

/* The tensors fill the data from 0 to *end without hole or overlap. */
bool header_places(Safetensors *f, uint64_t *end);

/* A name of a tensor or key of metadata: 1 to 256 bytes of UTF-8 without
 * control characters. `what` begins the reason. */
bool header_name_check(const char *what, const char *name);

/* bytes = product of the shape times the element size, checked. */
bool header_tensor_bytes(const StTensor *t, size_t *bytes);

/* The head for sorted lists, padded to a multiple of ST_ALIGN; *head is to be
 * freed with mem_free. */
bool header_print(const StTensor *tensor, int count, const MetaPair *pair,
                  int pairs, char **head, size_t *bytes);
#endif
