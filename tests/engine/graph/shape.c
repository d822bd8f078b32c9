/* shape.c -- every shape rule accepts and refuses.
 *
 * A row of the table is an operator, attributes that differ from the defaults,
 * operands as n x d x h x w x c, and either the extents of the result or a part
 * of the reason. Sizes of windows are PyTorch's. */
#include "engine/graph/op.h"
#include "tests/test.h"
#include <stdlib.h>

typedef struct Row {
    const char *op, *attrs, *operands, *want;
    int rank; /* of operand 0; tests below check the result's */
} Row;

/* Parses "2,1,4,5,3": extents; "-": absent. Blanks separate operands. */
static void parse_operands(const char *text, int rank, Tensor x[MAX_IN])
{
    memset(x, 0, MAX_IN * sizeof *x);
    for (int i = 0; *text; i++) {
        char word[64];
        size_t n = strcspn(text, " ");
        REQUIRE(i < MAX_IN && n < sizeof word);
        memcpy(word, text, n);
        word[n] = 0;
        Dims d;
        x[i].type = F32;
        x[i].rank = rank;
        if (sscanf(word, "%d,%d,%d,%d,%d", &d.n, &d.d, &d.h, &d.w, &d.c) == 5)
            x[i].dim = d;
        else
            EXPECT_TEXT(word, "-");
        text += n;
        while (*text == ' ') text++;
    }
}

/* Parses "sh=2 sw=2". */
static void parse_attrs(const char *text, Attr *a)
{
    const OpInfo *info = &op_info[a->op];
    while (*text) {
        size_t n = strcspn(text, "=");
        int found = -1;
        for (int i = 0; i < info->attrs; i++)
            if (strlen(info->attr[i].name) == n &&
                !memcmp(info->attr[i].name, text, n))
                found = i;
        REQUIRE(found >= 0);
        double v = strtod(text + n + 1, (char **)&text);
        float f = (float)v;
        if (info->attr[found].kind == 'f')
            memcpy(&a->word[1 + found], &f, 4);
        else
            a->word[1 + found] = (int32_t)v;
        while (*text == ' ') text++;
    }
}

static bool infer(const Row *r, Tensor *y)
{
    Op op = op_find(r->op);
    Tensor x[MAX_IN];
    REQUIRE(op != OP_COUNT);
    Attr a = op_default(op);
    parse_attrs(r->attrs, &a);
    parse_operands(r->operands, r->rank, x);
    return op_shape(&a, x, y);
}

static void check_rows(const Row *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char got[128];
        Tensor y;
        bool ok = infer(&row[i], &y);
        bool wanted = *row[i].want >= '0' && *row[i].want <= '9';
        if (ok)
            snprintf(got, sizeof got, "%d,%d,%d,%d,%d", y.dim.n, y.dim.d,
                     y.dim.h, y.dim.w, y.dim.c);
        if (ok ? strcmp(got, row[i].want) != 0
               : wanted || !strstr(err_text(), row[i].want) ||
                     err_kind() != ERR_USAGE)
            test_failed(__FILE__, __LINE__, "%s %s (%s): %s, want %s",
                        row[i].op, row[i].attrs, row[i].operands,
                        ok ? got : err_text(), row[i].want);
    }
}
#define CHECK_ROWS(rows) check_rows(rows, sizeof rows / sizeof *rows)

