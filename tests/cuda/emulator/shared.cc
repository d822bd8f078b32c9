/* shared.cc -- shared memory of the blocks, and cp.async into it.
 *
 * Each running block has a range of addresses, its room: the dynamic part
 * first, then each SMEM array in the order of first use, each followed by a
 * gap. The key of an array is the address of a static of its declaration, so
 * all threads find the same array. At the start of a block all shared memory
 * holds 0xFF (a NaN); gaps are poisoned for ASan, out of bounds for the race
 * checker, and compared at the end of the block in every build. */
#include "tests/cuda/emulator/core.h"

#include <sys/mman.h>
#include <vector>

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *,
                                                       size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *,
                                                         size_t);
__attribute__((weak)) void *__asan_region_is_poisoned(void *, size_t);
}

namespace emu {

enum { GAP = 64, MAX_ARRAYS = 64, GAP_BYTE = 0xa7 };

namespace {
struct Array {
    const void *key;
    const char *name;
    size_t at, bytes; /* in the room */
};
} // namespace

uintptr_t rooms_low, rooms_high;
static Array arrays[MAX_ARRAYS]; /* arrays[0] is the dynamic part */
static int array_count, room_count;
static size_t room_used, device_used; /* bytes with gaps; bytes on a GPU */

static char *room(int number)
{
    return reinterpret_cast<char *>(rooms_low) + (size_t)number * SHARED_ROOM;
}

static void poison(void *p, size_t n, bool on)
{
    if (on && __asan_poison_memory_region) __asan_poison_memory_region(p, n);
    if (!on && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(p, n);
}

static void add_array(const void *key, size_t bytes, size_t at,
                      const char *name)
{
    arrays[array_count++] = Array{key, name, at, bytes};
    room_used = at + bytes + GAP;
    for (int i = 0; i < room_count; i++) {
        char *p = room(i) + at;
        poison(p, bytes + GAP, false); /* ASan checks memset, too */
        memset(p, 0xff, bytes);
        memset(p + bytes, GAP_BYTE, GAP);
        poison(p + bytes, GAP, true);
    }
}

void shared_begin(size_t dynamic, int blocks)
{
    if (!rooms_low) {
        const size_t all = (size_t)MAX_BLOCKS * SHARED_ROOM;
        void *p = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) stop_at(__FILE__, __LINE__, "no shared memory");
        rooms_low = (uintptr_t)p, rooms_high = rooms_low + all;
    }
    poison(room(0), (size_t)blocks * SHARED_ROOM, true);
    room_count = blocks;
    array_count = 0;
    device_used = dynamic;
    add_array(nullptr, dynamic, 0, "dynamic shared memory");
}

void shared_block_begin(Block *b)
{
    b->shared = room(b->number);
    for (int i = 0; i < array_count; i++)
        memset(b->shared + arrays[i].at, 0xff, arrays[i].bytes);
}

void shared_block_end(Block *b)
{
    for (int i = 0; i < array_count; i++) {
        const unsigned char *gap = reinterpret_cast<unsigned char *>(
            b->shared + arrays[i].at + arrays[i].bytes);
        for (int k = 0; k < GAP; k++)
            if (gap[k] != GAP_BYTE)
                stop_at(running->file, running->line,
                        "shared memory was written %d bytes past the end of "
                        "%s (%zu bytes), seen at the end of block (%u,%u,%u)",
                        k, arrays[i].name, arrays[i].bytes, b->index.x,
                        b->index.y, b->index.z);
    }
}

void *shared_array(const void *key, size_t bytes, size_t align,
                   const char *name, const char *file, int line)
{
    for (int i = 1; i < array_count; i++)
        if (arrays[i].key == key) return block->shared + arrays[i].at;
    const size_t fixed = device_used - arrays[0].bytes + bytes;
    const Site site = {"SMEM", file, line};
    device_used += (bytes + 15) / 16 * 16;
    if (fixed > SHARED_STATIC)
        stop(site, "static shared memory: %zu bytes with %s, %d are allowed",
             fixed, name, SHARED_STATIC);
    if (device_used > shared_limit())
        stop(site, "shared memory: %zu bytes with %s, %zu are allowed",
             device_used, name, shared_limit());
    if (array_count == MAX_ARRAYS)
        stop(site, "more than %d shared arrays", MAX_ARRAYS - 1);
    add_array(key, bytes, (room_used + align - 1) / align * align, name);
    return block->shared + arrays[array_count - 1].at;
}

void *shared_dynamic(size_t align, const char *file, int line)
{
    if (align > 16 && align != 1024)
        stop_at(file, line, "dynamic shared memory is aligned to 16 bytes");
    return block->shared;
}

uint32_t shared_offset(const void *p, const char *file, int line)
{
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)block->shared;
    if (offset >= SHARED_ROOM || offset % 16)
        stop_at(file, line,
                "wgmma: the operand's address is not in shared memory, or no "
                "multiple of 16");
    return (uint32_t)offset;
}

