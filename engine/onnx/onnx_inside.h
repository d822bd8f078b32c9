/* onnx_inside.h -- shared by onnx.c (the graph), onnx_node.c,
 * onnx_sequence.c and onnx_shape.c (the operators) and onnx_file.c (the file).
 *
 * Strings live in the arena of the Onnx. A function that gets no memory sets
 * `failed` and returns "": the many small steps of an operator need no checks,
 * the end has one. */
#ifndef SEG_ENGINE_ONNX_ONNX_INSIDE_H
#define SEG_ENGINE_ONNX_ONNX_INSIDE_H
#include "engine/onnx/onnx.h"
#include "engine/onnx/protobuf.h"

/* Field numbers of the messages, from onnx.proto of github.com/onnx/onnx. */
enum {
    ONNX_NODE_INPUT = 1,
    ONNX_NODE_OUTPUT,
    ONNX_NODE_NAME,
    ONNX_NODE_TYPE,
    ONNX_NODE_ATTRIBUTE
};
enum {
    ATTR_NAME = 1,
    ATTR_FLOAT,
    ATTR_INT,
    ATTR_TEXT,
    ATTR_INTS = 8,
    ATTR_KIND = 20
};
enum {
    GRAPH_NODE = 1,
    GRAPH_NAME,
    GRAPH_TENSOR = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT
};

/* Element types of tensors. */
enum { ELEMENT_F32 = 1, ELEMENT_I32 = 6, ELEMENT_I64 = 7, ELEMENT_BOOL = 9 };

/* An initializer of the file: a constant or a parameter. */
typedef struct OnnxTensor {
    const char *name;
    int axes; /* 0: one number */
    int64_t shape[2 + RANK_MAX];
    bool whole;       /* int64 instead of f32                      */
    int param;        /* index of the parameter; -1: see `data`    */
    bool gates;       /* of `param`: blocks i f g o become i o f g */
    const void *data; /* as many as the shape says                 */
} OnnxTensor;

typedef struct Onnx {
    const Graph *g;
    const Params *params;
    bool any_size;
    Arena mem;
    Proto node; /* all nodes so far, as fields of a graph */
    int nodes;
    OnnxTensor *tensor; /* owned */
    int tensors, room;
    const char **value; /* by node of g: name of its value             */
    bool *inside;       /* by node of g: written as a part of its user */
    bool failed;
} Onnx;

/* Returns a name for a value inside node i: its label or operator, its number,
 * and `part` if that is not "". It contains a slash, so it differs from all
 * names of inputs, parameters and outputs. */
const char *onnx_part(Onnx *o, int i, const char *part);

/* Returns the name "base/part". */
const char *onnx_join(Onnx *o, const char *base, const char *part);

/* Add a constant of n numbers along one axis; return its name. */
const char *onnx_floats(Onnx *o, const char *name, const float *v, int n);
const char *onnx_ints(Onnx *o, const char *name, const int64_t *v, int n);
/* Add n copies of v along one axis; and a number without an axis. */
const char *onnx_fill(Onnx *o, const char *name, float v, int n);
const char *onnx_scalar(Onnx *o, const char *name, float v);

/* Returns the number of spatial axes that the value of a node has in the file.
 * Vectors (parameters and values computed from parameters only) are (1,C),
 * except where an operator requires (C). */
int onnx_shown(const Node *n);

/* Returns operand k of node i, a parameter of four gates, in the gate order of
 * ONNX and with a leading axis of 1, as its LSTM requires; "" with a reason if
 * it is not a parameter. */
const char *onnx_gates(Onnx *o, int i, int k);

/* Returns the name of operand k of node i, converted to `rank` spatial axes or
 * to RANK_VECTOR. Axes that are added or removed have extent 1. */
const char *onnx_operand(Onnx *o, int i, int k, int rank);
/* Converts value `x` from `from` spatial axes to `to`, named `out`. */
void onnx_rank(Onnx *o, const char *x, int from, int to, const char *out);

/* Begins a node of `type`; attributes follow, then onnx_end. An input "" is
 * absent. */
size_t onnx_begin(Onnx *o, const char *type, const char *const *in, int inputs,
                  const char *out);
void onnx_end(Onnx *o, size_t mark);
void onnx_attr_int(Onnx *o, const char *name, int64_t v);
void onnx_attr_float(Onnx *o, const char *name, float v);
void onnx_attr_text(Onnx *o, const char *name, const char *v);
void onnx_attr_ints(Onnx *o, const char *name, const int64_t *v, int n);
/* Adds a node without attributes on one or two values; returns `out`. */
const char *onnx_op(Onnx *o, const char *type, const char *a, const char *b,
                    const char *out);

/* Adds a Transpose, whose axis k is axis perm[k] of x; returns `out`. */
const char *onnx_transpose(Onnx *o, const char *x, const int64_t *perm,
                           int axes, const char *out);

/* Adds a Cast to an element type; returns `out`. */
const char *onnx_cast(Onnx *o, const char *x, int type, const char *out);

/* In onnx_node.c: writes operator node i; its value gets the name `out`. False
 * with a reason if ONNX has no equivalent. */
bool onnx_operator(Onnx *o, int i, const char *out);
/* In onnx_sequence.c: operators of sequences and attention, for the table of
 * onnx_node.c. onnx_folded: node i is a linear layer used only by LSTMs, and
 * becomes their input weights. */
bool onnx_length(Onnx *o, int i, const char *out);
bool onnx_lstm(Onnx *o, int i, const char *out);
bool onnx_attention(Onnx *o, int i, const char *out);
bool onnx_folded(const Onnx *o, const bool *used, const int *root, int roots,
                 int i);

/* In onnx_shape.c: operators that move elements, and products of matrices. */
bool onnx_reshape(Onnx *o, int i, const char *out);
bool onnx_permute(Onnx *o, int i, const char *out);
bool onnx_flip(Onnx *o, int i, const char *out);
bool onnx_roll(Onnx *o, int i, const char *out);
bool onnx_repeats(Onnx *o, int i, const char *out);
bool onnx_cumsum(Onnx *o, int i, const char *out);
bool onnx_matmul(Onnx *o, int i, const char *out);
/* In onnx_indices.c, for the same table. */
bool onnx_argsort(Onnx *o, int i, const char *out);
bool onnx_gather(Onnx *o, int i, const char *out);
bool onnx_argmax(Onnx *o, int i, const char *out);
bool onnx_one_hot(Onnx *o, int i, const char *out);
bool onnx_embedding(Onnx *o, int i, const char *out);
bool onnx_random(Onnx *o, int i, const char *out);

/* In onnx_file.c: writes the Onnx and `tail`, further fields of the graph, as a
 * file; stores size and numbers in `facts`. */
bool onnx_write(const char *path, Onnx *o, const Proto *tail,
                const OnnxOptions *how, OnnxFacts *facts);

/* Operators that return their operand unchanged in evaluation. */
bool onnx_identity(Op op);
#endif
