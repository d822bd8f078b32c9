/* device_dataset.c -- a device dataset as a Lua object: it joins a pipeline,
 * which knows no device, and a session, which knows no data.
 *
 * All samples are copied when it is made, in the order of the cases: so each
 * case is prepared at most once more, whatever the order of training, and a
 * lack of memory shows before the first epoch. A batch (seg.device_batch)
 * consists of sample numbers only; the device writes it into the inputs of the
 * plan when the session is fed. */
#include "engine/session/device_dataset.h"
#include "data/loader/loader.h"
#include "lua/bind/bind.h"

typedef struct DeviceDatasetBox {
    DeviceRef device_ref; /* of the session; first, see box_close */
    DeviceDataset *r;     /* NULL once it or the session is closed */
    Session *s;
    Pipeline *p; /* held; NULL: samples of one batch, see push_held */
    bool augment;
    size_t bytes; /* samples and workspace on the device */
    int fields;   /* fields of the data set that are inputs */
    int node[MAX_FIELDS];
    Dims dim[MAX_FIELDS]; /* of one sample */
} DeviceDatasetBox;

/* User value 1 is the device dataset, which it keeps alive. */
struct DeviceBatch {
    DeviceDatasetBox *box;
    uint32_t epoch;
    int count;
    int32_t number[];
};

/* Frees the memory on the device before the device closes. */
static void box_close(DeviceRef *g)
{
    DeviceDatasetBox *box = (DeviceDatasetBox *)g;
    if (box->r) session_account_memory(box->s, -(int64_t)box->bytes);
    device_dataset_close(box->r);
    box->r = NULL, box->s = NULL;
}

/* User value 1 is the session with the device. */
static int device_dataset_gc(lua_State *L)
{
    DeviceDatasetBox *box = luaL_checkudata(L, 1, "seg.device_dataset");
    device_ref_leave(&box->device_ref);
    box_close(&box->device_ref);
    pipeline_free(box->p);
    box->p = NULL;
    return 0;
}

/* == making ============================================================ */

/* The request; field[k] is the index in the data set of input k. */
typedef struct Wanted {
    DeviceDatasetField part[MAX_FIELDS];
    int field[MAX_FIELDS];
    int batch, workers;
    size_t room; /* workspace for augmented batches */
    bool train;  /* for the plan with gradients */
    bool must;   /* even if it takes more than half of the free memory */
} Wanted;

/* The fields that have a node in the table on top of the stack, with the
 * extents of one sample. False with a reason when samples differ. */
static bool read_parts(lua_State *L, const Pipeline *p, DeviceDatasetBox *box,
                       Wanted *w)
{
    const Dataset *ds = pipeline_dataset(p);
    uint32_t first = CHANGE_DRAWS;

    for (int f = 0; f < ds->fields; f++) {
        Dims n;
        FieldKind kind = ds->field[f].kind;
        lua_rawgeti(L, -1, f + 1);
        int node = opt_node(L, lua_gettop(L));
        lua_pop(L, 1);
        if (!pipeline_dims(p, f, &n)) return false;
        if (node >= 0) {
            box->node[box->fields] = node;
            box->dim[box->fields] = n;
            w->field[box->fields] = f;
            w->part[box->fields++] =
                (DeviceDatasetField){.dim = n,
                                     .image = kind == FIELD_IMAGE,
                                     .nearest = kind == FIELD_LABEL,
                                     .first = first};
        }
        // images without an input consume random draws all the same
        if (kind == FIELD_IMAGE) first = change_next(first, n);
    }
    return true;
}

/* Bind the session's memory for batches of this size, so that the free memory
 * is known. */
static bool bind_plan_of(Session *s, const DeviceDatasetBox *box, Wanted *w)
{
    PlanInput input[MAX_FIELDS];
    Plan *plan;

    for (int i = 0; i < box->fields; i++) {
        int k = i;
        // plans are found by inputs in the order of their nodes
        for (; k > 0 && input[k - 1].node > box->node[i]; k--)
            input[k] = input[k - 1];
        input[k] = (PlanInput){box->node[i], box->dim[i]};
        input[k].dim.n = w->batch;
    }

    const Tensor *out[MAX_FIELDS];
    if (!session_plan(s, w->train, input, box->fields, &plan) ||
        !session_bind(s, plan))
        return false;
    for (int i = 0; i < box->fields; i++)
        out[i] = plan_value(plan, box->node[i]);
    if (box->augment) w->room = device_dataset_room(out, box->fields);
    return true;
}

/* Returns whether the samples of the data set and the workspace for augmented
 * batches need at most half of the `room` bytes of free device memory
 * (--device_dataset on: any number of bytes). The other half is for the
 * session's other plans, for a validation set and for other programs. */
