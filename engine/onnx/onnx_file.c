/* onnx_file.c -- the bytes of an ONNX file.
 *
 * Protocol buffers store the length before a message, so all lengths are added
 * up before the first byte is written. Nodes are small and were built in
 * memory; weights are large and are written one by one, without a second
 * copy. */
#include "engine/base/crc32c.h"
#include "engine/base/file.h"
#include "engine/onnx/onnx_inside.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum {
    MODEL_IR = 1,
    MODEL_PRODUCER,
    MODEL_VERSION,
    MODEL_GRAPH = 7,
    MODEL_OPSET,
    MODEL_PAIR = 14
};
enum { TENSOR_DIMS = 1, TENSOR_TYPE, TENSOR_NAME = 8, TENSOR_BYTES };
enum { PAIR_KEY = 1, PAIR_VALUE };
enum { OPSET_VERSION = 2 };

// most programs cannot read a protocol buffer of 2 GiB or more
static const uint64_t FILE_MOST = INT32_MAX;

/* A file being written: position, and checksum so far. */
typedef struct Sink {
    Draft draft;
    uint64_t at;
    uint32_t crc;
} Sink;

static bool sink_write(Sink *s, const void *data, size_t bytes)
{
    if (!draft_write(&s->draft, s->at, data, bytes)) return false;
    s->at += bytes;
    s->crc = crc32c(s->crc, data, bytes);
    return true;
}

/* A FileCheck: the draft has the bytes that were written. */
static bool reads_back(void *ctx, const char *tmp)
{
    enum { CHUNK = 1 << 20 };
    const Sink *s = ctx;
    uint64_t bytes;
    uint32_t crc = 0;
    int fd;
    if (!file_open(tmp, &fd, &bytes)) return false;
    char *buffer = mem_alloc(CHUNK);
    bool ok = buffer != NULL;
    for (uint64_t at = 0; ok && at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        ok = file_read_at(fd, tmp, at, buffer, n);
        if (ok) crc = crc32c(crc, buffer, n);
    }

    if (ok && (bytes != s->at || crc != s->crc))
        ok = fail("%s: the bytes read back differ from the bytes written", tmp);
    mem_free(buffer);
    close(fd);
    return ok;
}

static int64_t tensor_count(const OnnxTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->axes; i++) n *= t->shape[i];
    return n;
}

static uint64_t tensor_size(const OnnxTensor *t)
{
    return (uint64_t)tensor_count(t) *
           (t->whole ? sizeof(int64_t) : sizeof(float));
}

/* Writes all of a tensor except its numbers, which follow, into `p`, with the
 * key of a field of the graph. `scratch` is overwritten. */
static void tensor_head(const OnnxTensor *t, Proto *p, Proto *scratch)
{
    const uint64_t bytes = tensor_size(t);
    proto_clear(scratch);
    for (int i = 0; i < t->axes; i++)
        proto_int(scratch, TENSOR_DIMS, t->shape[i]);
    proto_int(scratch, TENSOR_TYPE, t->whole ? ELEMENT_I64 : ELEMENT_F32);
    proto_text(scratch, TENSOR_NAME, t->name);
    proto_head(scratch, TENSOR_BYTES, bytes);
    proto_head(p, GRAPH_TENSOR, scratch->used + bytes);
    p->failed |= scratch->failed;
    proto_raw(p, scratch->at, scratch->used);
}

/* Reads the values of a parameter as floats in user order into `out`; both
 * buffers have room for the largest parameter. */
static bool param_floats(const Params *p, int i, double *user, float *out)
{
    const int64_t n = numel(p->list[i].dim);
    if (!params_read(p, i, PARAM_VALUE, 0, user)) return false;
    for (int64_t k = 0; k < n; k++) {
        out[k] = (float)user[k];
        if (!isfinite(out[k]))
            return fail_data("%s is not finite in f32 (%g at element %lld); "
                             "fix: weights of an earlier checkpoint",
                             p->list[i].name, user[k], (long long)k);
    }
    return true;
}

/* Reorders the gates i f g o of an LSTM, four equal blocks, to i o f g. `room`
 * holds a copy. */
