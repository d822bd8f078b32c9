/* graph.h -- the graph of a network, as a recipe declares it.
 *
 * A Graph is an array of nodes in the order of their making; operands have
 * smaller numbers than the node that uses them. So there is no cycle and no
 * sorting: forward loops up, backward loops down. Extents are inferred when a
 * node is appended, for one sample (n = 1). A graph holds no values; a Plan
 * adds the batch size and addresses. Dead nodes cost nothing, since a plan
 * takes only the ancestors of its roots. */
#ifndef SEG_ENGINE_GRAPH_GRAPH_H
#define SEG_ENGINE_GRAPH_GRAPH_H
#include "engine/graph/op.h"

typedef enum NodeKind { NODE_INPUT, NODE_PARAM, NODE_OP } NodeKind;

/* Initialisation of a parameter; see InitKind for the meaning of `value`. */
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
    Attr attr;      /* NODE_OP: operator and attributes           */
    int in[MAX_IN]; /* NODE_OP: operands, -1 where absent         */
    Tensor y;       /* extents for n = 1 and rank; data NULL, F32 */
    char *name;     /* "enc1.conv1.weight"; an input's name; an operator's
                       label "enc1.conv1" or "", which may repeat    */
    char *where;    /* "scripts/brain_unet.lua:56" or ""             */
    Init init;      /* NODE_PARAM */
    bool trained;   /* NODE_PARAM: false for running statistics      */
    bool decayed;   /* NODE_PARAM: weight decay applies              */
    bool batched;   /* n of y is the batch (depends on an input)     */
} Node;

/* A zeroed Graph is empty. Nodes move when the array grows: keep their numbers,
 * not their addresses. */
typedef struct Graph {
    Arena mem;       /* of the strings */
    Node *node;      /* owned          */
    int count, room; /* nodes          */
    int *slot;       /* owned: inputs and parameters by a hash of their names,
                        1 + number of the node, 0 for a free slot       */
    int slots;       /* a power of two, or 0                            */
    int named;       /* slots in use                                    */
} Graph;

void graph_free(Graph *g);

/* Append a node; *out is its number. Names of inputs and parameters must be
 * unique; dims are for one sample. */
bool graph_input(Graph *g, const char *name, Dims dim, int rank,
                 const char *where, int *out);
bool graph_param(Graph *g, const char *name, Dims dim, int rank, Init init,
                 bool trained, bool decayed, const char *where, int *out);
/* in[i] = -1 for an absent operand. ERR_USAGE if the shape rule refuses. */
bool graph_op(Graph *g, const Attr *attr, const int in[MAX_IN],
              const char *name, const char *where, int *out);

/* Returns the number of the input or parameter `name`, or -1. */
int graph_find(const Graph *g, const char *name);

/* Sets used[i] if node i is one of the roots or an ancestor of one. */
void graph_ancestors(const Graph *g, const int *root, int roots, bool *used);

/* A canonical text: equal graphs have the same text, different graphs do not.
 * It holds the nodes that `root` needs, one per line, with operator, attributes
 * that differ from the defaults, operands, extents and names. graph_parse reads
 * it back, so a weights file can carry its own network. *g must be empty, and
 * after a failure it holds a part of the graph. The text does not contain
 * initialisations. */
bool graph_print(const Graph *g, const int *root, int roots, Arena *mem,
                 char **text);
bool graph_parse(const char *text, Graph *g, int *root, int *roots,
                 int max_roots);
#endif
