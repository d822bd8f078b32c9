/* device_dataset.c -- blocks of samples on a device, and the table that is
 * uploaded for each batch: changes, then sample numbers. */
#include "engine/session/device_dataset.h"
#include "engine/backend/batch_gather.h"
#include <string.h>

struct DeviceDataset {
    const Backend *be;
    void *dev; /* not owned */
    int fields;
    int32_t samples;
    GatherField field[DEVICE_DATASET_FIELDS];
    void *block[DEVICE_DATASET_FIELDS]; /* on dev                          */
    void *host, *table;                 /* of the current batch: host, dev */
    size_t table_bytes;                 /* of each                         */
    void *room;                         /* of a batch in f32: Gather.room  */
    size_t room_bytes;
};

static Dtype kept_as(const DeviceDatasetField *f)
{
    return f->nearest ? U8 : F32;
}

bool device_dataset_bytes(const DeviceDatasetField *field, int fields,
                          int32_t samples, size_t *bytes)
{
    *bytes = 0;
    for (int f = 0; f < fields; f++) {
        size_t one =
            (size_t)numel(field[f].dim) * dtype_bytes(kept_as(&field[f]));
        if (!size_mul(one, (size_t)samples, &one) ||
            !size_add(*bytes, one, bytes))
            return false;
    }
    return true;
}

/* Ensures scratch memory for augmented 16-bit batches. */
static bool reserve(DeviceDataset *r, size_t bytes)
{
    if (bytes <= r->room_bytes) return true;
    r->be->release(r->dev, r->room);
    r->room = NULL, r->room_bytes = 0;
    if (!r->be->alloc(r->dev, bytes, &r->room)) return false;
    r->room_bytes = bytes;
    return true;
}

bool device_dataset_open(const Backend *be, void *dev,
                         const DeviceDatasetField *field, int fields,
                         int32_t samples, size_t room, DeviceDataset **out)
{
    bool ok = false;
    CHECK(fields <= DEVICE_DATASET_FIELDS && samples > 0);
    if (!be->gather)
        return fail_usage("%s keeps no device dataset: it reads samples where "
                          "the loader puts them",
                          be->name);
    DeviceDataset *r = mem_alloc(sizeof *r);
    if (!r) return false;
    r->be = be, r->dev = dev, r->fields = fields, r->samples = samples;

    for (int f = 0; f < fields; f++) {
        size_t bytes;
        r->field[f] = (GatherField){.dim = field[f].dim,
                                    .type = kept_as(&field[f]),
                                    .image = field[f].image,
                                    .nearest = field[f].nearest,
                                    .first = field[f].first};
        TRY(device_dataset_bytes(&field[f], 1, samples, &bytes));
        TRY(be->alloc(dev, bytes, &r->block[f]));
        r->field[f].block = r->block[f];
    }

    TRY(reserve(r, room));
    ok = true;

done:
    if (ok)
        *out = r;
    else
        device_dataset_close(r);
    return ok;
}

void device_dataset_close(DeviceDataset *r)
{
    if (!r) return;
    for (int f = 0; f < r->fields; f++) r->be->release(r->dev, r->block[f]);
    r->be->release(r->dev, r->table);
    r->be->release(r->dev, r->room);
    mem_free(r->host);
    mem_free(r);
}

/* Converts class numbers to bytes. */
static bool to_bytes(const float *x, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        // in this form NaN fails, too
        if (!(x[i] >= 0 && x[i] <= 255 && x[i] == (float)(int)x[i]))
            return fail_data("a label is %g, wanted a whole number 0 to 255",
                             (double)x[i]);
        to[i] = (uint8_t)x[i];
    }
    return true;
}

bool device_dataset_put(DeviceDataset *r, int32_t number,
                        const float *const value[])
{
    CHECK(number >= 0 && number < r->samples);
    for (int f = 0; f < r->fields; f++) {
        const GatherField *g = &r->field[f];
        int64_t n = numel(g->dim);
        size_t bytes = (size_t)n * dtype_bytes(g->type);
        char *to = (char *)r->block[f] + (size_t)number * bytes;
        uint8_t *label = NULL;
        if (g->type == U8) {
            label = mem_alloc(bytes);
            if (!label) return false;
        }
        bool ok = (!label || to_bytes(value[f], n, label)) &&
                  r->be->upload(r->dev, to,
                                label ? label : (const void *)value[f], bytes);
        mem_free(label);
        if (!ok) return false;
    }
    return true;
}

/* Ensures a table of `bytes` on the host and on the device. */
static bool table_room(DeviceDataset *r, size_t bytes)
{
    if (bytes <= r->table_bytes) return true;
    r->be->release(r->dev, r->table);
    mem_free(r->host);
    r->table = NULL, r->table_bytes = 0;
    r->host = mem_alloc(bytes);
    if (!r->host || !r->be->alloc(r->dev, bytes, &r->table)) return false;
    r->table_bytes = bytes;
    return true;
}

size_t device_dataset_room(const Tensor *const out[], int fields)
{
    size_t most = 0;
    for (int f = 0; f < fields; f++) {
        const size_t one = out[f] ? (size_t)numel(out[f]->dim) : 0;
        if (one > most && out[f]->type != F32) most = one;
    }
    return most * sizeof(float);
}

bool device_dataset_gather(DeviceDataset *r, const int32_t *number, int count,
                           const Change *change, int steps,
                           const Tensor *const out[])
{
    // sizes checked by the caller: a batch of a plan, steps of a pipeline
    size_t changes = sizeof *change * (size_t)steps * (size_t)count;
    size_t numbers = sizeof *number * (size_t)count;
    size_t kinds = sizeof(int32_t) * (size_t)steps;
    size_t points = sizeof(int64_t) * (size_t)steps;

    // sorted by alignment, largest first
    if (!table_room(r, changes + points + numbers + kinds)) return false;
    char *at = r->host;
    int64_t *point = (int64_t *)(void *)(at + changes);
    int32_t *kind = (int32_t *)(void *)(at + changes + points + numbers);
    if (changes) memcpy(at, change, changes);
    memcpy(at + changes + points, number, numbers);
    for (int i = 0; i < count; i++)
        CHECK(number[i] >= 0 && number[i] < r->samples);

    for (int k = 0; k < steps; k++) {
        kind[k] = CHANGE_NONE, point[k] = 0;
        for (int i = 0; i < count; i++) {
            const Change *c = &change[k * count + i];
            const int32_t one = c->kind;
            CHECK(one < CHANGE_HOST);
            CHECK(one == CHANGE_NONE || kind[k] == CHANGE_NONE ||
                  one == kind[k]);
            if (one != CHANGE_NONE) kind[k] = one;
            if (one == CHANGE_ELASTIC) point[k] = elastic_points(&c->elastic);
        }
    }

    for (int f = 0; f < r->fields; f++) {
        r->field[f].out = out[f] ? out[f]->data : NULL;
        r->field[f].stored = out[f] ? out[f]->type : F32;
    }
    const char *there = r->table;
    Gather g = {.field = r->field,
                .fields = r->fields,
                .count = count,
                .steps = steps,
                .kind = kind,
                .points = point,
                .number =
                    (const int32_t *)(const void *)(there + changes + points),
                .change = (const Change *)(const void *)there};
    bool copies = true;
    for (int f = 0; f < r->fields; f++)
        copies = copies && gather_copies(&g, &r->field[f]);
    if (!copies && !reserve(r, device_dataset_room(out, r->fields)))
        return false;
    g.room = r->room;
    return r->be->upload(r->dev, r->table, at, changes + points + numbers) &&
           r->be->gather(r->dev, &g);
}
