/* ranks_module.h -- interface between the program and segengine-mpi.so.
 *
 * The program is not linked with any MPI: the installed MPI, and so the layout
 * of its types, is known only where it is compiled. So the module is compiled
 * with it (make mpi), and the program calls it through the functions below.
 * Both must be built from the same version of this file, or the program refuses
 * the module. */
#ifndef SEG_ENGINE_RANKS_RANKS_MODULE_H
#define SEG_ENGINE_RANKS_RANKS_MODULE_H
#include <stdbool.h>
#include <stddef.h>

enum { RANKS_MODULE = 1 }; /* raised when the interface below changes */

typedef struct RanksModule {
    int version; /* RANKS_MODULE, always the first */
    /* As in RanksVia; false with one line of reason in why[room]. */
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
