/* graph.c -- fuzz target: any bytes as the text of a network. */
#include "engine/graph/graph.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOTS = 8 };

/* Prints a graph, parses the text and prints again: both texts must be
 * equal. */
static void again(const Graph *g, const int *root, int roots)
{
    Arena mem = {NULL};
    Graph back = {.count = 0};
    char *one, *two;
    int at[ROOTS], count;
    CHECK(graph_print(g, root, roots, &mem, &one));
    CHECK(graph_parse(one, &back, at, &count, ROOTS) && count == roots);
    CHECK(graph_print(&back, at, count, &mem, &two));
    CHECK(!strcmp(one, two));
    graph_free(&back);
    arena_release(&mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Graph g = {.count = 0};
    int root[ROOTS], roots;
    char *text = mem_alloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    if (graph_parse(text, &g, root, &roots, ROOTS)) again(&g, root, roots);
    mem_free(text);
    graph_free(&g);
    return 0;
}