TEST(shape_windows)
{
    static const Row rows[] = {
        {"conv", "ph0=1 ph1=1 pw0=1 pw1=1", "2,1,7,9,3 8,1,3,3,3 1,1,1,1,8",
         "2,1,7,9,8", 2},
        {"conv", "sh=2 sw=3", "1,1,10,10,4 6,1,3,3,4", "1,1,4,3,6", 2},
        // torch.nn.Conv2d(1, 1, 3, stride=2, padding=1) of 224: 112
        {"conv", "sh=2 sw=2 ph0=1 ph1=1 pw0=1 pw1=1", "1,1,224,225,1 1,1,3,3,1",
         "1,1,112,113,1", 2},
        // span 1 + 3 (3 - 1) = 7
        {"conv", "dh=3 dw=3", "1,1,7,8,1 1,1,3,3,1", "1,1,1,2,1", 2},
        {"conv", "dh=3 dw=3", "1,1,6,8,1 1,1,3,3,1",
         "window of 7 does not fit h = 6 with padding 0 + 0", 2},
        {"conv", "groups=2", "1,1,4,4,6 4,1,1,1,3", "1,1,4,4,4", 2},
        {"conv", "groups=6", "1,1,4,4,6 12,1,1,1,1", "1,1,4,4,12", 2},
        {"conv", "groups=4", "1,1,4,4,6 4,1,1,1,3", "in 4 groups", 2},
        {"conv", "groups=2", "1,1,4,4,6 3,1,1,1,3",
         "weight of 3 filters with 3 channels", 2},
        {"conv", "groups=0", "1,1,4,4,6 4,1,1,1,3", "groups must be >= 1", 2},
        {"conv", "", "1,1,4,4,6 4,1,1,1,5", "do not fit a weight", 2},
        {"conv", "", "1,1,4,4,6", "do not fit a weight", 2},
        {"conv", "", "1,1,4,4,6 4,1,1,1,6 1,1,1,1,5",
         "bias must have 4 elements, got 1x5x1x1", 2},
        {"conv", "sh=0", "1,1,4,4,1 1,1,1,1,1", "stride must be >= 1", 2},
        {"conv", "dw=0", "1,1,4,4,1 1,1,1,1,1", "dilation must be >= 1", 2},
        {"conv", "ph0=-1", "1,1,4,4,1 1,1,1,1,1", "padding must be >= 0", 2},
        {"conv", "ph1=-1", "1,1,4,4,1 1,1,1,1,1", "padding must be >= 0", 2},
        {"conv", "sd=2", "1,9,4,4,1 2,3,1,1,1", "1,4,4,4,2", 3},
        // torch.nn.ConvTranspose2d(8, 4, 2, stride=2)
        {"upconv", "sh=2 sw=2", "3,1,5,6,8 8,1,2,2,4 1,1,1,1,4", "3,1,10,12,4",
         2},
        // kernel 3, stride 2, padding 1, output padding 1: 5 -> 10
        {"upconv", "sw=2 pw0=1 pw1=0", "1,1,1,5,2 2,1,1,3,2", "1,1,1,10,2", 1},
        {"upconv", "sw=2 pw0=1 pw1=-1", "1,1,1,5,2 2,1,1,2,2", "1,1,1,10,2", 1},
        {"upconv", "dw=2", "1,1,1,5,2 2,1,1,3,2", "1,1,1,9,2", 1},
        {"upconv", "groups=2", "1,1,1,5,4 4,1,1,1,3", "1,1,1,5,6", 1},
        {"upconv", "", "1,1,1,5,4 3,1,1,1,3", "weight for 3 channels", 1},
        {"upconv", "", "1,1,1,5,4", "weight for 0 channels", 1},
        {"upconv", "groups=3", "1,1,1,5,4 4,1,1,1,3", "in 3 groups", 1},
        {"upconv", "groups=-1", "1,1,1,5,4 4,1,1,1,3", "groups must be", 1},
        {"upconv", "sw=0", "1,1,1,5,4 4,1,1,1,3", "stride must be >= 1", 1},
        {"upconv", "dw=0", "1,1,1,5,4 4,1,1,1,3", "dilation must be >= 1", 1},
        {"upconv", "pw0=-1", "1,1,1,5,4 4,1,1,1,3", "padding must be >= 0", 1},
        {"upconv", "pw0=3 pw1=2", "1,1,1,5,4 4,1,1,1,3",
         "w = 5 would become 0; less padding", 1},
        {"upconv", "groups=2", "1,1,1,5,4 4,1,1,1,3 1,1,1,1,3",
         "bias must have 6 elements", 1},
        {"maxpool", "kh=2 kw=2 sh=2 sw=2", "2,1,9,8,3", "2,1,4,4,3", 2},
        {"maxpool", "kh=3 kw=3 sh=2 sw=2 ph0=1 ph1=1 pw0=1 pw1=1",
         "1,1,112,111,3", "1,1,56,56,3", 2},
        {"maxpool", "kh=2 ph0=2", "1,1,9,8,3", "must be smaller than the", 2},
        {"maxpool", "kw=2 pw1=2", "1,1,9,8,3", "must be smaller than the", 2},
        {"maxpool", "kw=2 pw1=-1", "1,1,9,8,3", "padding must be >= 0", 2},
        {"maxpool", "kh=0", "1,1,9,8,3", "kernel must be 1 or more, got 0", 2},
        {"avgpool", "kw=3 sw=3", "1,1,1,10,3", "1,1,1,3,3", 1},
        {"avgpool", "kw=11", "1,1,1,10,3", "window of 11 does not fit w", 1},
        {"avgpool", "sw=-2", "1,1,1,10,3", "stride must be >= 1", 1},
    };
    CHECK_ROWS(rows);
}

