/* onnx.h -- exports a network and its weights to an ONNX file.
 *
 * Writes the evaluation graph of some outputs in operators of the default ONNX
 * domain, so that onnxruntime, OpenCV, TensorRT and others run it. Values are
 * f32 in the order (N,C,[D],[H],W), the user order of segengine; the batch size
 * is free. Inputs, outputs and parameters keep the names of the recipe. */
#ifndef SEG_ENGINE_ONNX_ONNX_H
#define SEG_ENGINE_ONNX_ONNX_H
#include "engine/checkpoint/safetensors.h"
#include "engine/plan/params.h"

/* Opset version: the oldest in which all operators used here have the semantics
 * needed, so that runtimes of 2021 and later accept the file. */
enum { ONNX_OPSET = 13, ONNX_IR = 7 };

typedef struct OnnxOptions {
    bool probabilities;   /* sigmoid (of one channel) or softmax (of several)
                           * after outputs that do not end in one already */
    bool any_size;        /* image extents are free, not as declared      */
    const char *version;  /* of this program                              */
    const MetaPair *pair; /* metadata of the file                         */
    int pairs;
} OnnxOptions;

/* A summary for the log. */
typedef struct OnnxFacts {
    int nodes;         /* of the file, which has more than the graph */
    int64_t numbers;   /* in its tensors                             */
    uint64_t bytes;    /* of the file                                */
    int probabilities; /* outputs that got a sigmoid or softmax      */
} OnnxFacts;

/* Writes the graph that the roots root[i], named name[i], need, with values
 * from `p`, which has all their parameters. Written as a draft, read back and
 * renamed (file.h). ERR_USAGE names a node without equivalent in ONNX and says
 * what to do; also if `any_size` is set for a network of fixed size, and for
 * files beyond 2 GiB, the limit of protocol buffers. */
bool onnx_save(const char *path, const Graph *g, const Params *p,
               const int *root, const char *const *name, int roots,
               const OnnxOptions *options, OnnxFacts *facts);

/* Does the operator have an equivalent in ONNX? Operators that are the identity
 * in evaluation do. Losses and counts do not: a prediction does not use
 * them. */
bool onnx_has(Op op);
#endif
