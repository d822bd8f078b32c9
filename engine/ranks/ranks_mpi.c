/* ranks_mpi.c -- ranks that an MPI launcher started (mpirun, srun).
 *
 * The MPI of the machine is behind segengine-mpi.so (ranks_module.h), which is
 * opened only if the launcher's variables are set. The launcher notices a rank
 * that dies and ends the others; a rank that fails ends the others itself. */
#include "engine/base/mem.h"
#include "engine/ranks/ranks.h"
#include "engine/ranks/ranks_module.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Mpi {
    const RanksModule *module;
} Mpi;

/* True if Open MPI, MPICH and Intel MPI, or SLURM with PMIx report more than
 * one process: a single process needs no MPI. */
bool ranks_mpi_launched(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *text = getenv(sizes[i]);
        if (text && atoi(text) > 1) return true;
    }
    const char *tasks = getenv("SLURM_NTASKS");
    return getenv("PMIX_RANK") && tasks && atoi(tasks) > 1;
}

static bool mpi_gather(void *state, const void *mine, size_t bytes, void *all)
{
    const Mpi *m = state;
    char why[512] = "";
    return m->module->gather(mine, bytes, all, why, sizeof why) ||
           fail("%s", why);
}

static bool mpi_exchange(void *state, const void *to, size_t bytes, void *from)
{
    const Mpi *m = state;
    char why[512] = "";
    return m->module->exchange(to, bytes, from, why, sizeof why) ||
           fail("%s", why);
}

static void mpi_quit(void *state, int code, const char *why)
{
    const Mpi *m = state;
    (void)why; // is on stderr: the launcher passes it on
    m->module->quit(code);
}

static void mpi_close(void *state)
{
    Mpi *m = state;
    m->module->close();
    mem_free(m);
}

static const RanksVia mpi_via = {"MPI", mpi_gather, mpi_exchange, mpi_quit,
                                 mpi_close};

/* Opens the module next to the program, or where make install puts it. */
static void *open_module(char why[ERR_MAX / 2])
{
    static const char *const places[] = {"", "../lib/"};
    char exe[1024];
    void *found = NULL;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 64);

    if (n < 0) n = 0;
    exe[n] = 0;
    char *name = strrchr(exe, '/');
    name = name ? name + 1 : exe;
    snprintf(why, ERR_MAX / 2, "%.*s%s was not found", (int)(name - exe), exe,
             RANKS_MODULE_FILE);

    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        snprintf(name, sizeof exe - (size_t)(name - exe), "%s%s", places[i],
                 RANKS_MODULE_FILE);
        if (access(exe, F_OK) != 0) continue;
        // global: plug-ins that an MPI loads need its symbols
        found = dlopen(exe, RTLD_NOW | RTLD_GLOBAL);
        if (!found) snprintf(why, ERR_MAX / 2, "%s", dlerror());
    }
    return found;
}

bool ranks_mpi_open(Ranks **out)
{
    char why[ERR_MAX / 2] = "";
    int rank = 0, count = 1;
    void *library = open_module(why);

    if (!library)
        return fail_usage("started by an MPI launcher, but %s; fix: make mpi "
                          "with the mpicc of this MPI, or --ranks N without a "
                          "launcher",
                          why);

    const RanksModule *(*give)(void) = NULL;

    // POSIX guarantees it: an object pointer converts to a function pointer
    *(void **)&give = dlsym(library, RANKS_MODULE_SYMBOL);
    const RanksModule *module = give ? give() : NULL;
    if (!module || module->version != RANKS_MODULE)
        return fail_usage("%s is of another version of segengine (%d, this is "
                          "%d); fix: make mpi",
                          RANKS_MODULE_FILE, module ? module->version : 0,
                          RANKS_MODULE);

    if (!module->open(&rank, &count, why, sizeof why))
        return fail("MPI does not start: %s", why);

    // a launcher and a library of different MPIs: each process is alone
    if (count < 2)
        return fail_usage("the launcher started several processes, but %s sees "
                          "one: it is not the MPI of the launcher; fix: make "
                          "mpi with the mpicc of the launcher's MPI",
                          module->library());

    if (count > RANKS_MOST)
        return fail_usage("%d ranks, want at most %d", count, RANKS_MOST);
    Mpi *m = mem_alloc(sizeof *m);
    if (!m) return false;
    m->module = module;
    if (ranks_make(rank, count, &mpi_via, m, out)) return true;
    mem_free(m);
    return false;
}
