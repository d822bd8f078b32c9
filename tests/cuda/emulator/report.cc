/* report.cc -- messages of faults: "emulator: KERNEL: TEXT (file:line)".
 *
 * A second line names block and thread. The place of a machine address comes
 * from addr2line, so programs are built with -g; without it (or without the
 * tool) the address is printed. A fault ends the process at once: memory that
 * a broken kernel wrote cannot be trusted. */
#include "tests/cuda/emulator/core.h"

#include <cstdarg>
#include <cstdio>
#include <unistd.h>

extern "C" char __executable_start;

namespace emu {

/* Copies the name of a LAUNCH without the parentheses that "(sum<1, 2>)" needs
 * as an argument of the macro. */
const char *clean_name(const char *name, char *text, size_t size)
{
    size_t n = strlen(name);
    if (n > 1 && name[0] == '(' && name[n - 1] == ')') {
        name++;
        n -= 2;
    }
    snprintf(text, size, "%.*s", (int)n, name);
    return text;
}

/* Reads one line of addr2line's answer for `pc`: 0 the function, 1 the place.
 */
static bool look_up(uintptr_t pc, int which, char *text, size_t size)
{
    char exe[512], command[640];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return false;
    exe[n] = 0;
    snprintf(command, sizeof command,
             "addr2line -s -f -C -e '%s' 0x%zx 2>/dev/null", exe,
             (size_t)(pc - (uintptr_t)&__executable_start));
    FILE *f = popen(command, "r");
    if (!f) return false;
    bool found = true;
    for (int i = 0; i <= which && found; i++)
        found = fgets(text, (int)size, f) != nullptr;
    pclose(f);
    text[found ? strcspn(text, "\n") : 0] = 0;
    return found && text[0] != '?';
}

/* Returns the name of the running kernel's function, since a helper may launch
 * a kernel through a pointer; without addr2line, the text of the LAUNCH. */
const char *kernel_name(char *text, size_t size)
{
    static const char unnamed[] = "(anonymous namespace)::";
    if (!running) {
        snprintf(text, size, "host");
        return text;
    }
    char line[1024], *name = line;
    if (!look_up((uintptr_t)running->function, 0, line, sizeof line))
        return clean_name(running->kernel, text, size);
    /* "void f<1>(float*)": drop the type and the arguments */
    if (!strncmp(name, "void ", 5)) name += 5;
    if (!strncmp(name, unnamed, sizeof unnamed - 1)) name += sizeof unnamed - 1;
    snprintf(text, size, "%.*s", (int)strcspn(name, "("), name);
    return text;
}

/* `pc` is a return address: looks up the call before it, not the next line. */
void find_place(void *pc, char *text, size_t size)
{
    if (!look_up((uintptr_t)pc - 1, 1, text, size))
        snprintf(text, size, "pc 0x%zx",
                 (size_t)((uintptr_t)pc - (uintptr_t)&__executable_start));
    char *note = strstr(text, " (disc"); /* "(discriminator 3)" */
    if (note) *note = 0;
}

void say_thread()
{
    if (!running) return;
    fprintf(stderr, "  ");
    if (thread_number >= 0)
        fprintf(stderr, "block (%u,%u,%u) thread (%u,%u,%u), ", block_index.x,
                block_index.y, block_index.z, thread_index.x, thread_index.y,
                thread_index.z);
    fprintf(stderr, "launched at %s:%d\n", running->file, running->line);
}

[[noreturn]] static void end(const char *place, const char *format,
                             va_list args)
{
    char name[256];
    fflush(stdout);
    fprintf(stderr, "emulator: %s: ", kernel_name(name, sizeof name));
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s)\n", place);
    say_thread();
    fflush(nullptr);
    _exit(checker && checker->count() ? EXIT_RACE : EXIT_FAULT);
}

void stop(const Site &site, const char *format, ...)
{
    char place[512];
    snprintf(place, sizeof place, "%s:%d", site.file, site.line);
    va_list args;
    va_start(args, format);
    end(place, format, args);
}

void stop_at(const char *file, int line, const char *format, ...)
{
    char place[512];
    snprintf(place, sizeof place, "%s:%d", file, line);
    va_list args;
    va_start(args, format);
    end(place, format, args);
}

void stop_pc(void *pc, const char *format, ...)
{
    char place[512];
    find_place(pc, place, sizeof place);
    va_list args;
    va_start(args, format);
    end(place, format, args);
}

} // namespace emu
