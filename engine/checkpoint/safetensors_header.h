/* safetensors_header.h -- converts between the JSON of a header and its
 * entries.
 *
 * Used by safetensors.c only. A "head" is the eight bytes of the length and the
 * header after them, as at the start of the file. */
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

/* Collects tensors and metadata of a head into f, in the order of the file.
 * Checks each tensor alone: name, type, shape, and offsets that match the size
 * of the shape. *crc points to the digits of the header's own checksum in the
 * head, or is NULL. */
bool header_parse(const char *head, size_t bytes, Safetensors *f,
                  const char **crc);

/* Sorts both lists; a duplicate name or key is an error. */
bool header_sort(StTensor *tensor, int count, MetaPair *pair, int pairs);

/* Checks that the tensors fill the data from 0 to *end without gap or
 * overlap. */
bool header_places(Safetensors *f, uint64_t *end);

/* Checks a name of a tensor or key of metadata: 1 to 256 bytes of UTF-8 without
 * control characters. `what` begins the reason. */
bool header_name_check(const char *what, const char *name);

/* bytes = product of the shape times the element size, checked. */
bool header_tensor_bytes(const StTensor *t, size_t *bytes);

/* Prints the head for sorted lists, padded to a multiple of ST_ALIGN; free
 * *head with mem_free. */
bool header_print(const StTensor *tensor, int count, const MetaPair *pair,
                  int pairs, char **head, size_t *bytes);
#endif
