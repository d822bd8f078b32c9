/* launch_log.h -- the list of kernel launches of a dry run, or of a timed step.
 *
 * A backend with dry runs has a device that need not be present
 * (Backend.dry_run). While a thread has a LaunchLog, kernels that it launches
 * on such a device are added to the log instead of running, so the launches of
 * a step can be printed for a GPU that this machine does not have. A launch
 * belongs to a part: a call of a plan, or other work of a step. On a real
 * device launches are added while they are timed (Backend.time_launches). */
#ifndef SEG_ENGINE_BACKEND_LAUNCH_LOG_H
#define SEG_ENGINE_BACKEND_LAUNCH_LOG_H
#include "engine/base/err.h"
#include <stddef.h>

enum { LAUNCH_NO_NODE = -1 };

/* A call and its least cost: every operand read once, every result written
 * once. */
typedef struct LaunchPart {
    int node;         /* of the graph; LAUNCH_NO_NODE: of the step itself    */
    bool backward;    /*                                                     */
    const char *what; /* NULL: the node's operator; a string literal          */
    double bytes, flops;
} LaunchPart;

/* A kernel, or a copy or fill of memory. Texts are string literals. */
typedef struct Launch {
    int part;                   /* index in LaunchLog.part                   */
    const char *name;           /* as the source spells the kernel, "copy"   */
    unsigned grid[3], block[3]; /* 0: no kernel                              */
    size_t shared;              /* dynamic shared memory, bytes              */
    size_t bytes;               /* of a copy or fill                         */
    double moved, flops;        /* launch_log_moves; moved 0: not set        */
    double from_ms, to_ms;      /* if timed: since the first launch began    */
} Launch;

/* Owns its lists. A zeroed LaunchLog is empty. */
typedef struct LaunchLog {
    LaunchPart *part;
    Launch *launch;
    int parts, launches, part_room, launch_room;
    double moved, flops; /* of the next launch                             */
    bool failed;         /* out of memory, the log is incomplete; err_text()  */
} LaunchLog;

/* Adds later launches of this thread to `log`; NULL: to none. */
void launch_log_into(LaunchLog *log);
/* Returns the log of this thread, or NULL: then the functions below do nothing.
 */
LaunchLog *launch_log_here(void);
/* Starts a part, to which later launches belong. */
void launch_log_part(LaunchPart part);
/* Sets the bytes of tensors that the next launch reads and writes, each element
 * once, and its FLOPs. If the launches of a call set them, their sum replaces
 * the least cost in LaunchPart. */
void launch_log_moves(double bytes, double flops);
/* Adds a launch and sets its `part`. */
void launch_log_add(Launch launch);
void launch_log_free(LaunchLog *log);
#endif
