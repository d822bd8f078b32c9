/* session.h -- a network that runs: device, parameters, plans, optimiser.
 *
 * The one object behind seg.model, seg.step, training and the embedding
 * face. It owns a device, the parameters, one plan per set of input extents
 * (made when first asked for) and the pool they share. One thread at a time
 * may use it; several sessions may run in several threads. */
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
    /* Of the roots those that a training step leaves to be read, beside the
     * loss: nothing else is computed in it. NULL: all. */
    const int *step_root;
    int step_roots;
    const char *device; /* "auto", "cpu", "ref", "cuda:0"      */
    int threads;        /* <= 0: the default                   */
    uint64_t seed;
    const Optim *optim;  /* NULL: cannot train                  */
    Precision precision; /* of convolutions; 0: f32            */
    bool no_winograd;    /* see Call.no_winograd                     */
    const char *tiles;   /* see tile_names.h                         */
    bool scaled;   /* gradients start from a loss scale; f16 always does */
    size_t limit;  /* bytes that the network may take on the device: weights
                    * with gradients and moments, arena, kept samples; 0:
                    * what it has */
    bool averages; /* weights will be averaged: the memory counts from now on */
    Ranks *ranks;  /* that train this network together, each with its share of
                    * every batch; NULL: alone. All open the same session */
    const char *allreduce; /* ranks whose device is a GPU: see
                            * Backend.allreduce_open; NULL: "auto" */
    bool own_norms; /* batch norm of a rank goes by its share alone; running
                     * statistics are averaged after each step           */
    bool plain;     /* no row is run with another: see PlanSpec            */
    bool draws;     /* evaluation with dropout (plan.h), drawn from the seed and
                     * the count of session_state                        */
    bool dry_run;   /* on a device that is not there: parameters are not drawn,
                     * and session_dry_run is all it can */
} SessionSpec;

bool session_open(const SessionSpec *spec, Session **out);
void session_close(Session *s);

/* Plan for these input extents; found again when asked twice, in the same
 * order of inputs. It belongs to the session and may be freed when 16 others
 * have been asked for since: ask again instead of keeping it. */
bool session_plan(Session *s, bool train, const PlanInput *input, int inputs,
                  Plan **out);
/* Plans of training steps that are made from now on take so many bytes at most:
 * see PlanSpec.budget and .least. 0: any. */
void session_budget(Session *s, size_t bytes, bool least);
/* Bytes for arena and kept samples: that the device has free, and that the
 * limit leaves; SIZE_MAX: nobody knows, or no limit. An arena that is there
 * already counts as free. */
bool session_room(Session *s, size_t *bytes, size_t *left);
/* Is so much free for the arena of a step? Fails with both numbers where it is
 * not. */
bool session_want(Session *s, size_t bytes);
/* Others hold so many bytes more on the device, or less: they count towards the
 * limit. */
void session_lend(Session *s, int64_t bytes);
/* Make room for the largest plan so far and point `p` at it. Other plans that
 * were bound before must be bound again: the pool may have moved, and what
 * they left in it is lost. */
bool session_bind(Session *s, Plan *p);

/* Copy one input in: user order F32, or a tensor in memory order (F32, of
 * the input's extents). Copy a root or an input out, rounded where the device
 * keeps it so. */
bool session_feed(Session *s, Plan *p, int node, const float *user);
bool session_feed_tensor(Session *s, Plan *p, int node, const Tensor *from);
bool session_read(Session *s, Plan *p, int node, float *user);

/* What is run in training mode from now on is this share of a batch: `first` is
 * the number of its first sample there; `idle`: see Share. Sums go over all
 * ranks of the session, losses too, so each rank sees the loss of the whole
 * batch. */
void session_share(Session *s, int64_t first, bool idle);

/* Forward only. */
bool session_run(Session *s, Plan *p);
/* The same without waiting for it; the values of these roots are put aside. */
bool session_keep(Session *s, Plan *p, const int *node, int nodes);
/* Put the values of these roots aside as what was queued last leaves them: a
 * run or a part of a step. Nothing waits for it. */
