/* launch_log.h -- what a device would be told to do, written down instead.
 *
 * A backend that can say what it launches has a device that is not there
 * (Backend.dry_run). While a thread has a LaunchLog, kernels that are launched
 * on such a device are added to it and nothing runs, so the launches of a step
 * can be printed for a GPU that this machine does not have. A launch belongs
 * to a part: a call of a plan, or what a step does beside them. */
#ifndef SEG_ENGINE_BACKEND_LAUNCH_LOG_H
#define SEG_ENGINE_BACKEND_LAUNCH_LOG_H
#include "engine/base/err.h"
#include <stddef.h>

enum { LAUNCH_NO_NODE = -1 };

/* A call, and the least that it can cost: every operand that it needs read
 * once and every result written once. */
typedef struct LaunchPart {
    int node;         /* of the graph; LAUNCH_NO_NODE: of the step itself    */
    bool backward;    /*                                                     */
    const char *what; /* NULL: the row of its node; lives as long as the code */
    double bytes, flops;
} LaunchPart;

/* A kernel, or a copy or fill of memory. Texts live as long as the code. */
typedef struct Launch {
    int part;                   /* which of LaunchLog.part                   */
    const char *name;           /* as the source spells the kernel, "copy"   */
    unsigned grid[3], block[3]; /* 0: no kernel                              */
    size_t shared;              /* bytes that the launch asks for, beside what
                                 * the kernel declares                       */
    size_t bytes;               /* of a copy or fill                         */
    double moved, flops;        /* launch_log_moves; moved 0: it did not say */
} Launch;

/* Owns its lists. A zeroed one is empty. */
typedef struct LaunchLog {
    LaunchPart *part;
    Launch *launch;
    int parts, launches, part_room, launch_room;
    double moved, flops; /* of the launch to come                          */
    bool failed;         /* no memory for all of it; the reason is err_text() */
} LaunchLog;

/* Launches of this thread go into `log` from now on; NULL: into nothing. */
void launch_log_into(LaunchLog *log);
/* What they go into, or NULL. The two below do nothing then. */
LaunchLog *launch_log_here(void);
/* What is launched from now on belongs to this part. */
void launch_log_part(LaunchPart part);
/* The next launch reads and writes so many bytes of tensors, each element once,
 * and computes so many FLOPs. Of a call whose launches say so, these stand for
 * what the part says, which is the least for all of them. */
void launch_log_moves(double bytes, double flops);
/* Adds one; its `part` is filled in. */
void launch_log_add(Launch launch);
void launch_log_free(LaunchLog *log);
#endif
