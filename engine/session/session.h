/* session.h -- a network that runs: device, parameters, plans, optimiser.
 *
 * The object behind seg.model, seg.step, training and the C API. It owns a
 * device, the parameters, one plan per set of input extents (made at the first
 * request) and a memory pool that the plans share. One thread at a time may use
 * it; several sessions may run in several threads. */
#ifndef SEG_ENGINE_SESSION_SESSION_H
#define SEG_ENGINE_SESSION_SESSION_H
#include "engine/backend/launch_log.h"
#include "engine/plan/plan.h"
#include "engine/ranks/ranks.h"
#include "engine/session/readback.h"

typedef struct Session Session;

typedef struct SessionSpec {
    const Graph *graph; /* must outlive the session            */
    const int *root;    /* outputs and, if any, the loss       */
    int roots;
    int loss; /* one of the roots, or -1             */
    /* Roots that a training step computes and leaves readable, in addition to
     * the loss; other roots are not computed in it. NULL: all roots. */
    const int *step_root;
    int step_roots;
    const char *device; /* "cpu", "ref", "cuda:0"; NULL: "cpu" */
    int threads;        /* <= 0: the default                   */
    uint64_t seed;
    const Optim *optim;  /* NULL: cannot train      */
    Precision precision; /* of convolutions; 0: f32 */
    bool no_winograd;    /* see Call.no_winograd    */
    const char *tiles;   /* see tile_names.h        */
    bool scaled;   /* gradients start from a loss scale; f16 always does */
    size_t limit;  /* bytes that the network may take on the device: parameters
                    * with gradients and moments, arena, device dataset; 0:
                    * all that it has */
    bool averages; /* weights will be averaged: reserve the memory */
    Ranks *ranks;  /* that train this network together, each with its shard of
                    * every batch; NULL: none. All open the same session */
    const char *allreduce; /* for ranks with GPUs: see
                            * Backend.allreduce_open; NULL: "auto" */
    bool local_batch_norm; /* batch norm uses the statistics of this rank's
                            * shard; running statistics are averaged after each
                            * step     */
    bool no_fusion;  /* no operators are fused: see PlanSpec                */
    bool mc_dropout; /* evaluation with dropout (plan.h), drawn from the seed
                      * and the count of session_state */
    bool dry_run;    /* on a device that is not there: parameters are not
                      * initialised, and only session_dry_run may be called */
    int capability;  /* of the GPU of a dry run, 90 for 9.0: Backend.target */
} SessionSpec;

bool session_open(const SessionSpec *spec, Session **out);
void session_close(Session *s);

/* Returns a plan for these input extents, made or found again (for the same
 * order of inputs). The session owns it and may free it after 16 other plans
 * have been requested: request it again instead of keeping it. */
bool session_plan(Session *s, bool train, const PlanInput *input, int inputs,
                  Plan **out);
/* Sets a memory limit for plans of training steps made from now on: see
 * PlanSpec.budget and .least. 0: none. */
void session_budget(Session *s, size_t bytes, bool least);
/* Finds the memory for arena and device dataset: *bytes are free on the device
 * (SIZE_MAX: unknown), *left are still allowed by the limit (SIZE_MAX: no
 * limit). An existing arena counts as free in *bytes. */
bool session_available_memory(Session *s, size_t *bytes, size_t *left);
/* Is this much free for the arena of a step? If not, fails with both
 * numbers. */
bool session_check_memory(Session *s, size_t bytes);
/* Counts `bytes` more (or less, if negative) on the device that a device
 * dataset or other object holds; they count towards the limit. */
void session_account_memory(Session *s, int64_t bytes);
/* Allocates the pool for the largest plan so far and binds `p` to it. Other
 * plans bound before must be bound again: the pool may have moved, and their
 * values in it are lost. */
bool session_bind(Session *s, Plan *p);

/* Copy one input in: user order F32, or a tensor in memory order (F32, with the
 * extents of the input). Copy a root or an input out, rounded if the device
 * stores it in 16 bits. */
bool session_feed(Session *s, Plan *p, int node, const float *user);
bool session_feed_tensor(Session *s, Plan *p, int node, const Tensor *from);
bool session_read(Session *s, Plan *p, int node, float *user);

/* Sets the shard of a batch that runs in training mode from now on: `first` is
 * the number of its first sample in the batch; `idle`: see Shard. Sums, losses
 * included, go over all ranks of the session, so each rank sees the loss of the
 * whole batch. */
void session_set_shard(Session *s, int64_t first, bool idle);

