/* mem_available.c -- memory that a process may take, from the machine and its
 * control groups, in files of a synthetic root. */
#include "engine/base/mem.h"
#include "tests/test.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a file below root; makes folders as needed. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(full, 0777);
        *s = '/';
    }
    FILE *f = fopen(full, "w");
    REQUIRE(f);
    fputs(text, f);
    fclose(f);
}

static void new_root(char root[256], const char *name)
{
    snprintf(root, 256, "%s/%s", test_folder(), name);
    mkdir(root, 0777);
}

TEST(mem_room_of_the_machine)
{
    char r[256];
    new_root(r, "machine");
    EXPECT(mem_room(r) == SIZE_MAX); // no such files
    put(r, "/proc/meminfo",
        "MemTotal:       16000 kB\nMemFree: 10 kB\nMemAvailable:    7000 kB\n");
    EXPECT_INT(mem_room(r), 7000 << 10);
    // on this machine it is more than a little
    EXPECT(mem_room("") > 1 << 20);
}

TEST(mem_room_of_a_group)
{
    char r[256];
    new_root(r, "group");
    put(r, "/proc/meminfo", "MemAvailable: 9000000 kB\n");
    put(r, "/proc/self/cgroup", "0::/job/step\n");
    put(r, "/sys/fs/cgroup/job/step/memory.max", "max\n");
    put(r, "/sys/fs/cgroup/job/step/memory.current", "3000\n");
    EXPECT_INT(mem_room(r), 9000000LL << 10);
    put(r, "/sys/fs/cgroup/job/memory.max", "1000000\n");
    put(r, "/sys/fs/cgroup/job/memory.current", "600000\n");
    EXPECT_INT(mem_room(r), 400000);

    // the kernel drops cached files first
    put(r, "/sys/fs/cgroup/job/memory.stat",
        "anon 200000\nfile 390000\ninactive_file 100000\n");
    EXPECT_INT(mem_room(r), 500000);
    put(r, "/sys/fs/cgroup/job/memory.stat",
        "anon 200000\nfile 390000\ninactive_file 100000\n"
        "active_file 50000\n");
    EXPECT_INT(mem_room(r), 550000);

    // a throttling limit, without a kill
    put(r, "/sys/fs/cgroup/job/memory.high", "800000\n");
    EXPECT_INT(mem_room(r), 350000);
    put(r, "/sys/fs/cgroup/job/memory.high", "max\n");
    EXPECT_INT(mem_room(r), 550000);
    put(r, "/sys/fs/cgroup/job/memory.current", "1200000\n");
    EXPECT_INT(mem_room(r), 0);
}

TEST(mem_room_of_a_group_of_version_1)
{
    char r[256];
    new_root(r, "old");
    put(r, "/proc/self/cgroup", "4:cpuset,memory:/g\n2:cpu:/g\n");
    put(r, "/sys/fs/cgroup/cpuset,memory/g/memory.limit_in_bytes", "5000\n");
    put(r, "/sys/fs/cgroup/cpuset,memory/g/memory.usage_in_bytes", "2000\n");
    EXPECT_INT(mem_room(r), 3000);
    put(r, "/sys/fs/cgroup/cpuset,memory/g/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\n"
        "total_active_file 200\n");
    EXPECT_INT(mem_room(r), 3500);
}

TEST(mem_room_under_ulimit)
{
    struct rlimit was, now;
    char r[256];
    new_root(r, "ulimit");
    put(r, "/proc/self/statm", "1000 100 10 1 0 500 0\n");
    REQUIRE(!getrlimit(RLIMIT_DATA, &was));
    now = was;
    now.rlim_cur = (rlim_t)1 << 40;
    if (setrlimit(RLIMIT_DATA, &now)) return; // a lower hard limit
    EXPECT_INT(mem_room(r), (1LL << 40) - 500 * sysconf(_SC_PAGESIZE));
    REQUIRE(!setrlimit(RLIMIT_DATA, &was));
}

// A request beyond memory is refused before pages are filled. Memory of a
// sanitizer counts as data and grows by itself.
TEST(mem_room_is_asked_before_memory_is_filled)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    enum { MIB = 1 << 20 };
    struct rlimit was, now;
    REQUIRE(!getrlimit(RLIMIT_DATA, &was));
    if (was.rlim_cur != RLIM_INFINITY) return;

    // data of this process in pages: the sixth number of statm
    long long pages[6] = {0};
    FILE *f = fopen("/proc/self/statm", "r");
    REQUIRE(f);
    for (int i = 0; i < 6; i++) REQUIRE(fscanf(f, "%lld", &pages[i]) == 1);
    fclose(f);
    now = was;
    now.rlim_cur = (rlim_t)(pages[5] * sysconf(_SC_PAGESIZE) + 100 * MIB);
    const bool limited = !setrlimit(RLIMIT_DATA, &now);
    void *fits = mem_alloc(64 * MIB), *more = mem_alloc(31 * MIB);
    void *fresh = mem_pages(31 * MIB), *small = mem_alloc(MIB);
    void *grown = fits ? mem_realloc(fits, 65 * MIB) : NULL;
    REQUIRE(!setrlimit(RLIMIT_DATA, &was));
    if (limited) EXPECT(fits && small && !more && !fresh && !grown);
    if (limited)
        EXPECT(strstr(err_text(), "no memory: 68157440 bytes needed, ") &&
               strstr(err_text(), " are free; fix: smaller images"));
    mem_free(grown ? grown : fits);
    mem_free(more);
    mem_pages_free(fresh);
    mem_free(small);
#endif
}