TEST(shape_others)
{
    static const Row rows[] = {
        {"linear", "", "2,1,1,9,3 5,1,1,1,3 1,1,1,1,5", "2,1,1,9,5", 1},
        {"linear", "", "2,1,1,9,3 5,1,1,1,4", "channels do not fit a", 1},
        {"linear", "", "2,1,1,9,3 5,1,1,2,3", "do not fit a weight", 1},
        {"linear", "", "2,1,1,9,3", "weight for 0", 1},
        {"linear", "", "2,1,1,9,3 5,1,1,1,3 1,1,1,1,3", "must have 5", 1},
        {"relu", "", "2,3,4,5,6", "2,3,4,5,6", 3},
        {"global_avgpool", "", "2,3,4,5,6", "2,1,1,1,6", 3},
        {"upsample_nearest", "fh=2 fw=3", "1,1,4,5,2", "1,1,8,15,2", 2},
        {"upsample_linear", "fh=0", "1,1,4,5,2", "scale must be >= 1", 2},
        {"batch_norm", "", "2,1,4,4,3 - - 1,1,1,1,3 1,1,1,1,3", "2,1,4,4,3", 2},
        {"batch_norm", "", "2,1,4,4,3 1,1,1,1,3 1,1,1,1,3 1,1,1,1,3 1,1,1,1,3",
         "2,1,4,4,3", 2},
        {"batch_norm", "", "2,1,4,4,3 1,1,1,1,3 - 1,1,1,1,3 1,1,1,1,3",
         "give weight and bias, or", 2},
        {"batch_norm", "", "2,1,4,4,3 1,1,1,1,3 1,1,1,1,3 1,1,1,1,3",
         "running mean and variance are missing", 2},
        {"batch_norm", "", "2,1,4,4,3 - - 1,1,1,1,4 1,1,1,1,3",
         "running mean must have 3", 2},
        {"batch_norm", "", "2,1,4,4,3 - - 1,1,1,1,3 3,1,1,1,1",
         "running variance must have 3", 2},
        {"instance_norm", "", "2,1,4,4,3 1,1,1,1,2 1,1,1,1,3",
         "weight must have 3", 2},
        {"group_norm", "groups=3", "2,1,4,4,6", "2,1,4,4,6", 2},
        {"group_norm", "groups=4", "2,1,4,4,6", "do not divide into 4", 2},
        {"group_norm", "groups=0", "2,1,4,4,6", "do not divide into 0", 2},
        {"layer_norm", "", "2,1,4,4,6 1,1,1,1,6 1,1,1,1,5", "bias must", 2},
        {"add", "", "2,1,4,5,3 1,1,1,1,3", "2,1,4,5,3", 2},
        {"mul", "", "2,1,1,1,3 2,1,4,5,1", "2,1,4,5,3", 2},
        {"sub", "", "2,1,4,5,3 2,1,4,5,2", "do not match", 2},
        {"div", "", "2,1,4,5,3 3,1,4,5,3", "do not match", 2},
        {"add", "", "2,1,4,5,3", "operand 2 is missing", 2},
        {"add", "", "1,1,1,1,1", "operand 2 is missing", 2},
        {"concat", "", "2,1,4,5,3 2,1,4,5,2 2,1,4,5,1", "2,1,4,5,6", 2},
        {"concat", "", "2,1,4,5,3", "2,1,4,5,3", 2},
        {"concat", "", "2,1,4,5,3 2,1,4,6,3",
         "concat: 2x3x4x5 (N,C,H,W) and 2x3x4x6 (N,C,H,W) differ in more", 2},
        {"concat", "", "2,1,4,5,3 - 2,1,4,5,3", "operand 2 is missing", 2},
        {"slice", "", "2,1,4,5,3", "2,1,4,5,3", 2},
        {"slice", "h0=1 h=2 w0=4 c=2", "2,1,4,5,3", "2,1,2,1,2", 2},
        {"slice", "h0=4", "2,1,4,5,3",
         "h from 4, length 0, is outside of 0 .. 3", 2},
        {"slice", "w0=1 w=5", "2,1,4,5,3", "w from 1, length 5", 2},
        {"slice", "c0=-1", "2,1,4,5,3", "c from -1", 2},
        {"slice", "c=-1", "2,1,4,5,3", "c from 0, length -1", 2},
        {"pad", "ph0=1 ph1=2 pw1=3", "2,1,4,5,3", "2,1,7,8,3", 2},
        {"pad", "ph1=-2", "2,1,4,5,3", "padding must be >= 0", 2},
        {"flatten", "", "2,3,4,5,6", "2,1,1,1,360", 3},
    };
    CHECK_ROWS(rows);
}

