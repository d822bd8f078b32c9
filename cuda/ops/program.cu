/* program.cu -- programs of elementwise operators (engine/graph/program.h).
 *
 * Mapping: each thread makes V adjacent elements, then continues with the
 * stride of the grid. The registers of a program (program.h) are slots of
 * shared memory, since a GPU cannot index its register file by a number that is
 * read at run time: slot s of a thread is at s * THREADS + thread, so a warp
 * reads 512 adjacent bytes. All threads run the same instruction.
 *
 * Bound by the bandwidth of global memory: each operand is read once and each
 * result written once. An instruction moves 48 bytes of shared memory for 4
 * elements; a GPU has about nine times as much of that bandwidth, so about nine
 * instructions an operand take no more time than its load. An operand that is
 * broadcast comes from the caches.
 *
 * Values and gradients of an operator are those of activation.cu and
 * broadcast.cu (functions.cuh), with the same bits in f32. */
#include "cuda/lib/vec.cuh"
#include "cuda/ops/functions.cuh"
extern "C" {
#include "engine/graph/program.h"
}

namespace {

enum { THREADS = 128 };

/* An operand or a gradient that a thread loads into a slot. */
struct Load {
    const void *data;
    Steps step;  // 0 along the axes on which it is broadcast
    bool whole;  // all extents of the result
    bool number; // one channel, for all channels of the result
    int slot;
};

/* A result that it stores from a slot. */
struct Store {
    void *data;
    int slot;
};

/* A code with slots in place of registers, and its operands and results. */
struct Code {
    int count, constants, loads, stores, slots;
    Load load[2 * MAX_IN + 2];
    Store store[MAX_IN];
    Instruction list[PROGRAM_CODE];
};

/* The elements of the result: V of them a thread. */
struct Elements {
    Grid grid;
    Divisor channels;
    int64_t count; // elements; for the kernel vectors of V
    bool flat;     // every operand has all extents or is one number
};

// -- device ------------------------------------------------------------------

template <class F, int V>
__device__ __forceinline__ Vec<V> unary(const F &f, const Instruction &i,
                                        Vec<V> a, const Vec<V> &dy)
{
#pragma unroll
    for (int k = 0; k < V; k++)
        a.v[k] = i.action == PROGRAM_VALUE ? f.value(a.v[k])
                                           : dy.v[k] * f.grad(a.v[k]);
    return a;
}

/* A gradient is added to 0, since broadcast.cu makes it as a sum: -0 becomes
 * 0. */
template <class F, int V>
__device__ __forceinline__ Vec<V> binary(const F &f, const Instruction &i,
                                         Vec<V> a, const Vec<V> &b,
                                         const Vec<V> &dy)
{
#pragma unroll
    for (int k = 0; k < V; k++)
        a.v[k] = i.action == PROGRAM_VALUE
                     ? f.value(a.v[k], b.v[k])
                     : 0.0f + f.part(i.action == PROGRAM_GRAD1, dy.v[k], a.v[k],
                                     b.v[k]);
    return a;
}

/* The result of an instruction. */
template <int V>
__device__ __forceinline__ Vec<V> result(const Instruction &i, const Vec<V> &a,
                                         const Vec<V> &b, const Vec<V> &dy)
{
    Vec<V> number;
    switch (i.op) {
    case OP_constant:
        for (int k = 0; k < V; k++) number.v[k] = i.p;
        return number;
    case OP_relu:
        return unary(Relu{}, i, a, dy);
    case OP_leaky_relu:
        return unary(LeakyRelu{i.p}, i, a, dy);
    case OP_sigmoid:
        return unary(Sigmoid{}, i, a, dy);
    case OP_tanh:
        return unary(Tanh{}, i, a, dy);
    case OP_gelu:
        return unary(Gelu{}, i, a, dy);
    case OP_silu:
        return unary(Silu{}, i, a, dy);
    case OP_scale:
        return unary(Scale{i.p, i.q}, i, a, dy);
    case OP_add:
        return binary(Add{}, i, a, b, dy);
    case OP_sub:
        return binary(Sub{}, i, a, b, dy);
    case OP_mul:
        return binary(Mul{}, i, a, b, dy);
    case OP_div:
        return binary(Div{}, i, a, b, dy);
#define BINARY(name, ...)      case OP_##name:
#define BINARY_STEP(name, ...) case OP_##name:
#include "engine/graph/elementwise.def"
        return binary(BinaryFunction{i.op}, i, a, b, dy);
#define UNARY(name, ...)      case OP_##name:
#define UNARY_STEP(name, ...) case OP_##name:
#include "engine/graph/elementwise.def"
        return unary(UnaryFunction{i.op, i.p, i.q}, i, a, dy);
    }
    // an operator of program_takes() without a case here
    for (int k = 0; k < V; k++) number.v[k] = NAN;
    return number;
}

/* The slots of this thread. */
template <int V> struct Slots {
    Vec<V> *own;
    __device__ __forceinline__ Vec<V> &operator[](int slot) const
    {
        return own[slot * THREADS];
    }
    // an instruction without this operand does not read it
    __device__ __forceinline__ Vec<V> get(int slot) const
    {
        return slot < 0 ? Vec<V>{} : (*this)[slot];
    }
};

template <int V>
__device__ __forceinline__ void run(const Code &code, int from, int to,
                                    const Slots<V> &slot)
{
    for (int n = from; n < to; n++) {
        const Instruction i = code.list[n];
        Vec<V> r = result<V>(i, slot.get(i.a), slot.get(i.b), slot.get(i.dy));
        if (i.add)
            for (int k = 0; k < V; k++) r.v[k] = slot[i.to].v[k] + r.v[k];
        slot[i.to] = r;
    }
}

/* Elements i .. i+V-1 of an operand; q, c: their place. */
template <int V, Dtype D>
__device__ __forceinline__ Vec<V> operand(const Load &from, bool flat,
                                          const Place &q, int c, int64_t i)
{
    const Element<D> *x = (const Element<D> *)from.data;
    if (from.whole) return load<V, D>(x + i);
    const int64_t at = flat ? 0 : offset(from.step, q, c);
    if (!from.number) return load<V, D>(x + at);
    const float one = load<1, D>(x + at).v[0];
    Vec<V> all;
    for (int k = 0; k < V; k++) all.v[k] = one;
    return all;
}

template <int V, Dtype D>
__global__ void program_kernel(const Code code, const Elements of)
{
    DYN_SMEM(Vec<V>, memory);
    const Slots<V> slot = {memory + threadIdx.x};
    run<V>(code, 0, code.constants, slot);
    EACH(n, of.count)
    {
        const int64_t i = n * V;
        Place q = {};
        int c = 0;
        if (!of.flat) {
            const int64_t row = i / of.channels.by;
            c = (int)(i - row * of.channels.by);
            q = place(of.grid, (uint32_t)row);
        }
        for (int k = 0; k < code.loads; k++)
            slot[code.load[k].slot] =
                operand<V, D>(code.load[k], of.flat, q, c, i);
        run<V>(code, code.constants, code.count, slot);
        for (int k = 0; k < code.stores; k++)
            store_vec<V, D>((Element<D> *)code.store[k].data + i,
                            slot[code.store[k].slot], true);
    }
}

// -- host --------------------------------------------------------------------

/* The slot of register `reg`; a new one if it has none. */
int8_t slot_of(Code *code, int8_t slot[REG_COUNT], int reg)
{
    if (reg < 0) return REG_NONE;
    if (slot[reg] < 0) slot[reg] = (int8_t)code->slots++;
    return slot[reg];
}

void add_load(Code *code, const Call *c, const Tensor *t, int slot)
{
    code->load[code->loads++] = {t->data, steps_of(t->dim),
                                 dims_equal(t->dim, c->y->dim), t->dim.c == 1,
                                 slot};
}

/* The instructions of the call with slots, and its loads and stores. A gradient
 * that is added to is loaded, and its first instruction adds. */
Code code_of(const Call *c)
{
    const Program *p = c->program;
    const ProgramCode *from = c->dy ? &p->backward : &p->forward;
    Code code = {};
    int8_t slot[REG_COUNT];
    memset(slot, REG_NONE, sizeof slot);
    code.count = from->count, code.constants = from->constants;

    for (int n = 0; n < from->count; n++) {
        Instruction i = from->list[n];
        const int k = i.to - REG_DX;
        if (k >= 0 && k < MAX_IN && !is_fresh(c, k)) i.add = true;
        i.a = slot_of(&code, slot, i.a), i.b = slot_of(&code, slot, i.b);
        i.dy = slot_of(&code, slot, i.dy), i.to = slot_of(&code, slot, i.to);
        code.list[n] = i;
    }

    for (int k = 0; k < p->operands; k++) {
        if (slot[REG_X + k] >= 0) add_load(&code, c, c->x[k], slot[REG_X + k]);
        const int dx = slot[REG_DX + k];
        if (dx < 0) continue;
        code.store[code.stores++] = {c->dx[k]->data, dx};
        if (!is_fresh(c, k)) add_load(&code, c, c->dx[k], dx);
    }
    if (!c->dy)
        code.store[code.stores++] = {c->y->data, slot[REG_Y]};
    else if (slot[REG_Y] >= 0)
        add_load(&code, c, c->y, slot[REG_Y]);
    if (slot[REG_DY] >= 0) add_load(&code, c, c->dy, slot[REG_DY]);
    return code;
}

bool is_flat(const Code &code)
{
    for (int k = 0; k < code.loads; k++) {
        const Load &x = code.load[k];
        const Steps &s = x.step;
        if (!x.whole && (s.n || s.d || s.h || s.w || s.c)) return false;
    }
    return true;
}

template <int V, Dtype D>
bool launch(const Call *c, const Code &code, Elements of)
{
    const size_t bytes = (size_t)code.slots * THREADS * sizeof(Vec<V>);
    const int64_t blocks = ceil_div(of.count / V, THREADS);
    of.count /= V;
    if (!gpu_allows(&program_kernel<V, D>, bytes)) return false;
    LAUNCH((program_kernel<V, D>), (unsigned)most(1, least(blocks, 1 << 16)),
           THREADS, bytes, gpu_stream(c->dev), code, of);
    return gpu_launched("program of elementwise operators");
}

} // namespace

extern "C" bool cuda_program(const Call *c)
{
    const Dims s = c->y->dim;
    const Code code = code_of(c);
    const Elements of = {grid_of(s), divisor(s.c), numel(s), is_flat(code)};
    if (!code.stores) return true;
    if (!of.flat && !countable(c, rows(s))) return false;
    if (c->y->type == BF16) return launch<4, BF16>(c, code, of);
    if (c->y->type == F16) return launch<4, F16>(c, code, of);
    // 16 bytes a load: adjacent channels, or any elements if all are adjacent
    return (of.flat ? of.count : s.c) % 4 ? launch<1, F32>(c, code, of)
                                          : launch<4, F32>(c, code, of);
}