bool session_put_aside(Session *s, Plan *p, const int *node, int nodes);
/* Where they are; the session's. */
Readback *session_readback(Session *s);
/* plan_blame for the step at hand, as its first part, with the parameters as
 * they are behind all that is queued; running statistics stay as they were. */
bool session_blame(Session *s, Plan *p, char *text, size_t room, Blame *more);

/* One batch of a training step: forward and backward; after the last part
 * clip, and update with rate lr. Gradients of `parts` batches are averaged
 * before one update: `first` and `last` mark the ends of the row (both are
 * true when there is one part). The parameters and the count do not change
 * when something is not finite. Each part has random draws of its own. No
 * other run may come between two parts. */
typedef struct StepPart {
    bool first, last;
    int parts;
    double lr, clip_norm; /* clip_norm <= 0: none; of the last part */
} StepPart;

/* Begin one part; what it did is collected later, in the order of queueing. At
 * most session_ahead() + 1 parts may be under way. All other functions of a
 * session see the state behind what is queued, but for session_state and what
 * depends on the count: the random draws of a run in training mode. */
bool session_queue(Session *s, Plan *p, const StepPart *part);
bool session_collect(Session *s, bool wait, StepResult *out, bool *got);
/* Parts worth having under way while the next is prepared: 0 where
 * session_queue returns only when it has run. */
int session_ahead(const Session *s);
int session_under_way(const Session *s); /* parts not collected yet */

/* Queue and wait: what this part did; nothing else may be under way. */
bool session_part(Session *s, Plan *p, const StepPart *part, StepResult *out);
/* A step of one part. */
bool session_step(Session *s, Plan *p, double lr, double clip_norm,
                  StepResult *out);
/* Of a session with `rehearse`: what a training step of one part on p
 * launches, into `log`, which the caller frees, also after a failure. */
bool session_dry_run(Session *s, Plan *p, LaunchLog *log);

/* From now on every update is followed by one of an average of all values,
 * running statistics too, that keeps average_keeps(ema) of itself (0 < ema <
 * 1); 0: there is one that session_average adds to. It begins with the values
 * as they are. Before the first step. */
bool session_ema(Session *s, double ema);
bool session_has_ema(const Session *s); /* that of every step */
/* average += (values - average) / (count + 1): the mean of what was given so
 * far, `count` times. */
bool session_average(Session *s, int64_t count);
/* Exchange values and average; see params_swap. Nothing may be under way. */
bool session_swap(Session *s);

/* The running statistics of batch norms anew, as means over batches: begin,
 * then after each session_run in training mode add, then end. In between they
 * are not to be read. A norm of momentum 0 keeps what it has. As PyTorch's
 * update_bn. */
bool session_norms_begin(Session *s);
bool session_norms_add(Session *s);
bool session_norms_end(Session *s);

Params *session_params(Session *s);
const Backend *session_backend(const Session *s);
void *session_device(const Session *s);
int session_threads(const Session *s);
const char *session_why(const Session *s); /* why not a better device, or "" */
/* What carries sums over ranks between devices, for people; "" where nothing
 * has to. */
const char *session_carried(const Session *s);
/* Updates so far and the loss scale, of what was collected. */
StepState session_state(const Session *s);
/* What the gradients in PARAM_GRAD are multiplied by since the step that was
 * collected last, while no other is under way: a power of two. */
double session_grad_scale(const Session *s);
/* The scale counts only where the session is scaled; one of 0 means that there
 * is none, and it stays. Nothing may be under way. */
bool session_scaled(const Session *s);
bool session_set_state(Session *s, const StepState *state);
size_t session_pool_bytes(const Session *s);
/* Seconds spent on gradient norms and updates so far; 0 where a device does
 * both by itself, behind the host's back. */
double session_update_s(const Session *s);
/* From now on what it does is noted in `t` (NULL: nowhere), in the row "main":
 * steps, runs, each call; and what threads of its device do. Where a device
 * decides for itself, a step there is queued as one and has no calls. Held by
 * the session. */
void session_trace(Session *s, Trace *t);
Trace *session_traced(const Session *s);
#endif