TEST(shape_losses)
{
    static const Row rows[] = {
        {"bce", "", "2,1,4,5,3 2,1,4,5,3", "1,1,1,1,1", 2},
        {"bce", "", "2,1,4,5,3 2,1,4,5,1", "target of shape 2x1x4x5", 2},
        {"bce", "", "2,1,4,5,3", "the target is missing", 2},
        {"bce", "", "2,1,4,5,3 2,1,4,5,3 2,1,1,1,1 1,1,4,5,3", "1,1,1,1,1", 2},
        {"bce", "", "2,1,4,5,3 2,1,4,5,3 2,1,4,5,2", "mask of shape", 2},
        {"bce", "", "1,1,4,5,3 1,1,4,5,3 - 2,1,1,1,1", "weight of shape", 2},
        {"dice_loss", "", "2,1,4,5,3 2,1,4,5,1", "1,1,1,1,1", 2},
        {"tversky", "", "2,1,4,5,3 2,1,4,5,3", "1,1,1,1,1", 2},
        {"bce_dice", "", "2,1,4,5,1 2,1,4,5,1", "1,1,1,1,1", 2},
        {"bce_dice", "", "2,1,4,5,3 2,1,4,5,1", "does not match", 2},
        {"cross_entropy", "", "2,1,4,5,3 2,1,4,5,1", "1,1,1,1,1", 2},
        {"cross_entropy", "", "2,1,4,5,3 2,1,4,5,3", "does not match", 2},
        {"cross_entropy", "", "2,1,4,5,1 2,1,4,5,1", "at least 2 classes", 2},
        {"cross_entropy", "", "2,1,4,5,3 2,1,4,5,1 2,1,4,5,1 1,1,1,1,3",
         "1,1,1,1,1", 2},
        // a mask has one value per position, not per class
        {"cross_entropy", "", "2,1,4,5,3 2,1,4,5,1 2,1,4,5,3", "mask of", 2},
        {"focal", "", "2,1,4,5,3 2,1,4,5,3", "1,1,1,1,1", 2},
        {"mae", "", "2,1,4,5,3 2,1,4,4,3", "does not match", 2},
        {"mse", "", "2,1,4,5,3 1,1,4,5,3", "does not match", 2},
        {"huber", "", "2,1,4,5,3 2,1,4,5,3", "1,1,1,1,1", 2},
        {"dvh_loss", "", "2,1,4,5,1 2,1,4,5,1 2,1,4,5,3", "1,1,1,1,1", 2},
        {"dvh_loss", "", "2,1,4,5,2 2,1,4,5,2 2,1,4,5,3", "one channel", 2},
        {"dvh_loss", "", "2,1,4,5,1 2,1,4,4,1 2,1,4,5,3", "does not match", 2},
        {"dvh_loss", "", "2,1,4,5,1 2,1,4,5,1", "structures are missing", 2},
        {"dvh_loss", "", "2,1,4,5,1 2,1,4,5,1 1,1,4,5,3", "structures of", 2},
        {"dvh_loss", "bins=0", "2,1,4,5,1 2,1,4,5,1 2,1,4,5,3", "bins must", 2},
        {"dvh_loss", "steep=8", "2,1,4,5,1 2,1,4,5,1 2,1,4,5,3",
         "steep times bins", 2},
        {"overlap", "", "2,1,4,5,3 2,1,4,5,1", "2,1,1,1,9", 2},
        {"overlap", "", "2,1,4,5,3 2,1,4,5,3 2,1,4,5,1", "2,1,1,1,9", 2},
        {"overlap", "", "2,1,4,5,3", "the target is missing", 2},
        {"overlap", "", "2,1,4,5,3 2,1,4,5,1 3,1,4,5,1", "mask of", 2},
    };
    CHECK_ROWS(rows);
}

