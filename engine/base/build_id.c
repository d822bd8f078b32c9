/* build_id.c -- finds the note of the linker in the memory of the program.
 *
 * The linker defines __ehdr_start as the start of the ELF file in which it
 * places this code; the program headers behind it list the segments of notes.
 * A note is three numbers, a name and a content, both padded to 4 bytes. */
#include "engine/base/build_id.h"
#include "engine/base/err.h"
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static uint32_t padded(uint32_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

/* Returns the content of the build id among the notes at `at`, and its bytes;
 * NULL if there is none. */
static const unsigned char *note_find(const unsigned char *at, size_t bytes,
                                      uint32_t *size)
{
    ElfW(Nhdr) n;
    while (bytes >= sizeof n) {
        memcpy(&n, at, sizeof n);
        const uint32_t name = padded(n.n_namesz), all = padded(n.n_descsz);
        if (bytes - sizeof n < (size_t)name + all) return NULL;
        at += sizeof n;
        *size = n.n_descsz;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == sizeof "GNU" &&
            !memcmp(at, "GNU", sizeof "GNU"))
            return at + name;
        at += name + all;
        bytes -= sizeof n + name + all;
    }
    return NULL;
}

/* Copies program header i. */
static ElfW(Phdr) segment(int i)
{
    ElfW(Phdr) p;
    memcpy(&p,
           (const void *)((uintptr_t)&__ehdr_start + __ehdr_start.e_phoff +
                          (size_t)i * sizeof p),
           sizeof p);
    return p;
}

/* Returns the distance of the addresses in this process from those in the
 * file. */
static uintptr_t load_bias(void)
{
    for (int i = 0; i < __ehdr_start.e_phnum; i++) {
        const ElfW(Phdr) p = segment(i);
        if (p.p_type == PT_LOAD && !p.p_offset)
            return (uintptr_t)&__ehdr_start - p.p_vaddr;
    }
    return (uintptr_t)&__ehdr_start;
}

bool build_id(char text[BUILD_ID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < __ehdr_start.e_phnum; i++) {
        const ElfW(Phdr) p = segment(i);
        uint32_t size = 0;
        if (p.p_type != PT_NOTE) continue;
        const unsigned char *id =
            note_find((const unsigned char *)(load_bias() + p.p_vaddr),
                      p.p_filesz, &size);
        if (!id || !size || 2 * size >= BUILD_ID_TEXT) continue;
        for (uint32_t k = 0; k < size; k++) {
            *text++ = digits[id[k] >> 4];
            *text++ = digits[id[k] & 15];
        }
        *text = 0;
        return true;
    }
    return fail("the program has no build id; fix: link it with "
                "-Wl,--build-id");
}
