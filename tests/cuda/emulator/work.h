/* work.h -- queued work: what stream.cc, event.cc and graph.cc share.
 *
 * Each operation of a stream is a Work with a number that grows over all
 * streams. `after` lists what must be done first in other streams: the tail of
 * the legacy stream, of all blocking streams, or of what an event recorded.
 * Since it points backwards only, running on demand cannot go in circles. */
#ifndef EMU_WORK_H
#define EMU_WORK_H
#include "tests/cuda/emulator/core.h"

#include <deque>
#include <unordered_set>
#include <vector>

namespace emu {

/* Handles that the program was given. A destroyed one is no longer live, but
 * its object stays: queued work points to it, and so may the program. A run
 * makes very many, so none is looked for in a list. */
template <class T> struct Handles {
    std::deque<T> all;
    std::unordered_set<const T *> live;

    T *add()
    {
        all.emplace_back();
        live.insert(&all.back());
        return &all.back();
    }
    bool has(const T *handle) const
    {
        return live.count(handle) > 0;
    }
    bool drop(const T *handle) /* false when it was not live */
    {
        return live.erase(handle) > 0;
    }
};

struct Node;
typedef std::vector<Node> Nodes;

struct After {
    CUstream_st *stream;
    uint64_t number;
};

struct Work {
    enum Kind { KERNEL, COPY, SET, RECORD, WAIT, GRAPH, HOST } kind;
    uint64_t number;
    std::vector<After> after;
    Launch launch; /* KERNEL */
    void *to;      /* COPY, SET */
    const void *from;
    size_t bytes;
    int value;
    std::shared_ptr<std::vector<char>> staged; /* of a pageable source */
    cudaEvent_t event;                         /* RECORD */
    std::shared_ptr<const Nodes> graph;        /* GRAPH */
    cudaHostFn_t call;                         /* HOST */
    void *data;
    const char *file;
    int line;
    Work(Kind of, const char *where, int at)
        : kind(of), number(0), launch(), to(nullptr), from(nullptr), bytes(0),
          value(0), event(nullptr), call(nullptr), data(nullptr), file(where),
          line(at)
    {
    }
};

/* A node of a graph: work without stream, after other nodes. */
struct Node {
    Work work;
    std::vector<int> after;
};

struct Capture {
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    bool spoilt, ended;
    Nodes nodes;
};

} // namespace emu

struct CUstream_st {
    int id;     /* 0 is the legacy stream */
    int device; /* that was current when it was made */
    bool blocking;
    std::deque<emu::Work> queue;
    uint64_t last, done; /* numbers: the newest queued, the newest run */
    std::shared_ptr<emu::Capture> capture;
    std::vector<int> tips; /* nodes that the next captured one comes after */
};

struct CUevent_st {
    unsigned flags;
    bool recorded;
    CUstream_st *stream; /* where it was last recorded, as which work */
    uint64_t number;
    double time; /* seconds; valid when that work has run */
    std::shared_ptr<emu::Capture> capture; /* or captured, after these */
    std::vector<int> tips;
};

namespace emu {

enum Streams { STREAMS_LATE, STREAMS_EARLY, STREAMS_AHEAD, STREAMS_RANDOM };
extern Streams streams_mode;
extern uint64_t streams_dice;

CUstream_st *legacy_stream();
/* null when the handle is not of a live stream */
CUstream_st *find_stream(cudaStream_t handle);
const std::vector<CUstream_st *> &all_streams();
uint64_t next_number(); /* that enqueue will give */
/* Queue it, or add it to the capture under way. */
cudaError_t enqueue(Work &&work, CUstream_st *s);
void run_until(CUstream_st *s, uint64_t number);
/* Run one more operation of a stream that is being polled. */
void run_one(CUstream_st *s);
void execute(Work &work);
void run_graph(const Nodes &nodes);
/* `s` waits for what `capture` and `tips` say, joining the capture. */
cudaError_t capture_wait(CUstream_st *s,
                         const std::shared_ptr<Capture> &capture,
                         const std::vector<int> &tips);
cudaError_t capture_add(CUstream_st *s, Work &&work);
/* Queueing on the legacy stream would touch a blocking stream's capture. */
cudaError_t capture_implicit(CUstream_st *s);
void capture_end(const std::shared_ptr<Capture> &capture);
void spoil(const std::shared_ptr<Capture> &capture);
size_t live_events();
size_t live_graphs();

} // namespace emu
#endif