static void order_gates(float *v, int64_t count, double *room)
{
    static const int from[4] = {0, 3, 1, 2};
    const size_t block = (size_t)count / 4;
    float *copy = (float *)room;
    memcpy(copy, v, (size_t)count * sizeof *v);
    for (int i = 0; i < 4; i++)
        memcpy(v + (size_t)i * block, copy + (size_t)from[i] * block,
               block * sizeof *v);
}

static bool write_tensors(Onnx *o, Sink *s)
{
    bool ok = false;
    int64_t most = 1;
    Proto head = {0}, scratch = {0};

    for (int i = 0; i < o->tensors; i++)
        if (tensor_count(&o->tensor[i]) > most)
            most = tensor_count(&o->tensor[i]);
    double *user = mem_alloc((size_t)most * sizeof *user);
    float *values = mem_alloc((size_t)most * sizeof *values);
    TRY(user && values);

    for (int i = 0; i < o->tensors; i++) {
        const OnnxTensor *t = &o->tensor[i];
        const void *data = t->data;
        proto_clear(&head);
        tensor_head(t, &head, &scratch);
        TRY(!head.failed);
        if (t->param >= 0) {
            TRY(param_floats(o->params, t->param, user, values));
            if (t->gates) order_gates(values, tensor_count(t), user);
            data = values;
        }
        TRY(sink_write(s, head.at, head.used));
        TRY(sink_write(s, data, (size_t)tensor_size(t)));
    }

    ok = true;

done:
    mem_free(user);
    mem_free(values);
    proto_free(&head);
    proto_free(&scratch);
    return ok;
}

/* Writes the fields before the graph: versions, producer, metadata. */
static void put_head(Proto *p, const OnnxOptions *how)
{
    proto_int(p, MODEL_IR, ONNX_IR);
    proto_text(p, MODEL_PRODUCER, "segengine");
    proto_text(p, MODEL_VERSION, how->version);
    size_t opset = proto_begin(p, MODEL_OPSET);
    proto_int(p, OPSET_VERSION, ONNX_OPSET);
    proto_end(p, opset);

    for (int i = 0; i < how->pairs; i++) {
        size_t pair = proto_begin(p, MODEL_PAIR);
        proto_text(p, PAIR_KEY, how->pair[i].key);
        proto_text(p, PAIR_VALUE, how->pair[i].value);
        proto_end(p, pair);
    }
}

bool onnx_write(const char *path, Onnx *o, const Proto *tail,
                const OnnxOptions *how, OnnxFacts *facts)
{
    bool ok = false;
    Sink s = {.at = 0};
    Proto head = {0}, scratch = {0}, size = {0};
    uint64_t bytes = o->node.used + tail->used;

    for (int i = 0; i < o->tensors; i++) {
        proto_clear(&size);
        tensor_head(&o->tensor[i], &size, &scratch);
        bytes += size.used + tensor_size(&o->tensor[i]);
        facts->numbers += tensor_count(&o->tensor[i]);
    }

    put_head(&head, how);
    proto_head(&head, MODEL_GRAPH, bytes);
    TRY(!head.failed && !size.failed && !scratch.failed);
    facts->bytes = bytes += head.used;

    if (bytes > FILE_MOST) {
        fail_usage("%s: %.1f GiB of weights do not fit into one ONNX file "
                   "(limit 2 GiB); fix: export --safetensors or --bundle",
                   path, (double)bytes / (1 << 30));
        goto done;
    }

    TRY(draft_open(&s.draft, path, bytes));
    TRY(sink_write(&s, head.at, head.used));
    TRY(sink_write(&s, o->node.at, o->node.used));
    TRY(write_tensors(o, &s) || within("%s", path));
    TRY(sink_write(&s, tail->at, tail->used));
    CHECK(s.at == bytes); // the length written before the graph was right
    ok = draft_commit(&s.draft, reads_back, &s);

done:
    draft_discard(&s.draft);
    proto_free(&head);
    proto_free(&scratch);
    proto_free(&size);
    return ok;
}