static bool fits(DeviceDatasetBox *box, const Wanted *w, size_t room)
{
    if (!device_dataset_bytes(w->part, box->fields, pipeline_samples(box->p),
                              &box->bytes) ||
        !size_add(box->bytes, w->room, &box->bytes))
        return fail("the samples have more bytes than memory has addresses");
    return w->must || box->bytes <= room / 2 ||
           fail("its samples need %.1f MiB, half of the free memory of the "
                "device is %.1f MiB (--device_dataset on takes more)",
                (double)box->bytes / (1 << 20), (double)room / (2 << 20));
}

/* Copy every sample to the device as the loader's threads prepare it. */
static bool fill(const DeviceDatasetBox *box, const Wanted *w)
{
    LoaderOptions o = {.batch = 1, .workers = w->workers};
    Loader *l;
    const Batch *b;
    bool ok = true;

    if (!loader_open(box->p, &o, &l)) return false;
    for (int32_t i = 0; ok && i < pipeline_samples(box->p); i++) {
        const float *value[MAX_FIELDS];
        ok = loader_next(l, &b);
        for (int f = 0; ok && f < box->fields; f++)
            value[f] = b->field[w->field[f]].data;
        ok = ok && device_dataset_put(box->r, i, value);
    }

    loader_close(l);
    return ok;
}

/* nil, the reason, and the kind of failure if memory is missing. */
static int push_why_not(lua_State *L)
{
    size_t room;
    lua_pushnil(L);
    lua_pushstring(L, err_text());
    if (!err_wanted(&room)) return 2;
    lua_pushstring(L, err_kind() == ERR_DEVICE ? "device" : "failure");
    return 3;
}

/* data.device_dataset(session, pipeline, {nodes={[field]=node}, batch=,
 * train=false, augment=false, workers=0, must=false}) -> device dataset; or
 * nil, the reason, and "device" or "failure" if memory is missing on the device
 * or the host. nodes: the input of each field of the data set that has one.
 * train: for training. augment: with the augmentation of each epoch. nil when a
 * step of it has no kernel, when samples differ in extents, when they take more
 * than half of the free memory of the device (with `must`: more than all of
 * it), or when the device keeps none. Raises all other errors of cases and of
 * the device. */
static int l_device_dataset(lua_State *L)
{
    static const char *const known[] = {"nodes",   "batch", "train", "augment",
                                        "workers", "must",  NULL};
    Session *s = check_session(L, 1);
    Pipeline *p = check_pipeline(L, 2);
    Wanted w = {.batch = 0};

    check_keys(L, 3, "device_dataset", known);
    w.batch = (int)opt_int(L, 3, "batch", 1, 1, 1 << 20);
    w.workers = (int)opt_int(L, 3, "workers", 0, 0, 256);
    w.train = opt_bool(L, 3, "train", false);
    w.must = opt_bool(L, 3, "must", false);
    bool augment = opt_bool(L, 3, "augment", false);
    DeviceDatasetBox *box = new_object(L, "seg.device_dataset", sizeof *box);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    pipeline_hold(p);
    box->p = p, box->augment = augment;
    if (!session_backend(s)->gather) {
        lua_pushnil(L);
        lua_pushfstring(L, "the device is %s", session_backend(s)->name);
        return 2;
    }

    if (w.train && pipeline_drawn(p)) {
        lua_pushnil(L);
        lua_pushliteral(L, "its patches are drawn anew in each epoch");
        return 2;
    }

    if (augment && !augment_on_device(pipeline_steps(p), pipeline_dataset(p)))
        return push_why_not(L);
    luaL_argcheck(L, lua_getfield(L, 3, "nodes") == LUA_TTABLE, 3,
                  "nodes is missing");
    bool suits = read_parts(L, p, box, &w);
    lua_pop(L, 1);
    if (!suits) return push_why_not(L);
    const Backend *be = session_backend(s);
    void *dev = session_device(s);
    size_t room = SIZE_MAX, left = SIZE_MAX;
    if (!bind_plan_of(s, box, &w) || !session_available_memory(s, &room, &left))
        return raise_error(L);
    if (left < room) room = left;

    // the arena is allocated, and counts as free
    if (room < SIZE_MAX) room -= session_pool_bytes(s);
    if (!fits(box, &w, room)) return push_why_not(L);
    if (!device_dataset_open(be, dev, w.part, box->fields, pipeline_samples(p),
                             w.room, &box->r))
        return err_wanted(&room) ? push_why_not(L) : raise_error(L);
    box->s = s, box->device_ref.close = box_close;
    session_account_memory(s, (int64_t)box->bytes);
    device_ref_enter(&box->device_ref, session_device_refs(L, 1));
    if (!fill(box, &w)) return raise_error(L);
    return 1;
}

/* A batch of `count` samples of the device dataset on top of the stack; the
 * caller fills in their numbers. */
static DeviceBatch *push_device_batch(lua_State *L, DeviceDatasetBox *box,
                                      int count)
{
    DeviceBatch *d = new_object(L, "seg.device_batch",
                                sizeof *d + (size_t)count * sizeof *d->number);
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, 1);
    d->box = box, d->count = count;
    return d;
}

