/* ops_class_counts.c -- the counts for metrics: predicted, true, both. */
#include "tests/support/op_call.h"

enum { MOST = 8 };

typedef struct Count {
    const char *what;
    float threshold;
    Dims x, t, m;
    double xs[MOST], ts[MOST], ms[MOST], y[9];
} Count;

// clang-format off
#define D(n, w, c) {n, 1, 1, w, c}
#define NONE       {0, 0, 0, 0, 0}
static const Count counts[] = {
    {"one channel", 0.5f, D(1,5,1), D(1,5,1), NONE,
     {1, 2, -1, -2, 0}, {1, 0, 1, 0, 1}, {0}, {1, 2, 3}},
    {"two samples", 0.5f, D(2,2,1), D(2,2,1), NONE,
     {1, 2, -1, 2}, {1, 0, 0, 1}, {0}, {1, 2, 1, 1, 1, 1}},
    /* logistic(2) = 0.88, logistic(3) = 0.95 */
    {"another threshold", 0.9f, D(1,2,1), D(1,2,1), NONE,
     {2, 3}, {1, 1}, {0}, {1, 1, 2}},
    {"threshold 0 and all is predicted", 0, D(1,2,1), D(1,2,1), NONE,
     {-1e30, 3}, {1, 0}, {0}, {1, 2, 1}},
    {"threshold 1 and nothing is", 1, D(1,2,1), D(1,2,1), NONE,
     {1e30, 3}, {1, 0}, {0}, {0, 0, 1}},
    {"half a target is true", 0.5f, D(1,3,1), D(1,3,1), NONE,
     {1, 1, 1}, {0.5, 0.25, 0.75}, {0}, {2, 3, 2}},
    {"masked", 0.5f, D(1,4,1), D(1,4,1), D(1,4,1),
     {1, 1, -1, 1}, {1, 1, 1, 0}, {1, 0, 1, 0}, {1, 1, 2}},
    /* ties go to the first: predicted are 0 and 1, true 0 and 2 */
    {"class numbers", 0.5f, D(1,2,3), D(1,2,1), NONE,
     {5, 5, 5, -1, 2, 1}, {0, 2}, {0}, {1, 1, 1, 0, 1, 0, 0, 0, 1}},
    {"a channel a class", 0.5f, D(1,2,3), D(1,2,3), NONE,
     {5, 5, 5, -1, 2, 1}, {1, 0, 0, 0, 0, 1}, {0}, {1, 1, 1, 0, 1, 0, 0, 0, 1}},
};
// clang-format on

TEST(overlap_by_hand)
{
    Arena mem = {0};
    for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        const Count *s = &counts[i / 2];
        OpCase c = {.attr = {.overlap = {OP_overlap, s->threshold}},
                    .rank = 1,
                    .x = {s->x, s->t, s->m}};
        const double *x[MAX_IN] = {s->xs, s->ts, s->ms};
        OpValues out;
        given_run(given_backend(i % 2), &c, x, NULL, &mem, &out);
        for (int64_t k = 0; k < out.results; k++)
            if (out.y[k] != s->y[k])
                test_failed(__FILE__, __LINE__, "%s: y[%d] is %g, want %g",
                            s->what, (int)k, out.y[k], s->y[k]);
    }
    arena_release(&mem);
}

TEST(overlap_many_classes)
{
    // more classes than one pass counts; position p has class p
    enum { CLASSES = 150 };
    Arena mem = {0};
    double *x = ARENA_NEW(&mem, double, CLASSES *CLASSES);
    double *t = ARENA_NEW(&mem, double, CLASSES);
    REQUIRE(x && t);
    for (int p = 0; p < CLASSES; p++) {
        x[p * CLASSES + (p < 140 ? p : 0)] = 1;
        t[p] = p;
    }

    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_overlap), .rank = 1};
        c.x[0] = (Dims){1, 1, 1, CLASSES, CLASSES};
        c.x[1] = (Dims){1, 1, 1, CLASSES, 1};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, t}, NULL,
                  &mem, &out);
        for (int k = 0; k < CLASSES; k++) {
            EXPECT_INT(out.y[3 * k], k < 140);
            EXPECT_INT(out.y[3 * k + 1], k == 0 ? 11 : k < 140);
            EXPECT_INT(out.y[3 * k + 2], 1);
        }
    }
    arena_release(&mem);
}