bool shared_holds(const Block *b, uintptr_t at, size_t n)
{
    const uintptr_t offset = at - (uintptr_t)b->shared;
    for (int i = 0; i < array_count; i++)
        if (offset >= arrays[i].at && n <= arrays[i].bytes &&
            offset - arrays[i].at <= arrays[i].bytes - n)
            return true;
    return false;
}

void shared_check(const void *p, size_t n, size_t align, const char *what,
                  const char *file, int line)
{
    const Site site = {what, file, line};
    if ((uintptr_t)p % align)
        stop(site, "%s: shared address not aligned to %zu bytes", what, align);
    if (!in_shared_memory((uintptr_t)p))
        stop(site, "%s: the address is not in shared memory", what);
    if (!shared_holds(block, (uintptr_t)p, n))
        stop(site, "%s: out of bounds of the block's shared arrays", what);
}

void atomic_access(const void *p, size_t bytes, void *pc)
{
    if (checker) checker->access((uintptr_t)p, bytes, ACCESS_ATOMIC, pc);
}

/* -- cp.async -------------------------------------------------------------
 * The copies of a thread are done when it waits for their group. A thread that
 * returns without waiting leaves its copies undone. */
namespace {
struct Op {
    void *to;
    const void *from;
    int bytes;
    bool valid;
    long group;
    void *pc;
};
} // namespace

struct Copies {
    std::vector<Op> ops;
    size_t landed; /* number of ops that are done */
    long group;    /* the open group; earlier groups are committed */
};

static void land(const Op &op)
{
    if (checker) {
        if (op.valid)
            checker->access((uintptr_t)op.from, (size_t)op.bytes, ACCESS_READ,
                            op.pc);
        checker->access((uintptr_t)op.to, (size_t)op.bytes, ACCESS_WRITE,
                        op.pc);
    }
    if (op.valid)
        memcpy(op.to, op.from, (size_t)op.bytes);
    else
        memset(op.to, 0, (size_t)op.bytes);
}

void copy_issue(void *to, const void *from, int bytes, bool valid,
                const char *file, int line)
{
    void *pc = __builtin_return_address(0);
    const Site site = {"cp.async", file, line};
    Fiber *f = &block->fiber[thread_number];
    const uintptr_t at = (uintptr_t)from;
    shared_check(to, (size_t)bytes, (size_t)bytes, "cp.async", file, line);
    if (at % (uintptr_t)bytes)
        stop(site, "cp.async: global address not aligned to %d bytes", bytes);
    /* a source that is not read must be a device address, too */
    const Allocation *a = allocation_of(at);
    const size_t n = valid ? (size_t)bytes : 1;
    if (!a || at + n > a->at + a->bytes ||
        (valid && __asan_region_is_poisoned &&
         __asan_region_is_poisoned(const_cast<void *>(from), n))) {
        char text[256];
        describe_address(at, n, text, sizeof text);
        stop(site, "cp.async reads %s", text);
    }
    const Op op = {to, from, bytes, valid, f->copies ? f->copies->group : 0,
                   pc};
    if (settings.copies_early || !has_sm80()) {
        land(op);
        return;
    }
    if (!f->copies) f->copies = new Copies{{}, 0, 0};
    if (checker)
        checker->access((uintptr_t)to, (size_t)bytes, ACCESS_WRITE, pc);
    memset(to, 0xff, (size_t)bytes);
    f->copies->ops.push_back(op);
}

void copy_commit()
{
    Copies *c = block->fiber[thread_number].copies;
    if (c) c->group++;
}

void copy_wait(int groups_left)
{
    Copies *c = block->fiber[thread_number].copies;
    if (!c) return;
    while (c->landed < c->ops.size() &&
           c->ops[c->landed].group < c->group - groups_left)
        land(c->ops[c->landed++]);
    if (c->landed == c->ops.size()) {
        c->ops.clear();
        c->landed = 0;
    }
}

void copies_drop(Fiber *f)
{
    f->copies->ops.clear();
    f->copies->landed = 0;
    f->copies->group = 0;
}

} // namespace emu
