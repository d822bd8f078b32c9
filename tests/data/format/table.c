/* table.c -- tests of valid CSV files, of rejected ones and their messages, and
 * of files of Python's csv module. */
#include "data/format/table.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>

#define PYTHON "/usr/bin/python3 "

/* Runs table_decode on a copy of exactly that size. */
static bool decode_bytes(const char *text, size_t n, const TableOptions *o,
                         Table *t)
{
    char *copy = mem_alloc(n);
    REQUIRE(copy);
    memcpy(copy, text, n);
    bool ok = table_decode(copy, n, o, t);
    mem_free(copy);
    return ok;
}

static bool decode(const char *text, char separator, Table *t)
{
    TableOptions o = {.separator = separator};
    return decode_bytes(text, strlen(text), &o, t);
}

TEST(table_reads)
{
    static const struct {
        const char *text;
        char separator;
        int columns, rows;
        const char *last; /* field of the last row and column */
    } row[] = {
        {"a,b\n1,2\n", 0, 2, 1, "2"},
        {"a,b\n1,2", 0, 2, 1, "2"},
        {"a,b\r\n1,2\r\n", 0, 2, 1, "2"},
        {"\xef\xbb\xbf"
         "a,b\n1,2\n",
         0, 2, 1, "2"},
        {"a;b\n1;2,5\n", ';', 2, 1, "2,5"},
        {"a\tb\n1\t2\n3\t4 ; 5\n", '\t', 2, 2, "4 ; 5"},
        {"\"a\",\"b\"\n\"1\",\"2\"\n", 0, 2, 1, "2"},
        {"a,b\n1,\"say \"\"hm\"\", twice\"\n", 0, 2, 1, "say \"hm\", twice"},
        {"a,b\n1,\"two\nlines\"\n", 0, 2, 1, "two\nlines"},
        {"a,b\n1,\"\"\n", 0, 2, 1, ""},
        {"a,b\n,\n", 0, 2, 1, ""},
        {"a\n\"\"\n", 0, 1, 1, ""},
        {"a\n1\n2\n3\n", 0, 1, 3, "3"},
        {"a,b\n 1 , x y \n", 0, 2, 1, " x y "},
        {"a,b\n1,\xc3\xa4\xe2\x82\xac\xf0\x9d\x84\x9e\n", 0, 2, 1,
         "\xc3\xa4\xe2\x82\xac\xf0\x9d\x84\x9e"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Table t;
        REQUIRE(decode(row[r].text, row[r].separator, &t));
        EXPECT_INT(t.columns, row[r].columns);
        EXPECT_INT(t.rows, row[r].rows);
        EXPECT_TEXT(table_name(&t, 0), "a");
        EXPECT_TEXT(table_text(&t, t.rows - 1, t.columns - 1), row[r].last);
        table_free(&t);
    }
}

TEST(table_defects)
{
    static const struct {
        const char *text, *reason;
    } row[] = {
        {"", "csv: file is empty"},
        {"\xef\xbb\xbf", "csv: file is empty"},
        {"\n1\n", "row 1: a blank line, need the names of the columns"},
        {"a,b\n", "csv: no rows below the header"},
        {"a,,c\n1,2,3\n", "row 1: column 2 has no name; fix: name it, or"},
        {",a\n0,1\n", "row 1: column 1 has no name"},
        {"a,b,a\n1,2,3\n", "row 1: columns 1 and 3 are both named \"a\""},
        {"a,b\n1,2\n3\n", "row 3: 1 fields, the header has 2"},
        {"a,b\n1,2,3,4\n", "row 2: 4 fields, the header has 2"},
        {"a,b\n1,2\n\n3,4\n", "row 3: a blank line; fix: remove it"},
        {"a,b\n1,2\n\n", "row 3: a blank line; fix: remove it"},
        {"a\n1\r\n\r\n", "row 3: a blank line; fix: remove it"},
        {"a,b\n1,\"x\n2,y\n",
         "row 2, column \"b\": the quote is not closed before the end of"},
        {"a,\"b\n", "row 1, column 2: the quote is not closed before the"},
        {"a,b\n1,x\"y\n",
         "row 2, column \"b\": a quote inside a field without quotes; fix:"},
        {"a,b\n1, \"x\"\n", "row 2, column \"b\": a quote inside a field w"},
        {"a,b\n\"1\"x,2\n",
         "row 2, column \"a\": text after the closing quote; fix: double"},
        {"a,b\n1,2\r3,4\r",
         "row 2, column \"b\": a carriage return without a line feed; fix"},
        {"a,b\r1,2\r", "row 1, column 2: a carriage return without a line"},
        {"a,b\n1,2\r", "row 2, column \"b\": a carriage return without a"},
        {"a,b\n1,2,3\xff\n",
         "row 2, field 3: byte ff is not UTF-8; fix: save the file as UTF-8"},
        {"a,b\n1,\xe4\n", "row 2, column \"b\": byte e4 is not UTF-8; fix"},
        {"a,b\n1,\xc0\x80\n", "byte c0 is not UTF-8"},
        {"a,b\n1,\xe0\x9f\xbf\n", "byte e0 is not UTF-8"},
        {"a,b\n1,\xed\xa0\x80\n", "byte ed is not UTF-8"},
        {"a,b\n1,\xf0\x8f\xbf\xbf\n", "byte f0 is not UTF-8"},
        {"a,b\n1,\xf4\x90\x80\x80\n", "byte f4 is not UTF-8"},
        {"a,b\n1,\xf5\x80\x80\x80\n", "byte f5 is not UTF-8"},
        {"a,b\n1,\xe2\x82,\n", "byte e2 is not UTF-8"},
        {"a,b\n1,\x80\n", "byte 80 is not UTF-8"},
        {"\xff\xfe"
         "abc",
         "csv: text in UTF-16; fix: save the file as UTF-8"},
        {"\xfe\xff"
         "abc",
         "csv: text in UTF-16; fix: save the file as UTF-8"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Table t;
        long live = mem_live();
        EXPECT_FAIL(decode(row[r].text, 0, &t), row[r].reason);
        EXPECT_FAIL(decode(row[r].text, 0, &t), "csv: ");
        EXPECT(err_kind() == ERR_DATA && !t.columns && !t.rows);
        EXPECT_INT(mem_live(), live);
    }

    Table t;
    EXPECT_FAIL(decode_bytes("a,b\n1,\0\n", 8, NULL, &t),
                "row 2, column \"b\": a byte 0, which no text has");
    EXPECT_FAIL(table_read("no/labels.csv", NULL, &t),
                "no/labels.csv: csv: cannot open");
}

TEST(table_limits)
{
    Table t;
    for (int extra = -1; extra <= 1; extra++) {
        TableOptions rows = {.max_rows = 3 + extra};
        TableOptions columns = {.max_columns = 3 + extra};
        TableOptions bytes = {.max_bytes = 24 + extra};
        static const char text[] = "a,b,c\n1,2,3\n4,5,6\n7,8,9\n";
        REQUIRE(sizeof text - 1 == 24);
        if (extra < 0) {
            EXPECT_FAIL(decode_bytes(text, 24, &rows, &t),
                        "csv: more than 2 rows");
            EXPECT_FAIL(decode_bytes(text, 24, &columns, &t),
                        "csv: row 1: more than 2 columns");
            EXPECT_FAIL(decode_bytes(text, 24, &bytes, &t),
                        "csv: 24 bytes, limit 23");
            continue;
        }
        const TableOptions *all[] = {&rows, &columns, &bytes};
        for (int k = 0; k < 3; k++) {
            REQUIRE(decode_bytes(text, 24, all[k], &t));
            EXPECT_INT(t.rows, 3);
            table_free(&t);
        }
    }

    // a field of 65536 bytes, one more, and a million
    static const int size[] = {-1, 0, 1, 1000000 - TABLE_FIELD_MAX};

    for (int quoted = 0; quoted < 2; quoted++)
        for (int k = 0; k < 4; k++) {
            size_t field = (size_t)(TABLE_FIELD_MAX + size[k]);
            char *text = mem_alloc(field + 16);
            REQUIRE(text);
            size_t n = (size_t)sprintf(text, "a,b\n1,%s", quoted ? "\"" : "");
            memset(text + n, 'x', field);
            strcpy(text + n + field, quoted ? "\"\n" : "\n");
            if (size[k] > 0) {
                EXPECT_FAIL(decode(text, 0, &t),
                            quoted ? "row 2, column \"b\": a field of more "
                                     "than 65536 bytes; is its quote closed?"
                                   : "a field of more than 65536 bytes");
            } else {
                REQUIRE(decode(text, 0, &t));
                EXPECT_INT(strlen(table_text(&t, 0, 1)), field);
                table_free(&t);
            }
            mem_free(text);
        }
}

TEST(table_columns_by_name)
{
    Table t;
    int column = -1;
    REQUIRE(decode("path,Yaw,pitch_deg\nx,1,2\n", 0, &t));
    REQUIRE(table_column(&t, "pitch_deg", &column));
    EXPECT_INT(column, 2);
    REQUIRE(table_column(&t, "path", &column));
    EXPECT_INT(column, 0);
    EXPECT_FAIL(table_column(&t, "yaw", &column),
                "csv: no column \"yaw\"; nearest is \"Yaw\"; there are: path, "
                "Yaw, pitch_deg");
    EXPECT_FAIL(table_column(&t, "pitch", &column), "nearest is \"pitch_deg\"");
    EXPECT_FAIL(table_column(&t, "apth", &column), "nearest is \"path\"");
    EXPECT_FAIL(table_column(&t, "", &column), "no column \"\"; nearest is");
    EXPECT(err_kind() == ERR_DATA);
    EXPECT_INT(column, 0);
    table_free(&t);

    // a separator that the table does not use
    REQUIRE(decode("path;yaw\nx;1\n", 0, &t));
    EXPECT_FAIL(table_column(&t, "yaw", &column),
                "there are: path;yaw; fix: separator = \";\"");
    table_free(&t);
    REQUIRE(decode("path\tyaw\nx\t1\n", 0, &t));
    EXPECT_FAIL(table_column(&t, "yaw", &column), "; fix: separator = \"\\t\"");
    table_free(&t);
    REQUIRE(decode("path,yaw\nx,1\n", ';', &t));
    EXPECT_FAIL(table_column(&t, "yaw", &column), "; fix: separator = \",\"");
    table_free(&t);

    // many columns, and long names
    char text[4096], name[200];
    size_t n = 0;
    for (int k = 0; k < 30; k++)
        n += (size_t)sprintf(text + n, "%sc%d", k ? "," : "", k);
    memset(name, 'y', sizeof name - 1);
    name[sizeof name - 1] = 0;
    n += (size_t)sprintf(text + n, ",%s\n", name);
    for (int k = 0; k < 31; k++)
        n += (size_t)sprintf(text + n, "%s%d", k ? "," : "", k);
    REQUIRE(decode(text, 0, &t));
    REQUIRE(table_column(&t, name, &column));
    EXPECT_INT(column, 30);
    name[100] = 'z';
    EXPECT_FAIL(table_column(&t, name, &column), "c18, c19 and 11 more");
    EXPECT_FAIL(table_column(&t, name, &column), "yyy...\"; nearest is \"yyy");
    table_free(&t);
}

TEST(table_numbers)
{
    static const struct {
        const char *field;
        double value;
        const char *number, *integer; /* reasons, NULL: accepted */
    } row[] = {
        {"12", 12, NULL, NULL},
        {" -7\t", -7, NULL, NULL},
        {"+3", 3, NULL, NULL},
        {"0", 0, NULL, NULL},
        {"-0", 0, NULL, NULL},
        {"9223372036854775807", 9223372036854775807.0, NULL, NULL},
        {"-9223372036854775808", -9223372036854775808.0, NULL, NULL},
        {"9223372036854775808", 9223372036854775808.0, NULL,
         "\"9223372036854775808\" is beyond 64 bits"},
        {"-9223372036854775809", -9223372036854775808.0, NULL, "beyond 64"},
        {"99999999999999999999999", 1e23, NULL, "is beyond 64 bits"},
        {"1.5", 1.5, NULL, "\"1.5\" is not a whole number"},
        {"1e3", 1000, NULL, "\"1e3\" is not a whole number"},
        {"", 0, "the field is empty, need a number",
         "the field is empty, need a whole number"},
        {"  ", 0, "the field is empty, need a number", "the field is empty"},
        {"-", 0, "\"-\" is not a number", "\"-\" is not a whole number"},
        {"\"1,5\"", 0, "\"1,5\" has a decimal comma, need a point",
         "\"1,5\" is not a whole number"},
        {"\"-0,25\"", 0, "\"-0,25\" has a decimal comma", "is not a whole"},
        {"\"1,5,2\"", 0, "\"1,5,2\" is not a number", "is not a whole number"},
        {"\",5\"", 0, "\",5\" is not a number", "is not a whole number"},
        {"nan", 0, "\"nan\" is not a finite number; fix: leave the row out",
         "is"},
        {"NaN", 0,
         "\"NaN\" is not a finite number; fix:", "is not a whole number"},
        {"-inf", 0, "\"-inf\" is not a finite number; fix:", "is not a whole"},
        {"#N/A", 0, "\"#N/A\" is not a finite number; fix:", "is not a whole"},
        {"NULL", 0, "\"NULL\" is not a finite number; fix:", "is not a whole"},
        {"nano", 0, "\"nano\" is not a number", "is not a whole number"},
        {"1e999", 0, "\"1e999\" is out of the range of a double",
         "not a whole"},
        {"0x10", 0, "\"0x10\" is not a number", "is not a whole number"},
        {"1 2", 0, "\"1 2\" is not a number", "is not a whole number"},
        {"12deg", 0, "\"12deg\" is not a number", "is not a whole number"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char text[100];
        Table t;
        double v = 42;
        int64_t i = 42;
        snprintf(text, sizeof text, "path,yaw\nx,0\nx,%s\n", row[r].field);
        REQUIRE(decode(text, 0, &t));
        if (row[r].number) {
            EXPECT_FAIL(table_number(&t, 1, 1, &v), row[r].number);
            EXPECT_FAIL(table_number(&t, 1, 1, &v),
                        "csv: row 3, column \"yaw\": ");
            EXPECT(v == 42 && err_kind() == ERR_DATA);
        } else {
            EXPECT(table_number(&t, 1, 1, &v) && v == row[r].value);
        }
        if (row[r].integer) {
            EXPECT_FAIL(table_integer(&t, 1, 1, &i), row[r].integer);
            EXPECT_FAIL(table_integer(&t, 1, 1, &i),
                        "csv: row 3, column \"yaw\": ");
            EXPECT(i == 42 && err_kind() == ERR_DATA);
        } else {
            EXPECT(table_integer(&t, 1, 1, &i));
            EXPECT((double)i == row[r].value);
        }
        table_free(&t);
    }
}

TEST(table_paths)
{
    static const struct {
        const char *path, *reason;
    } row[] = {
        {"a.png", NULL},
        {"a/b/c.png", NULL},
        {"a..b/..c/d..", NULL},
        {"./a.png", NULL},
        {"a b/\xc3\xa4.png", NULL},
        {"", "the field is empty, need a path"},
        {"/etc/passwd", "path \"/etc/passwd\" is absolute, need one below R"},
        {"..", "path \"..\" leads out of R"},
        {"../x", "path \"../x\" leads out of R"},
        {"a/../../x", "path \"a/../../x\" leads out of R"},
        {"a/..", "path \"a/..\" leads out of R"},
        {"a/../b", "path \"a/../b\" leads out of R"}, // a may be a link
        {"a\\b.png", "path \"a\\b.png\" has backslashes; fix: write slashes"},
        {"C:\\x", "path \"C:\\x\" has backslashes"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char text[100], want[100], *path = NULL;
        Arena mem = {0};
        Table t;
        snprintf(text, sizeof text, "path,k\n%s,1\n", row[r].path);
        REQUIRE(decode(text, 0, &t));
        if (row[r].reason) {
            EXPECT_FAIL(table_path(&t, 0, 0, "R", &mem, &path), row[r].reason);
            EXPECT_FAIL(table_path(&t, 0, 0, "R", &mem, &path),
                        "csv: row 2, column \"path\": ");
            EXPECT(!path && err_kind() == ERR_DATA);
        } else {
            snprintf(want, sizeof want, "R/%s", row[r].path);
            REQUIRE(table_path(&t, 0, 0, "R", &mem, &path));
            EXPECT_TEXT(path, want);
        }
        arena_release(&mem);
        table_free(&t);
    }
}

TEST(table_from_a_file)
{
    char path[300], want[400];
    static const char text[] = "path,yaw\nx,1.5\ny,\nz,-2\n";
    Table t;
    double v;
    int column;

    snprintf(path, sizeof path, "%s/labels.csv", test_folder());
    REQUIRE(file_replace(path, text, sizeof text - 1));
    REQUIRE(table_read(path, NULL, &t));
    EXPECT_INT(t.rows, 3);
    TableRange r = table_range(&t, 1);
    EXPECT(r.numbers == 2 && r.empty == 1 && !r.whole);
    EXPECT(r.min == -2 && r.max == 1.5);
    r = table_range(&t, 0);
    EXPECT(r.numbers == 0 && r.empty == 0 && r.min == 0 && r.max == 0);
    snprintf(want, sizeof want,
             "%s: csv: row 3, column \"yaw\": the field is empty", path);
    EXPECT_FAIL(table_number(&t, 1, 1, &v), want);
    snprintf(want, sizeof want, "%s: csv: no column \"roll\"", path);
    EXPECT_FAIL(table_column(&t, "roll", &column), want);
    table_free(&t);
    REQUIRE(file_replace(path, "a,b\n1\n", 6));
    snprintf(want, sizeof want, "%s: csv: row 2: 1 fields", path);
    EXPECT_FAIL(table_read(path, NULL, &t), want);
}

TEST(table_without_memory)
{
    Table t;
    long live = mem_live();
    int k = 0;

    for (bool ok = false; !ok; k++) {
        mem_fail_after(k, false);
        ok = table_decode("a,b\n1,2\n", 8, NULL, &t);
        mem_fail_after(-1, false);
        if (ok)
            table_free(&t);
        else
            EXPECT(strstr(err_text(), "no memory"));
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(k > 1);
}

TEST(table_agrees_with_python)
{
    if (system(PYTHON "-c 'import csv' 2> /dev/null"))
        SKIP("python3 is not installed (sh vendor/fetch test)");
    char command[400], path[320];
    snprintf(command, sizeof command,
             PYTHON "tests/data/format/table_peer.py %s", test_folder());
    REQUIRE(!system(command));

    for (int k = 0; k < 60; k++) {
        TableOptions o = {.separator = ",;\t"[k % 3]};
        Arena mem = {0};
        Table t;
        char *want;
        size_t n;
        int32_t count[2];
        snprintf(path, sizeof path, "%s/t%02d.csv", test_folder(), k);
        REQUIRE(table_read(path, &o, &t));
        snprintf(path, sizeof path, "%s/t%02d.bin", test_folder(), k);
        REQUIRE(file_read(path, 1 << 24, &mem, &want, &n));
        memcpy(count, want, sizeof count);
        EXPECT_INT(t.columns, count[0]);
        REQUIRE(t.rows == count[1]);
        const char *p = want + sizeof count;
        for (int64_t row = -1; row < t.rows; row++)
            for (int c = 0; c < t.columns; c++) {
                EXPECT_TEXT(
                    row < 0 ? table_name(&t, c) : table_text(&t, row, c), p);
                p += strlen(p) + 1;
            }
        EXPECT(p == want + n);
        arena_release(&mem);
        table_free(&t);
    }
}
