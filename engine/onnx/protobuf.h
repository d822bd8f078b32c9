/* protobuf.h -- writes the part of protocol buffers that ONNX needs.
 *
 * A message is a sequence of fields: a key (field number and wire type) and a
 * value. Integers are varints, seven bits per byte, low bits first; strings and
 * nested messages are preceded by their length. See
 * protobuf.dev/programming-guides/encoding; there are no checksums and no
 * required order of fields.
 *
 * After a failure all puts do nothing, so only the end checks `failed`; the
 * reason, a lack of memory, is then in err.h. */
#ifndef SEG_ENGINE_ONNX_PROTOBUF_H
#define SEG_ENGINE_ONNX_PROTOBUF_H
#include "engine/base/mem.h"

/* A zeroed one is empty; free it with proto_free. */
typedef struct Proto {
    char *at;
    size_t used, room;
    bool failed;
} Proto;

void proto_free(Proto *p);
void proto_clear(Proto *p); /* empty again, keeps its memory */

void proto_int(Proto *p, int field, int64_t v);
void proto_float(Proto *p, int field, float v);
void proto_text(Proto *p, int field, const char *text);
/* The same for bytes that may contain a 0. */
void proto_bytes(Proto *p, int field, const void *data, size_t bytes);
/* Writes the key and length of `bytes` bytes that the caller appends. */
void proto_head(Proto *p, int field, uint64_t bytes);

/* Appends encoded fields unchanged. */
void proto_raw(Proto *p, const void *data, size_t bytes);

/* A nested message: all fields put between the two calls are in it. Messages
 * nest; each end takes the mark of its own begin. */
size_t proto_begin(Proto *p, int field);
void proto_end(Proto *p, size_t mark);
#endif
