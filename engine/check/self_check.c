#include "engine/check/self_check.h"
#include "engine/base/build_id.h"
#include "engine/base/file.h"
#include "engine/base/sha256.h"
#include "engine/base/user_cache.h"
#include "engine/check/suite.h"
#include <stdio.h>
#include <string.h>

enum {
    NAME_DIGITS = 16, // of the hash in the name of a record
    RECORD_MOST = 4096,
};

/* The text of the first failure. */
typedef struct Failure {
    char text[ERR_MAX];
} Failure;

static void keep_first(void *ctx, const char *text)
{
    Failure *f = ctx;
    if (!*f->text) snprintf(f->text, sizeof f->text, "%s", text);
}

bool self_check_run(const Backend *be, int number, Precision p, int *cases)
{
    Failure first = {.text = ""};
    OpCheck k = {.be = be,
                 .device = number,
                 .precision = p,
                 .report = keep_first,
                 .ctx = &first};
    const OpSuite *s;
    char gpu[BACKEND_TEXT], build[BUILD_ID_TEXT];

    for (int at = 0; (s = suite_next(&at)) && !k.failures;) {
        suite_run_first(s, &k);
        if (!k.failures) continue;
        if (!be->describe(number, gpu)) snprintf(gpu, sizeof gpu, "no GPU now");
        if (!build_id(build)) snprintf(build, sizeof build, "unknown");
        fail_device("%s: %s; %s; build %s; to repeat: segengine check --device "
                    "%s:%d --op %s --precision %s",
                    precision_name(p), first.text, gpu, build, be->name, number,
                    op_info[s->op].name, precision_name(p));
    }
    *cases = k.draws;
    return !k.failures;
}

bool self_check_record(const char *gpu, Precision p, Arena *mem,
                       SelfCheckRecord *out)
{
    char build[BUILD_ID_TEXT], hash[SHA256_TEXT];
    Sha256 s;
    if (!build_id(build)) return false;
    out->text = arena_printf(mem,
                             "segengine: the self-check passed\n"
                             "build %s\n"
                             "GPU %s\n"
                             "precision %s\n",
                             build, gpu, precision_name(p));
    if (!out->text) return false;
    sha256_begin(&s);
    sha256_add(&s, out->text, strlen(out->text));
    sha256_end(&s, hash);
    char name[64];
    snprintf(name, sizeof name, "self_check.%.*s", NAME_DIGITS, hash);
    out->path = user_cache_path(name, mem);
    return out->path != NULL;
}

bool self_check_passed(const SelfCheckRecord *r)
{
    Arena mem = {0};
    char *data;
    size_t bytes;
    const bool same = file_read(r->path, RECORD_MOST, &mem, &data, &bytes) &&
                      bytes == strlen(r->text) && !memcmp(data, r->text, bytes);
    arena_release(&mem);
    return same;
}

bool self_check_remember(const SelfCheckRecord *r)
{
    const size_t folder = (size_t)(path_tail(r->path) - r->path) - 1;
    Arena mem = {0};
    char *path = arena_printf(&mem, "%.*s", (int)folder, r->path);
    const bool ok = path && file_mkdirs(path) &&
                    file_replace(r->path, r->text, strlen(r->text));
    arena_release(&mem);
    if (ok) return true;

    // another process with the same process id, in another container, may have
    // renamed its draft of the same file first
    char why[ERR_MAX];
    const ErrKind kind = err_kind();
    snprintf(why, sizeof why, "%s", err_text());
    return self_check_passed(r) || err_set(kind, why);
}