/* Runs forward only. */
bool session_run(Session *s, Plan *p);
/* The same without waiting; the values of these roots go to the readback. */
bool session_run_async(Session *s, Plan *p, const int *node, int nodes);
/* Appends the values of these roots to the readback, as the last queued run or
 * step leaves them. Queued. */
bool session_readback_add(Session *s, Plan *p, const int *node, int nodes);
/* Returns the readback, owned by the session. */
Readback *session_readback(Session *s);
/* plan_blame for the current step, as its first part, with the parameters after
 * all queued work; running statistics do not change. */
bool session_blame(Session *s, Plan *p, char *text, size_t room, Blame *more);

/* One part of a training step: forward and backward of one batch; the last part
 * also clips and updates with learning rate lr. Gradients of `parts` batches
 * are averaged for one update; `first` and `last` mark the first and last batch
 * (both are true for a single part). Parameters and step count do not change if
 * a loss or gradient is not finite. Each part has its own random draws. No
 * other run may come between two parts. */
typedef struct StepPart {
    bool first, last;
    int parts;
    double lr, clip_norm; /* clip_norm <= 0: no clipping; of the last part */
} StepPart;

/* Queues one part; its result is collected later, in the order of queueing. At
 * most session_ahead() + 1 parts may be pending. All other functions of a
 * session see the state after all queued work, except session_state and the
 * random draws of a run in training mode, which depend on the step count. */
bool session_queue(Session *s, Plan *p, const StepPart *part);
bool session_collect(Session *s, bool wait, StepResult *out, bool *got);
/* Number of pending parts that are useful while the next is prepared: 0 if
 * session_queue returns only after the part has run. */
int session_ahead(const Session *s);
int session_under_way(const Session *s); /* parts not collected yet */

/* Queues a part and waits for its result; no other part may be pending. */
bool session_part(Session *s, Plan *p, const StepPart *part, StepResult *out);
/* A step of one part. */
bool session_step(Session *s, Plan *p, double lr, double clip_norm,
                  StepResult *out);
/* In a session with `dry_run`: lists the launches of a training step of one
 * part on p in `log`, which the caller frees, also after a failure. */
bool session_dry_run(Session *s, Plan *p, LaunchLog *log);

/* Queues a part as session_queue does, but call by call, and lists its launches
 * with their times in `log`, which the caller frees, also after a failure.
 * Parts queued before it keep the host's own time out of these times. Not for
 * ranks; fails without launches. */
bool session_queue_timed(Session *s, Plan *p, const StepPart *part,
                         LaunchLog *log);

/* Starts an average of all values, running statistics included. With 0 < ema <
 * 1, every update of the parameters also updates the average, which keeps the
 * share average_keeps(ema) of itself; with ema 0 only session_average updates
 * it. Starts from the current values; call it before the first step. */
bool session_ema(Session *s, double ema);
bool session_has_ema(const Session *s); /* updated in every step */
/* average += (values - average) / (count + 1): the mean over `count` earlier
 * calls and this one. */
bool session_average(Session *s, int64_t count);
/* Exchanges values and average; see params_swap. No part may be pending. */
bool session_swap(Session *s);

/* Compute the running statistics of batch norms again, as means over batches
 * (PyTorch's update_bn): begin, then add after each session_run in training
 * mode, then end. In between they must not be read. A norm of momentum 0 keeps
 * its statistics. */
bool session_update_bn_begin(Session *s);
bool session_update_bn_add(Session *s);
bool session_update_bn_end(Session *s);

Params *session_params(Session *s);
const Backend *session_backend(const Session *s);
void *session_device(const Session *s);
int session_threads(const Session *s);
/* Returns the transport of the all-reduce between devices as text for people:
 * "NCCL 2.21.5", "the host (why)"; "" without ranks on GPUs. */
const char *session_transport(const Session *s);
/* Returns the number of updates and the loss scale, as of the collected
 * parts. */
StepState session_state(const Session *s);
/* Returns the factor in PARAM_GRAD since the last collected step, a power of
 * two; valid while no other part is pending. */
double session_grad_scale(const Session *s);
/* Set the state. The scale is used only if the session is scaled; a scale of 0
 * means that there is none, and the current one stays. No part may be
 * pending. */
bool session_scaled(const Session *s);
bool session_set_state(Session *s, const StepState *state);
size_t session_pool_bytes(const Session *s);
/* Returns the seconds spent on gradient norms and updates so far; 0 for a
 * backend with device steps. */
double session_update_s(const Session *s);
/* From now on records steps, runs and calls in `t` (NULL: nowhere), in the row
 * "main", and the work of the device's threads. A device step is one span
 * without calls. The session holds a reference. */
void session_trace(Session *s, Trace *t);
Trace *session_traced(const Session *s);
#endif
