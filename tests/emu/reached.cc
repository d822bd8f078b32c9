/* reached.cc -- which kernels have run: EMU_REACHED.
 *
 * At the end of the program the addresses of all kernels that ran, as offsets
 * in the program, are added to the file that EMU_REACHED names. An instance of
 * a template is a kernel of its own. covered.sh compares them with all that
 * there are. */
#include "core.h"

#include <cstdio>
#include <cstdlib>
#include <set>

extern "C" char __executable_start;

namespace emu {

struct Reached {
    std::set<const void *> all;
    ~Reached()
    {
        const char *path = getenv("EMU_REACHED");
        FILE *file = path ? fopen(path, "a") : nullptr;
        if (!file) return;
        for (const void *function : all)
            fprintf(
                file, "%zx\n",
                (size_t)((uintptr_t)function - (uintptr_t)&__executable_start));
        fclose(file);
    }
};

void reached(const void *function)
{
    static Reached reached;
    reached.all.insert(function);
}

} // namespace emu
