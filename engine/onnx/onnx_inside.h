/* onnx_inside.h -- what onnx.c (the file) and onnx_node.c (the operators)
 * share.
 *
 * Texts live in the arena of the Onnx. A function that wants memory and gets
 * none notes it in `failed` and returns "": the many small steps of an operator
 * need not look, the end does. */
#ifndef SEG_ENGINE_ONNX_ONNX_INSIDE_H
#define SEG_ENGINE_ONNX_ONNX_INSIDE_H
#include "engine/onnx/onnx.h"
#include "engine/onnx/protobuf.h"

/* Fields of the messages that are written, by number, from onnx.proto of
 * github.com/onnx/onnx. */
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
enum { ELEMENT_F32 = 1, ELEMENT_I64 = 7 }; /* types of elements */
enum {
    GRAPH_NODE = 1,
    GRAPH_NAME,
    GRAPH_TENSOR = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT
};

/* A tensor of the file: numbers that are known when it is written. */
typedef struct OnnxTensor {
    const char *name;
    int axes; /* 0: one number */
    int64_t shape[2 + RANK_MAX];
    bool whole;       /* int64 instead of f32                     */
    int param;        /* place in the parameters; -1: see `data`  */
    bool gates;       /* of `param`: blocks i f g o become i o f g */
    const void *data; /* as many as the shape says                */
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
    const char **value; /* by node of g: what its value is called */
    bool *inside;       /* by node of g: it is written as a part of its user */
    bool failed;
} Onnx;

/* A text for a value inside node i: its label or row, its number, and `part`
 * when that is not "". No input, parameter or output can have it: their names
 * hold no slash. */
const char *onnx_part(Onnx *o, int i, const char *part);

/* A constant of n numbers along one axis; its name. */
const char *onnx_floats(Onnx *o, const char *name, const float *v, int n);
const char *onnx_ints(Onnx *o, const char *name, const int64_t *v, int n);
/* n times the same; a number without an axis. */
const char *onnx_fill(Onnx *o, const char *name, float v, int n);
const char *onnx_scalar(Onnx *o, const char *name, float v);

/* The spatial axes that the value of a node has in the file: vectors, which
 * only parameters and what is computed of them are, are (1,C) but where an
 * operator wants (C). */
int onnx_shown(const Node *n);

/* Operand k of node i, a parameter of four gates, in the order of ONNX and with
 * an axis of one in front, as its LSTM wants it; "" with a reason when it is no
 * parameter. */
const char *onnx_gates(Onnx *o, int i, int k);

/* The value of operand k of node i as an array with `rank` spatial axes, or of
 * RANK_VECTOR; its name. Axes that are added or left out have extent 1. */
const char *onnx_operand(Onnx *o, int i, int k, int rank);
/* Value `x`, which has `from` spatial axes, with `to` of them, called `out`. */
void onnx_rank(Onnx *o, const char *x, int from, int to, const char *out);

/* Begin a node of `type`; attributes follow; then onnx_end. An input that is ""
 * is absent. */
size_t onnx_begin(Onnx *o, const char *type, const char *const *in, int inputs,
                  const char *out);
void onnx_end(Onnx *o, size_t mark);
void onnx_attr_int(Onnx *o, const char *name, int64_t v);
void onnx_attr_float(Onnx *o, const char *name, float v);
void onnx_attr_text(Onnx *o, const char *name, const char *v);
void onnx_attr_ints(Onnx *o, const char *name, const int64_t *v, int n);
/* A node without attributes on one or two values; returns `out`. */
const char *onnx_op(Onnx *o, const char *type, const char *a, const char *b,
                    const char *out);

/* In onnx_node.c: operator node i, whose value is to be called `out`. False
 * with the reason when ONNX has no form for it. */
bool onnx_operator(Onnx *o, int i, const char *out);
/* In onnx_sequence.c: rows of sequences and attention, of the table of
 * onnx_node.c; onnx_folded: node i is a linear layer of nothing but LSTMs,
 * which take it in. */
bool onnx_length(Onnx *o, int i, const char *out);
bool onnx_lstm(Onnx *o, int i, const char *out);
bool onnx_attention(Onnx *o, int i, const char *out);
bool onnx_folded(const Onnx *o, const bool *used, const int *root, int roots,
                 int i);

/* In onnx_file.c: what the Onnx holds, and `tail`, more fields of the graph, as
 * a file; its size and numbers into `facts`. */
bool onnx_write(const char *path, Onnx *o, const Proto *tail,
                const OnnxOptions *how, OnnxFacts *facts);

/* Rows that give their operand as it is in evaluation. */
bool onnx_identity(Op op);
#endif
