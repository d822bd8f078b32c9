/* ranks_module.h -- what segengine-mpi.so gives the program.
 *
 * The program is not linked with any MPI: which one a machine has, and so the
 * layout of its types, is known to the compiler there alone. So the module is
 * compiled with it (make mpi), and these few functions are all that passes
 * between the two. Both were built from the same version of this file, or the
 * program refuses the module. */
#ifndef SEG_ENGINE_RANKS_RANKS_MODULE_H
#define SEG_ENGINE_RANKS_RANKS_MODULE_H
#include <stdbool.h>
#include <stddef.h>

enum { RANKS_MODULE = 1 }; /* raised when what is below changes */

typedef struct RanksModule {
    int version; /* RANKS_MODULE, always the first */
    /* As RanksVia has them; false with a line of reason in why[room]. */
    bool (*open)(int *rank, int *count, char *why, size_t room);
    bool (*gather)(const void *mine, size_t bytes, void *all, char *why,
                   size_t room);
    bool (*exchange)(const void *to, size_t bytes, void *from, char *why,
                     size_t room);
    void (*quit)(int code); /* ends all ranks; does not return */
    void (*close)(void);
    const char *(*library)(void); /* "Open MPI v4.1.4, ..." */
} RanksModule;

/* The one symbol of the module, const RanksModule *(void). */
#define RANKS_MODULE_SYMBOL "segengine_mpi"
#define RANKS_MODULE_FILE   "segengine-mpi.so"
#endif
