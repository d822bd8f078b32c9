/* reached.cc -- list of the kernels that have run: EMU_REACHED.
 *
 * The first run of a kernel appends its address, as an offset in the program,
 * to the file that EMU_REACHED names. It is written at once, because a forked
 * rank ends without running destructors. Each instance of a template is a
 * kernel of its own. covered.sh compares the file with all kernels of the
 * program. */
#include "tests/cuda/emulator/core.h"

#include <cstdio>
#include <cstdlib>
#include <set>

extern "C" char __executable_start;

namespace emu {

void reached(const void *function)
{
    static std::set<const void *> all;
    if (!all.insert(function).second) return;
    const char *path = getenv("EMU_REACHED");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file) return;
    fprintf(file, "%zx\n",
            (size_t)((uintptr_t)function - (uintptr_t)&__executable_start));
    fclose(file);
}

} // namespace emu
