/* ranks.c -- segengine-mpi.so: ranks.h over the MPI that it is compiled with.
 *
 * Functions of MPI-1 and MPI-2 only, so any MPI does. An error of MPI comes
 * back as a reason instead of ending the program. What one rank sends in one
 * call is RANKS_PIECE at most, far below the int that MPI counts with. */
#include "ranks_module.h"
#include <mpi.h>
#include <stdio.h>

__attribute__((visibility("default"))) const RanksModule *segengine_mpi(void);

/* MPI's text for `code`; true where there is none. */
static bool passed(int code, const char *what, char *why, size_t room)
{
    char text[MPI_MAX_ERROR_STRING + 1];
    int length = 0;
    if (code == MPI_SUCCESS) return true;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
    snprintf(why, room, "%s: %.*s", what, length, text);
    return false;
}

static bool module_open(int *rank, int *count, char *why, size_t room)
{
    int given, started = 0;
    // one thread calls MPI, but the program has others
    if (!passed(MPI_Initialized(&started), "MPI_Initialized", why, room))
        return false;
    if (!started &&
        !passed(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given),
                "MPI_Init_thread", why, room))
        return false;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return passed(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", why,
                  room) &&
           passed(MPI_Comm_size(MPI_COMM_WORLD, count), "MPI_Comm_size", why,
                  room);
}

static bool module_gather(const void *mine, size_t bytes, void *all, char *why,
                          size_t room)
{
    // MPI-2 takes no const
    return passed(MPI_Allgather((void *)mine, (int)bytes, MPI_BYTE, all,
                                (int)bytes, MPI_BYTE, MPI_COMM_WORLD),
                  "MPI_Allgather", why, room);
}

static bool module_exchange(const void *to, size_t bytes, void *from, char *why,
                            size_t room)
{
    return passed(MPI_Alltoall((void *)to, (int)bytes, MPI_BYTE, from,
                               (int)bytes, MPI_BYTE, MPI_COMM_WORLD),
                  "MPI_Alltoall", why, room);
}

static void module_quit(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void module_close(void)
{
    MPI_Finalize();
}

static const char *module_library(void)
{
#if MPI_VERSION >= 3
    static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int length = 0;
    if (MPI_Get_library_version(text, &length) == MPI_SUCCESS) {
        // its first line says what it is
        for (char *p = text; *p; p++)
            if (*p == '\n') *p = 0;
        return text;
    }
#endif
    return "MPI";
}

const RanksModule *segengine_mpi(void)
{
    static const RanksModule module = {
        RANKS_MODULE, module_open,  module_gather, module_exchange,
        module_quit,  module_close, module_library};
    return &module;
}
