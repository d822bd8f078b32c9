/* table.c -- fuzz target: any bytes as a table with each separator. */
#include "data/format/table.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const Table *t)
{
    size_t letters = 0;
    int column;
    for (int c = 0; c < t->columns; c++) {
        CHECK(table_column(t, table_name(t, c), &column) && column == c);
        TableRange r = table_range(t, c);
        CHECK(r.numbers + r.empty <= t->rows && r.min <= r.max);
    }

    for (int64_t row = 0; row < t->rows; row++)
        for (int c = 0; c < t->columns; c++) {
            Arena mem = {0};
            double v;
            int64_t i;
            char *path;
            const char *text = table_text(t, row, c);
            letters += strlen(text);
            // a whole number is also a number, up to rounding
            if (table_integer(t, row, c, &i))
                CHECK(table_number(t, row, c, &v) && v == (double)i);
            if (table_path(t, row, c, "root", &mem, &path))
                CHECK(!strncmp(path, "root/", 5) && !strstr(path, "/../"));
            arena_release(&mem);
        }
    CHECK(letters < (size_t)1 << 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int k = 0; k < 3; k++) {
        TableOptions o = {.separator = ",;\t"[k]};
        Table t;
        if (!table_decode(data, size, &o, &t)) {
            CHECK(!t.columns && !t.mem.top);
            continue;
        }
        ask(&t);
        table_free(&t);
    }
    return 0;
}
