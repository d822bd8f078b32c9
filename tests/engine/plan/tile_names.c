/* tile_names.c -- the text that chooses tiles of products, with a backend that
 * has three; and its effect on each call of a plan.
 * tests/cuda/kernels/igemm_tiles.c tests the tiles themselves. */
#include "engine/plan/tile_names.h"
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

static const char *toy_tile(int number)
{
    static const char *const name[] = {"8x8", "8x4", "8x4-split"};
    return number < 1 || number > 3 ? NULL : name[number - 1];
}
static const Backend toy = {.name = "toy", .tile = toy_tile};
static const Backend none = {.name = "none"};

static void expect_tiles(const char *text, const char *label, int forward,
                         int data)
{
    int8_t tile[2] = {9, 9};
    tiles_of(text, label, &toy, tile);
    EXPECT_INT(tile[0], forward);
    EXPECT_INT(tile[1], data);
    tiles_of(text, label, &none, tile);
    EXPECT(!tile[0] && !tile[1]);
}

TEST(tile_names_in_a_text)
{
    expect_tiles(NULL, "a", 0, 0);
    expect_tiles("", "a", 0, 0);
    expect_tiles("a=8x8/8x4", "a", 1, 2);
    expect_tiles("a=8x8/8x4", "b", 0, 0);
    expect_tiles("a=8x8/8x4", "a=8x8", 0, 0);
    expect_tiles("b=8x8/-, a=-/8x4-split", "a", 0, 3);
    expect_tiles("b=8x8/-,ab=8x4/8x4", "b", 1, 0);
    expect_tiles("ab=8x4/8x4", "a", 0, 0);
}

/* Returns the name of the first layer that multiplies and has a name. */
static const char *multiplying(const Graph *g)
{
    for (int i = 0; i < g->count; i++)
        if (g->node[i].kind == NODE_OP && g->node[i].name[0] &&
            op_multiplies((Op)g->node[i].attr.op))
            return g->node[i].name;
    test_stop();
}

TEST(tile_names_that_there_are)
{
    Net n;
    net_small(&n);
    const char *name = multiplying(&n.g);
    const struct {
        const char *entry, *why; // after the name of a convolution; NULL: fine
    } row[] = {
        {"=8x8/8x4-split", NULL},
        {"=-/-", NULL},
        {"=8x8/8x5", "toy has no tile \"8x5\"; known: 8x8, 8x4, 8x4-split, or"},
        {"=/8x8", "toy has no tile \"\""},
        {"=8x8", "is not LAYER=FORWARD/DATA"},
        {"", "is not LAYER=FORWARD/DATA"},
        {"y=8x8/8x8", "tiles: no convolution is called"},
    };
    EXPECT(tiles_valid(NULL, &n.g, &toy) && tiles_valid("", &n.g, &toy));

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", name, row[i].entry);
        if (row[i].why)
            EXPECT_FAIL(tiles_valid(text, &n.g, &toy), row[i].why);
        else
            EXPECT(tiles_valid(text, &n.g, &toy));
    }

    // not for a layer without a name, which some are
    EXPECT_FAIL(tiles_valid("=8x8/8x8", &n.g, &toy),
                "tiles: no convolution is called \"\"");

    // names of another backend's tiles
    char text[256];
    snprintf(text, sizeof text, "%s=9x9/9x9", name);
    EXPECT(tiles_valid(text, &n.g, &none));
    net_free(&n);
}

/* Counts calls with the tile; forward and backward, and also recomputed
 * ones. */
static int calls_with_tile(const Plan *p, const Graph *g, const char *name)
{
    int count = 0;
    for (int i = 0; i < p->calls; i++) {
        const Call *c = &p->call[i];
        const bool meant = c->attr && !strcmp(g->node[c->node].name, name);
        EXPECT_INT(c->tile[0], meant ? 2 : 0);
        EXPECT_INT(c->tile[1], meant ? 3 : 0);
        count += meant;
    }
    return count;
}

TEST(tile_names_reach_every_call)
{
    Net n;
    PlanRig r;
    Backend be = backend_cpu;

    be.tile = toy_tile;
    net_small(&n);
    plan_rig_open(&r, &n, &be, 1, 1);
    const char *name = multiplying(&n.g);
    char text[256];
    snprintf(text, sizeof text, "%s=8x4/8x4-split", name);
    r.spec.tiles = text;
    r.spec.budget = 0;
    plan_rig_plan(&r, true);
    EXPECT(calls_with_tile(r.plan, &n.g, name) >= 2);
    r.spec.budget = 1, r.spec.least = true;
    plan_rig_plan(&r, true);
    EXPECT(calls_with_tile(r.plan, &n.g, name) >= 2);
    plan_rig_close(&r);
    net_free(&n);
}
