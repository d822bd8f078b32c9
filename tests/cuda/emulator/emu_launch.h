/* emu_launch.h -- thread and block index, launches, shared memory and block
 * barriers.
 *
 * threadIdx, blockIdx, blockDim and gridDim are plain globals: only one OS
 * thread at a time runs kernels (every call of the runtime takes one lock). A
 * launch copies its arguments, because it may run later: at the next
 * synchronisation, or as a node of a graph.
 *
 * The emulator enforces rules that hardware does not always enforce: all
 * threads of a block reach the same __syncthreads() line, none has returned
 * before; shared memory is at most 99 KB (227 KB on an emulated Hopper), its
 * static part at most 48 KB. */
#ifndef EMU_LAUNCH_H
#define EMU_LAUNCH_H
#include "tests/cuda/emulator/emu_api.h"
#include "tests/cuda/emulator/emu_types.h"

namespace emu {

extern uint3 thread_index, block_index;
extern dim3 block_extent, grid_extent;
extern int thread_number; /* in the block, x fastest; -1 outside a kernel */

/* A kernel with a copy of its arguments. */
struct Bound {
    void (*call)(const void *args);
    std::shared_ptr<const void> args;
    size_t size; /* bytes of *args */
};

struct Launch {
    const char *kernel, *file; /* file and line of the LAUNCH */
    int line;
    const void *function;
    dim3 grid, block;
    size_t shared;  /* dynamic bytes */
    bool coop;      /* blocks are interleaved and may use grid_barrier */
    bool dependent; /* each thread must call grid_dependency_wait */
    Bound bound;
};

/* Queues or captures a launch, or refuses it with an error; sets the last
 * error. */
void launch(Launch what, cudaStream_t stream);

template <class... P> struct Arguments {
    void (*kernel)(P...);
    std::tuple<P...> values;
    static void call(const void *self)
    {
        const Arguments *a = static_cast<const Arguments *>(self);
        std::apply(a->kernel, a->values);
    }
};

template <class... P, class... A>
inline void launch(const char *name, const char *file, int line, bool coop,
                   bool dependent, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared, cudaStream_t stream, A &&...args)
{
    static_assert((std::is_trivially_copyable_v<P> && ...),
                  "kernel arguments are copied as bytes");
    typedef Arguments<P...> Args;
    auto held = std::make_shared<Args>(
        Args{kernel, std::tuple<P...>(static_cast<P>(args)...)});
    launch(Launch{name, file, line, reinterpret_cast<const void *>(kernel),
                  grid, block, shared, coop, dependent,
                  Bound{Args::call, held, sizeof(Args)}},
           stream);
}

void block_barrier(const char *what, const char *file, int line);
enum Vote { VOTE_OR, VOTE_AND, VOTE_COUNT };
int block_vote(Vote vote, bool yes, const char *file, int line);

/* Returns the shared array of the running block for `key`. */
void *shared_array(const void *key, size_t bytes, size_t align,
                   const char *name, const char *file, int line);
void *shared_dynamic(size_t align, const char *file, int line);

[[noreturn]] void stop_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

} // namespace emu

#define threadIdx (emu::thread_index)
#define blockIdx  (emu::block_index)
#define blockDim  (emu::block_extent)
#define gridDim   (emu::grid_extent)
static const int warpSize = 32;

#define LAUNCH_NOW(kernel, grid, block, smem, stream, ...)               \
    emu::launch(#kernel, __FILE__, __LINE__, false, false, kernel, grid, \
                block, smem, stream, __VA_ARGS__)
#define LAUNCH_COOP_NOW(kernel, grid, block, smem, stream, ...)                \
    emu::launch(#kernel, __FILE__, __LINE__, true, false, kernel, grid, block, \
                smem, stream, __VA_ARGS__)
#define LAUNCH_DEPENDENT_NOW(kernel, grid, block, smem, stream, ...)           \
    emu::launch(#kernel, __FILE__, __LINE__, false, true, kernel, grid, block, \
                smem, stream, __VA_ARGS__)

#define SMEM(T, name, ...)                                                   \
    static const char name##_key = 0;                                        \
    typedef T name##_type __VA_ARGS__;                                       \
    name##_type &name = *static_cast<name##_type *>(emu::shared_array(       \
        &name##_key, sizeof(name##_type), alignof(T) < 16 ? 16 : alignof(T), \
        #name, __FILE__, __LINE__))
#define DYN_SMEM(T, name) \
    T *name =             \
        static_cast<T *>(emu::shared_dynamic(alignof(T), __FILE__, __LINE__))
#define DYN_SMEM_1024(T, name) \
    T *name = static_cast<T *>(emu::shared_dynamic(1024, __FILE__, __LINE__))

inline void __syncthreads(EMU_AT)
{
    emu::block_barrier("__syncthreads", file, line);
}
inline int __syncthreads_or(int yes, EMU_AT)
{
    return emu::block_vote(emu::VOTE_OR, yes != 0, file, line);
}
inline int __syncthreads_and(int yes, EMU_AT)
{
    return emu::block_vote(emu::VOTE_AND, yes != 0, file, line);
}
inline int __syncthreads_count(int yes, EMU_AT)
{
    return emu::block_vote(emu::VOTE_COUNT, yes != 0, file, line);
}
/* The memory model is not emulated: only barriers are checked. */
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
inline void __trap(EMU_AT)
{
    emu::stop_at(file, line, "the kernel called __trap()");
}
#endif
