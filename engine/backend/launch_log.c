/* launch_log.c -- the list of launches of a thread.
 *
 * Kernels are launched from many files that cannot pass a list to each other,
 * so the list belongs to the thread. A lack of memory does not stop a launch:
 * the log sets `failed`, and its reader checks that. */
#include "engine/backend/launch_log.h"
#include "engine/base/mem.h"

static _Thread_local LaunchLog *here;

void launch_log_into(LaunchLog *log)
{
    here = log;
}

LaunchLog *launch_log_here(void)
{
    return here;
}

/* Returns the list with room for one more than `count`; NULL without memory. */
static void *grown(void *list, int count, int *room, size_t size)
{
    if (count < *room) return list;
    int more = *room ? 2 * *room : 256;
    void *p = mem_realloc(list, (size_t)more * size);
    if (p) *room = more;
    return p;
}

void launch_log_part(LaunchPart part)
{
    if (!here || here->failed) return;
    void *p =
        grown(here->part, here->parts, &here->part_room, sizeof *here->part);
    if (p) here->part = p, here->part[here->parts++] = part;
    here->failed |= !p;
}

void launch_log_moves(double bytes, double flops)
{
    if (here) here->moved = bytes, here->flops = flops;
}

void launch_log_add(Launch launch)
{
    if (!here || here->failed) return;
    // a step may copy something before the first call of a plan
    if (!here->parts)
        launch_log_part((LaunchPart){.node = LAUNCH_NO_NODE, .what = "step"});
    void *p = grown(here->launch, here->launches, &here->launch_room,
                    sizeof *here->launch);
    launch.part = here->parts - 1;
    launch.moved = here->moved, launch.flops = here->flops;
    here->moved = here->flops = 0;
    if (p) here->launch = p, here->launch[here->launches++] = launch;
    here->failed |= !p;
}

void launch_log_free(LaunchLog *log)
{
    mem_free(log->part);
    mem_free(log->launch);
    *log = (LaunchLog){0};
}