int push_held(lua_State *L, int arg, const HeldInput *input, int inputs)
{
    Session *s = check_session(L, arg);
    const Backend *be = session_backend(s);
    const int count = input[0].value.dim.n;
    DeviceDatasetField part[MAX_FIELDS];
    DeviceDatasetBox *box = new_object(L, "seg.device_dataset", sizeof *box);

    lua_pushvalue(L, arg);
    lua_setiuservalue(L, -2, 1);
    if (!be->gather || inputs > MAX_FIELDS) {
        lua_pushnil(L);
        lua_pushfstring(L, "the device is %s", be->name);
        return 2;
    }

    for (int f = 0; f < inputs; f++) {
        box->node[f] = input[f].node, box->dim[f] = input[f].value.dim;
        box->dim[f].n = 1;
        part[f] = (DeviceDatasetField){.dim = box->dim[f]};
    }

    box->fields = inputs;
    DeviceBatch *d = push_device_batch(L, box, count);
    if (!device_dataset_bytes(part, inputs, count, &box->bytes) ||
        !device_dataset_open(be, session_device(s), part, inputs, count, 0,
                             &box->r))
        return push_why_not(L);
    box->s = s, box->device_ref.close = box_close;
    session_account_memory(s, (int64_t)box->bytes);
    device_ref_enter(&box->device_ref, session_device_refs(L, arg));

    for (int32_t i = 0; i < count; i++) {
        const float *value[MAX_FIELDS];
        for (int f = 0; f < inputs; f++)
            value[f] =
                (const float *)input[f].value.data + i * numel(box->dim[f]);
        if (!device_dataset_put(box->r, i, value)) return raise_error(L);
        d->number[i] = i;
    }
    return 1;
}

/* r:bytes() -> bytes of samples and workspace on the device */
static int l_bytes(lua_State *L)
{
    DeviceDatasetBox *box = luaL_checkudata(L, 1, "seg.device_dataset");
    lua_pushinteger(L, box->r ? (lua_Integer)box->bytes : 0);
    return 1;
}

/* == batches =========================================================== */

/* r:draw(epoch from 0, samples={number, ...} from 1) -> a batch, as a value for
 * each of its inputs in session:step or :forward */
static int l_draw(lua_State *L)
{
    DeviceDatasetBox *box = luaL_checkudata(L, 1, "seg.device_dataset");
    uint32_t epoch = (uint32_t)check_int(L, 2, "epoch", 0, UINT32_MAX);
    luaL_checktype(L, 3, LUA_TTABLE);
    int count = (int)luaL_len(L, 3);
    if (!box->r) raise_usage(L, "this data set is closed");
    if (count < 1) raise_usage(L, "a batch without samples");
    lua_pushvalue(L, 1);
    DeviceBatch *d = push_device_batch(L, box, count);
    d->epoch = epoch;

    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 3, i + 1);
        d->number[i] = (int32_t)check_int(L, lua_gettop(L), "sample", 1,
                                          pipeline_samples(box->p)) -
                       1;
        lua_pop(L, 1);
    }
    return 1;
}

DeviceBatch *test_device_batch(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, "seg.device_batch");
}

bool device_batch_dim(const DeviceBatch *d, int node, Dims *out)
{
    for (int f = 0; f < d->box->fields; f++) {
        if (d->box->node[f] != node) continue;
        *out = d->box->dim[f];
        out->n = d->count;
        return true;
    }
    return false;
}

const Session *device_batch_session(const DeviceBatch *d)
{
    return d->box->s;
}

bool device_batch_feed(const DeviceBatch *d, const Plan *plan, const int *node,
                       int nodes)
{
    const DeviceDatasetBox *box = d->box;
    const Tensor *out[MAX_FIELDS] = {NULL}; // NULL: not an input of the plan
    Change one[MAX_STEPS], *change = NULL;
    int steps = 0;

    CHECK(box->r);
    for (int f = 0; f < box->fields; f++)
        for (int i = 0; i < nodes; i++)
            if (node[i] == box->node[f]) out[f] = plan_value(plan, node[i]);

    for (int i = 0; box->augment && i < d->count; i++) {
        steps = pipeline_changes(box->p, d->number[i], d->epoch, one);
        if (!change)
            change = mem_alloc(sizeof *change * (size_t)(steps * d->count));
        if (!change) return false;
        for (int k = 0; k < steps; k++) change[k * d->count + i] = one[k];
    }

    bool ok =
        device_dataset_gather(box->r, d->number, d->count, change, steps, out);
    mem_free(change);
    return ok;
}

void bind_device_dataset(lua_State *L)
{
    static const luaL_Reg device_dataset[] = {
        {"bytes", l_bytes}, {"draw", l_draw}, {NULL, NULL}};
    static const luaL_Reg device_batch[] = {{NULL, NULL}};
    new_type(L, "seg.device_dataset", device_dataset, device_dataset_gc);
    new_type(L, "seg.device_batch", device_batch, NULL);
    lua_getfield(L, -1, "data");
    lua_pushcfunction(L, l_device_dataset);
    lua_setfield(L, -2, "device_dataset");
    lua_pop(L, 1);
}
