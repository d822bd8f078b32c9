/* work.h -- queued work: private interface of stream.cc, event.cc and graph.cc.
 *
 * Each operation of a stream is a Work with a number that grows over all
 * streams. `after` lists the operations of other streams that must run first:
 * the tail of the legacy stream, of all blocking streams, or of the stream that
 * an event recorded. It names only older operations, hence running on demand
 * cannot go in circles. */
#ifndef EMU_WORK_H
#define EMU_WORK_H
#include "tests/cuda/emulator/core.h"

#include <deque>
#include <unordered_set>
#include <vector>

namespace emu {

/* Handles that were returned to the program. A destroyed handle is not live any
 * more, but its object stays: queued work points to it, and the program may,
 * too. A run makes very many, so the live handles are in a set, not a list. */
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
    std::shared_ptr<std::vector<char>> staged; /* copy of a pageable source */
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

/* A node of a graph: work without a stream, with the nodes before it. */
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
    int device; /* the current device when the stream was created */
    bool blocking;
    std::deque<emu::Work> queue;
    uint64_t last, done; /* numbers of the newest queued, newest run Work */
    std::shared_ptr<emu::Capture> capture;
    std::vector<int> tips; /* predecessors of the next captured node */
};

struct CUevent_st {
    unsigned flags;
    bool recorded;
    CUstream_st *stream; /* of the last record, whose Work has this number */
    uint64_t number;
    double time; /* seconds; valid when the record has run */
    std::shared_ptr<emu::Capture> capture; /* of a captured record; `tips` are
                                            * the nodes before it */
    std::vector<int> tips;
};

namespace emu {

enum Streams { STREAMS_LATE, STREAMS_EARLY, STREAMS_AHEAD, STREAMS_RANDOM };
extern Streams streams_mode;
extern uint64_t streams_dice;

CUstream_st *legacy_stream();
/* Returns the stream of a handle, null when it is not live. */
CUstream_st *find_stream(cudaStream_t handle);
const std::vector<CUstream_st *> &all_streams();
uint64_t next_number(); /* of the Work that enqueue adds next */
/* Queues `work`, or adds it to the current capture of `s`. */
cudaError_t enqueue(Work &&work, CUstream_st *s);
void run_until(CUstream_st *s, uint64_t number);
/* Runs one more operation of a stream that the program polls. */
void run_one(CUstream_st *s);
void execute(Work &work);
void run_graph(const Nodes &nodes);
/* Makes `s` join `capture` and wait for its nodes `tips`. */
cudaError_t capture_wait(CUstream_st *s,
                         const std::shared_ptr<Capture> &capture,
                         const std::vector<int> &tips);
cudaError_t capture_add(CUstream_st *s, Work &&work);
/* Work on the legacy stream, which would depend on a blocking stream under
 * capture: fails and invalidates that capture. */
cudaError_t capture_implicit(CUstream_st *s);
void capture_end(const std::shared_ptr<Capture> &capture);
void spoil(const std::shared_ptr<Capture> &capture);
size_t live_events();
size_t live_graphs();

} // namespace emu
#endif