/* Extents are int: larger ones are refused and do not overflow. */
TEST(shape_near_two_to_the_31)
{
    static const Row rows[] = {
        {"conv", "", "1,1,1,2147483647,1 1,1,1,1,1", "1,1,1,2147483647,1", 1},
        {"conv", "pw1=1", "1,1,1,2147483647,1 1,1,1,1,1", "too large", 1},
        {"conv", "pw0=2147483647 pw1=2147483647",
         "1,1,1,2147483647,1 1,1,1,1,1", "too large", 1},
        // 3 (2^31 - 1) - 2^31 + 1: as an int it would be positive
        {"conv", "pw0=2147483647 pw1=2147483647 sw=2",
         "1,1,1,2147483647,1 1,1,1,1,1", "too large", 1},
        {"conv", "dw=2147483647", "1,1,1,9,1 1,1,1,2147483647,1",
         "does not fit w = 9", 1},
        {"upconv", "sw=2147483647", "1,1,1,2147483647,1 1,1,1,1,1",
         "would become", 1},
        {"upconv", "sw=2147483647 dw=2147483647 pw1=-2147483648",
         "1,1,1,2147483647,1 1,1,1,2147483647,1", "would become", 1},
        {"upconv", "groups=65536", "1,1,1,1,65536 65536,1,1,1,65536",
         "too many channels", 1},
        {"maxpool", "kw=2147483647 pw0=2147483646 pw1=2147483646",
         "1,1,1,2147483647,1", "too large", 1},
        {"upsample_nearest", "fw=2", "1,1,1,1073741823,1", "1,1,1,2147483646,1",
         1},
        {"upsample_nearest", "fw=2", "1,1,1,1073741824,1", "is too large", 1},
        {"pad", "pw1=1", "1,1,1,2147483647,1", "too large", 1},
        {"flatten", "", "1,1,46341,46341,1", "too many for one axis", 2},
        {"concat", "", "1,1,1,1,2147483647 1,1,1,1,1", "too many channels", 0},
        {"overlap", "", "1,1,1,1,715827883 1,1,1,1,1", "too many classes", 0},
        {"overlap", "", "1,1,1,1,715827882 1,1,1,1,1", "1,1,1,1,2147483646", 0},
        // extents that fit, sizes in bytes that do not
        {"add", "", "1,1,1,2147483647,1 2147483647,1,1,1,2147483647",
         "too large to address", 1},
        {"mul", "", "1,1,1,1073741824,1 1,1,1,1,1073741824",
         "too large to address", 1},
    };
    CHECK_ROWS(rows);
}

