/* phantom_write.c -- writes synthetic data, several units at a time.
 *
 * The data set is written to FOLDER.tmp.<pid> and renamed, so that FOLDER is
 * always complete. */
#include "data/parallel_for.h"
#include "data/phantom/phantom.h"
#include "engine/base/err.h"
#include "engine/base/file.h"
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_TEXT = 2048 };

bool phantom_mkdir(const char *path)
{
    if (!mkdir(path, 0777)) return true;
    return fail("%s: cannot make folder: %s", path, strerror(errno));
}

typedef struct Work {
    const Phantom *how;
    const char *folder;
} Work;

static bool write_unit(void *context, int thread, int unit)
{
    const Work *work = context;
    (void)thread;
    return work->how->form->write(work->folder, work->how, unit);
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

// contents first; links are removed, not followed
static void remove_tree(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// Several programs may write the same data set at once: each writes to a
// temporary folder with its process number, and the first to rename wins.
bool phantom_write(const char *folder, const Phantom *how, bool *made)
{
    char aside[FOLDER_TEXT];
    if (made) *made = false;
    if (!phantom_check(how)) return false;
    if (is_folder(folder)) return true;
    int n = snprintf(aside, sizeof aside, "%s.tmp.%ld", folder, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof aside)
        return fail_usage("%.64s...: the name is too long", folder);
    remove_tree(aside);
    if (!file_mkdirs(aside)) return false;
    Work work = {how, aside};
    bool ok = parallel_for(how->number[0], how->threads, how->stop, write_unit,
                           &work) &&
              (!how->form->finish || how->form->finish(aside, how));
    if (ok && !rename(aside, folder)) {
        if (made) *made = true;
        return true;
    }
    int why = errno;
    remove_tree(aside);
    if (!ok) return false;

    // another program was faster; its files have the same bytes
    if (is_folder(folder)) return true;
    return fail("%s: cannot rename %s: %s", folder, aside, strerror(why));
}
