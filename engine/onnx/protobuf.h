/* protobuf.h -- bytes of a protocol buffer, the little of it that ONNX takes.
 *
 * A message is a row of fields: a key (number and kind of the field) and a
 * value. Whole numbers are written seven bits a byte, low bits first; texts and
 * messages inside a message have their length in front. The form is described
 * at protobuf.dev/programming-guides/encoding; there are no checksums and no
 * order of fields to keep.
 *
 * What is put after a failure is dropped, so only the end has to look at
 * `failed`; the reason of want of memory is then in err.h. */
#ifndef SEG_ENGINE_ONNX_PROTOBUF_H
#define SEG_ENGINE_ONNX_PROTOBUF_H
#include "engine/base/mem.h"

/* A zeroed one is empty; freed with proto_free. */
typedef struct Proto {
    char *at;
    size_t used, room;
    bool failed;
} Proto;

void proto_free(Proto *p);
void proto_clear(Proto *p); /* empty again, its memory kept */

void proto_int(Proto *p, int field, int64_t v);
void proto_float(Proto *p, int field, float v);
void proto_text(Proto *p, int field, const char *text);
/* The same of bytes that may hold a 0. */
void proto_bytes(Proto *p, int field, const void *data, size_t bytes);
/* The key and length of `bytes` bytes that the caller writes behind them. */
void proto_head(Proto *p, int field, uint64_t bytes);

/* Fields that were made elsewhere, as they are. */
void proto_raw(Proto *p, const void *data, size_t bytes);

/* A message as a field: everything put between the two is inside of it. They
 * nest; the mark of each belongs to its own end. */
size_t proto_begin(Proto *p, int field);
void proto_end(Proto *p, size_t mark);
#endif