/* The result must fit the axes of its rank. */
TEST(shape_ranks)
{
    static const Row rows[] = {
        {"upsample_nearest", "fh=2", "1,1,1,5,2",
         "the result, 1x1x2x5x2 as n x d x h x w x c, has more axes", 1},
        {"pad", "pw0=1", "1,1,1,1,2", "more axes", 0},
        {"pad", "pd0=1", "1,1,4,4,2", "more axes", 2},
        {"conv", "ph0=1 ph1=1", "1,1,1,5,2 1,1,1,1,2", "more axes", 1},
        {"upconv", "", "1,1,1,5,2 2,1,2,1,2", "more axes", 1},
        {"add", "", "1,1,1,5,2 1,1,3,1,2", "more axes", 1},
        {"add", "", "1,1,1,1,2 2,1,1,1,2", "more axes", -1},
        {"add", "", "1,1,1,1,1 1,1,1,1,2", "more axes", -2},
        {"add", "", "1,1,1,1,1 1,1,1,1,1", "1,1,1,1,1", -2},
    };
    CHECK_ROWS(rows);

    // operands of several ranks: the result has the largest
    Tensor x[MAX_IN] = {{{1, 1, 1, 1, 1}, F32, RANK_SCALAR, NULL},
                        {{2, 1, 4, 5, 3}, F32, 2, NULL}},
           y;
    Attr add = op_default(OP_add), pool = op_default(OP_global_maxpool);
    Attr mse = op_default(OP_mse);
    REQUIRE(op_shape(&add, x, &y));
    EXPECT_INT(y.rank, 2);
    EXPECT_INT(y.type, F32);
    x[0] = x[1];
    REQUIRE(op_shape(&mse, x, &y));
    EXPECT_INT(y.rank, RANK_SCALAR);
    x[1] = (Tensor){{0}, F32, 0, NULL};
    REQUIRE(op_shape(&pool, x, &y));
    EXPECT_INT(y.rank, 0);
}

/* Every operator requires operands, and is found by its name. */
TEST(shape_every_row_wants_operands)
{
    for (int op = 0; op < OP_COUNT; op++) {
        Tensor x[MAX_IN] = {{{0}, F32, 0, NULL}}, y;
        Attr a = op_default((Op)op);
        EXPECT_INT(op_find(op_info[op].name), op);
        EXPECT_FAIL(op_shape(&a, x, &y), "operand 1 is missing");
    }
    EXPECT_INT(op_find("no such row"), OP_COUNT);
    EXPECT_INT(op_find(""), OP_COUNT);
}

TEST(op_flops_count_multiply_adds_twice)
{
    Tensor x[MAX_IN] = {{{2, 1, 8, 8, 6}, F32, 2, NULL},
                        {{4, 1, 3, 3, 3}, F32, 2, NULL}},
           y;
    Attr a = op_default(OP_conv), up = op_default(OP_upconv);
    a.conv.groups = 2;
    REQUIRE(op_shape(&a, x, &y));
    EXPECT_NEAR(op_flops(&a, x, &y), 2.0 * 2 * 6 * 6 * 4 * 9 * 3, 0);

    // 6 -> 4 channels, 2 x 2, stride 2: 16 x 16 x 4 results of 6 products
    x[1].dim = (Dims){6, 1, 2, 2, 4};
    up.upconv.sh = up.upconv.sw = 2;
    REQUIRE(op_shape(&up, x, &y));
    EXPECT_NEAR(op_flops(&up, x, &y), 2.0 * 2 * 16 * 16 * 4 * 6, 0);
    Attr relu = op_default(OP_relu);
    EXPECT_NEAR(op_flops(&relu, x, &y), 0, 0);
}
