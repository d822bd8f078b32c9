/* graph.h -- the graph: what a recipe describes.
 *
 * A Graph is an array of nodes in the order of their making; operands have
 * smaller numbers than the node that uses them. So there is no cycle, no
 * sorting: forward is a loop up, backward a loop down. Extents are inferred
 * when a node is appended, for one sample (n = 1). A graph holds no values;
 * a Plan gives it batch and addresses. Dead nodes cost nothing, since a plan
 * takes the ancestors of its roots only. */
#ifndef SEG_ENGINE_GRAPH_GRAPH_H
#define SEG_ENGINE_GRAPH_GRAPH_H
#include "engine/graph/op.h"

typedef enum NodeKind { NODE_INPUT, NODE_PARAM, NODE_OP } NodeKind;

/* How a parameter starts; what `value` means: see InitKind. */
typedef enum InitKind {
    INIT_UNIFORM, /* in [-value, value)               */
    INIT_NORMAL,  /* standard deviation value         */
    INIT_CONST,   /* value                            */
} InitKind;

typedef struct Init {
    InitKind kind;
    double value;
} Init;

typedef struct Node {
    NodeKind kind;
    Attr attr;      /* NODE_OP: which row, with which attributes     */
    int in[MAX_IN]; /* NODE_OP: operands, -1 where absent            */
    Tensor y;       /* extents for n = 1 and rank; data NULL, F32    */
    char *name;     /* "enc1.conv1.weight"; an input's name; an op's
                       label "enc1.conv1" or "", which may repeat    */
    char *where;    /* "scripts/brain_unet.lua:56" or ""             */
    Init init;      /* NODE_PARAM */
    bool trained;   /* NODE_PARAM: false for running statistics      */
    bool decayed;   /* NODE_PARAM: weight decay applies              */
    bool batched;   /* n of y is the batch (depends on an input)     */
} Node;

/* A zeroed Graph is an empty one. Nodes move when the array grows: keep their
 * numbers, not their addresses. */
typedef struct Graph {
    Arena mem;       /* of the texts */
    Node *node;      /* owned        */
    int count, room; /* nodes        */
    int *slot;       /* owned: inputs and parameters by a hash of their names,
                        number + 1 of the node, 0 for a free one         */
    int slots;       /* a power of two, or 0                            */
    int named;       /* slots in use                                    */
} Graph;

void graph_free(Graph *g);

/* Append; *out is the number of the new node. Names of inputs and of
 * parameters must be new, dims are for one sample. */
bool graph_input(Graph *g, const char *name, Dims dim, int rank,
                 const char *where, int *out);
bool graph_param(Graph *g, const char *name, Dims dim, int rank, Init init,
                 bool trained, bool decayed, const char *where, int *out);
/* in[i] = -1 for an absent operand. ERR_USAGE when the shape rule refuses. */
bool graph_op(Graph *g, const Attr *attr, const int in[MAX_IN],
              const char *name, const char *where, int *out);

/* Number of the input or parameter called `name`, or -1. */
int graph_find(const Graph *g, const char *name);

/* used[i] = node i is one of the roots or an ancestor of one. */
void graph_ancestors(const Graph *g, const int *root, int roots, bool *used);

/* A short text that two equal graphs share and two different ones do not:
 * the nodes that `root` needs, one a line, with rows, attributes that differ
 * from the defaults, operands, extents and names. graph_parse reads it back,
 * so a weights file can carry its own network: into an empty graph, which
 * after a failure holds a part of it. Starting values are not in the text. */
bool graph_print(const Graph *g, const int *root, int roots, Arena *mem,
                 char **text);
bool graph_parse(const char *text, Graph *g, int *root, int *roots,
                 int max_roots);
#endif
