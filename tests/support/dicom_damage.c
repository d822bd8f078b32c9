/* dicom_damage.c -- see dicom_damage.h. */
#include "tests/support/dicom_damage.h"
#include "data/dicom/parse.h"
#include "tests/support/dicom_series.h"
#include <stdlib.h>

/* Values for elements, of unchanged length; '\1': the byte repeated. */
static const struct {
    char fill;
    const char *front; /* the beginning of the value */
} values[] = {
    {' ', ""},    {'x', ""},   {'9', ""},    {'0', ""},       {'\0', ""},
    {'\xFF', ""}, {' ', "-1"}, {' ', "1.5"}, {' ', " 1e400"},
};
enum {
    VALUES = sizeof values / sizeof *values,
    LEFT_OUT = VALUES,
    DOUBLED,
    CUT,
    SPLIT,
    LEADING,
    WAYS
};

static void write_out(const char *path, const uint8_t *bytes, size_t n)
{
    // a file that is cut to nothing first may be flushed when it is closed
    remove(path);
    FILE *out = fopen(path, "wb");
    REQUIRE(out && fwrite(bytes, 1, n, out) == n && !fclose(out));
}

/* Writes the file `f` with element e damaged to `out`, which has room for twice
 * its bytes; 0: this damage does not apply. */
static size_t damaged(const KitFile *f, const WalkElement *e, int way,
                      uint8_t *out)
{
    size_t end = e->offset + e->length;
    bool empty = !e->length || e->undefined;
    memcpy(out, f->bytes, f->size);

    switch (way) {
    case LEFT_OUT:
        if (e->undefined) return 0;
        memmove(out + e->at, f->bytes + end, f->size - end);
        return f->size - (end - e->at);
    case DOUBLED:
        if (e->undefined) return 0;
        memcpy(out + end, f->bytes + e->at, f->size - e->at);
        return f->size + (end - e->at);
    case CUT:
        return e->offset;
    case SPLIT:
        if (e->length < 3 || e->undefined) return 0;
        out[e->offset + e->length / 2] = '\\';
        return f->size;
    case LEADING:
        if (empty) return 0;
        out[e->offset] = ' ';
        return f->size;
    default:
        if (empty) return 0;
        memset(out + e->offset, values[way].fill, e->length);
        size_t n = strlen(values[way].front);
        memcpy(out + e->offset, values[way].front,
               n < e->length ? n : e->length);
        return f->size;
    }
}

int damage_elements(const char *path, DamageLoad *load, void *ctx)
{
    KitFile f;
    Walk w;
    int refused = 0;
    long live = mem_live();

    REQUIRE(load(ctx));
    REQUIRE(kit_read(path, &f));
    WalkInput in = {
        .path = path, .bytes = f.bytes, .have = f.size, .size = f.size};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    long held = mem_live();
    uint8_t *out = malloc(2 * f.size);
    REQUIRE(out);

    for (uint32_t i = 0; i < w.count; i++)
        for (int way = 0; way < WAYS; way++) {
            size_t n = damaged(&f, &w.element[i], way, out);
            if (!n) continue;
            write_out(path, out, n);
            bool ok = load(ctx);
            refused += !ok;
            if (!ok && (err_kind() != ERR_DATA || !strstr(err_text(), "dicom")))
                test_failed(__FILE__, __LINE__, "(%04x,%04x), way %d: %s",
                            w.element[i].tag >> 16, w.element[i].tag & 0xFFFF,
                            way, err_text());
            EXPECT_INT(mem_live(), held);
        }

    free(out);
    write_out(path, f.bytes, f.size);
    walk_free(&w);
    mem_free(f.bytes);
    EXPECT_INT(mem_live(), live);
    return refused;
}

void damage_memory(DamageLoad *load, void *ctx)
{
    for (int all = 0; all < 2; all++) {
        long before = mem_live(), n = 0;
        for (bool ok = false; !ok && n < 10000; n++) {
            mem_fail_after(n, all);
            ok = load(ctx);
            mem_fail_after(-1, false);
            EXPECT_INT(mem_live(), before);
            if (!ok) EXPECT(strstr(err_text(), "no memory"));
        }
        EXPECT(n > 5 && n < 10000);
    }
}
