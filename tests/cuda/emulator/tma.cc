/* tma.cc -- tensor maps, and copies by the tensor memory accelerator (TMA).
 *
 * A box lies in shared memory row after row, the innermost axis first, each 16
 * bytes at the address that the swizzle gives. */
#include "tests/cuda/emulator/core.h"
#include "tests/cuda/emulator/emu_half.h"

#include <vector>

namespace emu {

enum { ROW = 128 }; /* bytes of the longest row of a box */
static const uint64_t MAP_MARK = 0x74656e736f726d70u;

bool tensor_map_encode(const void *data, const int64_t *extent,
                       const int64_t *stride, const int *box, int swizzle,
                       TensorMap *out, MapType type, const char *file, int line)
{
    const Site site = {"tensor_map_encode", file, line};
    const int element = type == MAP_F32 ? 4 : 2;
    if (swizzle != 128 && swizzle != 64 && swizzle != 32)
        stop(site, "tensor_map_encode: a swizzle of %d bytes", swizzle);
    if ((uintptr_t)data % 16)
        stop(site, "tensor_map_encode: the address is no multiple of 16");
    if (box[0] * element != swizzle)
        stop(site,
             "tensor_map_encode: a row of the box has %d bytes, the swizzle %d",
             box[0] * element, swizzle);
    for (int i = 0; i < MAP_AXES; i++) {
        if (extent[i] < 1 || extent[i] > (int64_t)1 << 32)
            stop(site, "tensor_map_encode: extent %lld of axis %d",
                 (long long)extent[i], i);
        if (box[i] < 1 || box[i] > 256)
            stop(site, "tensor_map_encode: the box has extent %d along axis %d",
                 box[i], i);
        if (i && (stride[i] % 16 || stride[i] < 0 || stride[i] >> 40))
            stop(site,
                 "tensor_map_encode: stride %lld of axis %d is no multiple of "
                 "16",
                 (long long)stride[i], i);
        out->extent[i] = extent[i];
        out->stride[i] = i ? stride[i] : element;
        out->box[i] = box[i];
    }
    out->data = (uintptr_t)data;
    out->swizzle = swizzle;
    out->type = type;
    out->element = element;
    out->mark = MAP_MARK;
    return true;
}

/* -- boxes ---------------------------------------------------------------- */
namespace {
struct Box {
    TensorMap map;
    int at[MAP_AXES];
    char *shared;
    Site site;
    void *pc;
};
} // namespace

static uint32_t box_bytes(const TensorMap &m)
{
    uint32_t n = (uint32_t)m.element;
    for (int e : m.box) n *= (uint32_t)e;
    return n;
}

/* Calls each(i, from, to, global) for row i of the box: elements from .. to - 1
 * of it are inside of the tensor, the first of them at `global`. */
template <class Each> static void each_row(const Box &b, Each each)
{
    const TensorMap &m = b.map;
    const int64_t from = std::max(0, -b.at[0]);
    const int64_t to = std::min((int64_t)m.box[0], m.extent[0] - b.at[0]);
    int at[MAP_AXES] = {}, rows = 1;
    for (int i = 1; i < MAP_AXES; i++) rows *= m.box[i];
    for (int r = 0; r < rows; r++) {
        bool inside = from < to;
        uintptr_t global = m.data + (uintptr_t)(m.element * (b.at[0] + from));
        for (int i = 1; i < MAP_AXES; i++) {
            const int64_t x = (int64_t)b.at[i] + at[i];
            inside = inside && x >= 0 && x < m.extent[i];
            global += (uintptr_t)(x * m.stride[i]);
        }
        if (inside)
            each(r, (int)from, (int)to, global);
        else
            each(r, 0, 0, (uintptr_t)0);
        for (int i = 1; i < MAP_AXES && ++at[i] == m.box[i]; i++) at[i] = 0;
    }
}

/* Calls each(shared, i) for the 16 bytes i of row r, where they lie. */
template <class Each> static void each_16(const Box &b, int r, Each each)
{
    const uintptr_t row = (uintptr_t)b.shared + (uintptr_t)r * b.map.swizzle;
    for (int i = 0; i < b.map.swizzle / 16; i++) {
        const uintptr_t a = row + 16u * (unsigned)i;
        const uintptr_t turn = a / 128 % (uintptr_t)(b.map.swizzle / 16) * 16;
        each(reinterpret_cast<char *>(a ^ turn), i);
    }
}

/* Requires that all of the box that is inside of the tensor is in one
 * allocation. */
static void check_global(const Box &b)
{
    const Allocation *a = allocation_of(b.map.data);
    each_row(b, [&](int, int from, int to, uintptr_t at) {
        const size_t n = (size_t)(b.map.element * (to - from));
        if (from == to || (a && at >= a->at && at + n <= a->at + a->bytes))
            return;
        char text[256];
        describe_address(at, n, text, sizeof text);
        stop(b.site, "%s touches %s", b.site.what, text);
    });
}

static void check_box(const Box &b)
{
    const Site &site = b.site;
    const uintptr_t turns = 8 * (uintptr_t)b.map.swizzle;
    if (b.map.mark != MAP_MARK)
        stop(site, "%s: the tensor map was not encoded", site.what);
    if ((uintptr_t)b.shared % turns)
        stop(site, "%s: shared address not aligned to %zu bytes", site.what,
             (size_t)turns);
    shared_check(b.shared, box_bytes(b.map), 16, site.what, site.file,
                 site.line);
    check_global(b);
}

static Box box_of(const void *shared, const TensorMap *map, const int *at,
                  const Site &site, void *pc)
{
    Box b = {
        *map, {}, static_cast<char *>(const_cast<void *>(shared)), site, pc};
    std::copy(at, at + MAP_AXES, b.at);
    dependency_needed(site);
    check_box(b);
    return b;
}

/* Calls access() as if another thread of the block made its accesses. */
template <class Access> static void as_thread(int thread, Access access)
{
    const int self = thread_number;
    thread_number = thread;
    thread_index = thread_places[thread];
    access();
    thread_number = self;
    thread_index = thread_places[self];
}

/* -- loads ---------------------------------------------------------------- */
namespace {
struct Load {
    Box box;
    uint64_t *bar;
    int thread;
};
} // namespace

static std::vector<Load> loads[MAX_BLOCKS]; /* in flight */

static void land(const Load &l)
{
    const Box &b = l.box;
    if (checker)
        as_thread(l.thread, [&] {
            each_row(b, [&](int, int from, int to, uintptr_t at) {
                if (from < to)
                    checker->access(at, (size_t)(b.map.element * (to - from)),
                                    ACCESS_READ, b.pc);
            });
            checker->loaded((uintptr_t)b.shared, box_bytes(b.map));
        });
    each_row(b, [&](int r, int from, int to, uintptr_t at) {
        char row[ROW] = {};
        if (from < to)
            memcpy(row + b.map.element * from,
                   reinterpret_cast<const void *>(at),
                   (size_t)(b.map.element * (to - from)));
        each_16(b, r, [&](char *p, int i) { memcpy(p, row + 16 * i, 16); });
    });
    mbarrier_complete(l.bar, box_bytes(b.map), b.site);
}

bool is_loading(uintptr_t at, size_t n)
{
    for (const Load &l : loads[block->number]) {
        const uintptr_t to = (uintptr_t)l.box.shared;
        if (at < to + box_bytes(l.box.map) && to < at + n) return true;
    }
    return false;
}

void tma_load(void *to, const TensorMap *map, const int *at, uint64_t *bar,
              const char *file, int line)
{
    const Site site = {"tma_load", file, line};
    void *pc = __builtin_return_address(0);
    const Load l = {box_of(to, map, at, site, pc), bar, thread_number};
    const uint32_t bytes = box_bytes(l.box.map);
    if (is_loading((uintptr_t)to, bytes))
        stop(site, "tma_load to where another load is in flight");
    mbarrier_loads(bar, site);
    if (checker) checker->loading((uintptr_t)to, bytes, pc);
    if (settings.copies_early) {
        land(l);
        return;
    }
    memset(to, 0xff, bytes);
    loads[block->number].push_back(l);
}

void loads_land(const uint64_t *bar)
{
    std::vector<Load> &all = loads[block->number];
    for (size_t i = 0; i < all.size();) {
        if (all[i].bar != bar) {
            i++;
            continue;
        }
        const Load l = all[i];
        all.erase(all.begin() + (long)i);
        land(l);
    }
}

void loads_begin(Block *b)
{
    loads[b->number].clear();
}

void loads_end(Block *b)
{
    if (loads[b->number].empty()) return;
    stop(loads[b->number][0].box.site,
         "tma_load: the block has ended and no thread waited for it");
}

/* -- stores --------------------------------------------------------------- */
namespace {
struct Sixteen { /* a type of this file, see mbarrier.cc */
    uint16_t value[8];
};
typedef std::vector<Sixteen> Contents;
struct Store {
    Box box;
    bool add; /* tma_reduce_add */
    long group;
    Contents issued; /* the box when it was issued, row after row */
};
} // namespace

/* Those of one thread. */
struct Stores {
    std::vector<Store> all;
    size_t read, written; /* so many of them have been */
    long group;           /* the open group; earlier groups are committed */
};

static Contents gather(const Box &b)
{
    Contents all(box_bytes(b.map) / 16);
    const int row = b.map.swizzle / 16;
    for (int r = 0; r < (int)all.size() / row; r++)
        each_16(b, r, [&](const char *p, int i) {
            memcpy(all[(size_t)(r * row + i)].value, p, 16);
        });
    return all;
}

static void read_shared(const Store &s)
{
    const Contents now = gather(s.box);
    for (size_t i = 0; i < now.size(); i++) {
        if (!memcmp(&now[i], &s.issued[i], sizeof now[i])) continue;
        stop(s.box.site,
             "%s: its shared memory was overwritten before "
             "tma_store_wait_read",
             s.box.site.what);
    }
}

static uint16_t sum(uint16_t a, uint16_t b, MapType type)
{
    return type == MAP_F16 ? to_f16(from_f16(a) + from_f16(b))
                           : to_bf16(from_bf16(a) + from_bf16(b));
}

static float sum(float a, float b, MapType)
{
    return a + b;
}

/* Writes the elements from .. to_end - 1 of row r. */
template <class T>
static void write_row(const Store &s, int r, int from, int to_end, uintptr_t at)
{
    enum { WIDE = ROW / sizeof(T) };
    const char *row = reinterpret_cast<const char *>(s.issued[0].value) +
                      (ptrdiff_t)r * s.box.map.swizzle;
    T *to = reinterpret_cast<T *>(at), x[WIDE];
    memcpy(x, row + from * (int)sizeof(T), (size_t)(to_end - from) * sizeof(T));
    for (int i = 0; i < to_end - from; i++)
        to[i] = s.add ? sum(to[i], x[i], s.box.map.type) : x[i];
}

static void write_global(const Store &s)
{
    const Access how = s.add ? ACCESS_ATOMIC : ACCESS_WRITE;
    each_row(s.box, [&](int r, int from, int to_end, uintptr_t at) {
        const size_t n = (size_t)(s.box.map.element * (to_end - from));
        if (!n) return;
        if (checker) checker->access(at, n, how, s.box.pc);
        if (s.box.map.type == MAP_F32)
            write_row<float>(s, r, from, to_end, at);
        else
            write_row<uint16_t>(s, r, from, to_end, at);
    });
}

static void store(const TensorMap *map, const void *from, const int *at,
                  bool add, const Site &site, void *pc)
{
    Fiber *f = &block->fiber[thread_number];
    const Box b = box_of(from, map, at, site, pc);
    const uint32_t bytes = box_bytes(b.map);
    // "Negative indices and out of bounds", CUDA C++ Programming Guide
    for (int i = 0; i < MAP_AXES; i++)
        if (at[i] < 0)
            stop(site, "%s: a box that begins at %d", site.what, at[i]);
    if (is_loading((uintptr_t)from, bytes))
        stop(site, "%s of a tile whose tma_load is in flight", site.what);
    if (checker) checker->async_read((uintptr_t)from, bytes, pc);
    if (!f->stores) f->stores = new Stores{{}, 0, 0, 0};
    f->stores->all.push_back({b, add, f->stores->group, gather(b)});
}

void tma_store(const TensorMap *map, const void *from, const int *at,
               const char *file, int line)
{
    store(map, from, at, false, {"tma_store", file, line},
          __builtin_return_address(0));
}

void tma_reduce_add(const TensorMap *map, const void *from, const int *at,
                    const char *file, int line)
{
    store(map, from, at, true, {"tma_reduce_add", file, line},
          __builtin_return_address(0));
}

void tma_store_commit()
{
    Fiber *f = &block->fiber[thread_number];
    if (f->stores) f->stores->group++;
}

/* Lets the groups be read, or read and written, but for the last ones. */
static void advance(Stores *s, long before, bool write)
{
    while (s->read < s->all.size() && s->all[s->read].group < before)
        read_shared(s->all[s->read++]);
    if (!write) return;
    while (s->written < s->read && s->all[s->written].group < before)
        write_global(s->all[s->written++]);
    if (s->written < s->all.size()) return;
    s->all.clear();
    s->read = s->written = 0;
}

void tma_store_wait_read(int groups_left)
{
    Stores *s = block->fiber[thread_number].stores;
    if (s) advance(s, s->group - groups_left, settings.copies_early);
}

void tma_store_wait(int groups_left)
{
    Stores *s = block->fiber[thread_number].stores;
    if (s) advance(s, s->group - groups_left, true);
}

/* Stores that have been read are written by the end of the kernel. */
void stores_returned(Fiber *f)
{
    Stores *s = f->stores;
    if (s->read < s->all.size())
        stop(s->all[s->read].box.site,
             "%s: its thread returned without tma_store_wait_read",
             s->all[s->read].box.site.what);
    advance(s, s->group, true);
    s->group = 0;
}

} // namespace emu
