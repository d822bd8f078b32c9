/* onnx.h -- a network and its weights as a file of ONNX.
 *
 * The evaluation graph of some outputs, written in the operators of ONNX's own
 * domain so that onnxruntime, OpenCV, TensorRT and others run it. Values are
 * f32 in the order (N,C,[D],[H],W), which is ours as users see it; the batch is
 * free. Names of inputs, outputs and parameters are those of the recipe. */
#ifndef SEG_ENGINE_ONNX_ONNX_H
#define SEG_ENGINE_ONNX_ONNX_H
#include "engine/checkpoint/safetensors.h"
#include "engine/plan/params.h"

/* The version of the operators: the oldest in which all that is written here
 * means what it does, so that runtimes of 2021 and later take it. */
enum { ONNX_OPSET = 13, ONNX_IR = 7 };

typedef struct OnnxOptions {
    bool probabilities;   /* sigmoid (of one channel) or softmax (of several)
                           * behind outputs that do not end in one already */
    bool any_size;        /* extents of images are free, not those declared */
    const char *version;  /* of this program                                 */
    const MetaPair *pair; /* what the file says of itself                    */
    int pairs;
} OnnxOptions;

/* What became of it, for the log. */
typedef struct OnnxFacts {
    int nodes;         /* of the file, which has more than the graph */
    int64_t numbers;   /* in its tensors                            */
    uint64_t bytes;    /* of the file                               */
    int probabilities; /* outputs that got a sigmoid or softmax    */
} OnnxFacts;

/* Write what root[i], called name[i], needs, with the values of `p`, which has
 * all their parameters. Aside, read back and renamed (file.h). ERR_USAGE names
 * the node that ONNX has no form for and says what to do; so it does when
 * `any_size` is asked of a network that takes one size only, and of files
 * beyond the 2 GiB that a protocol buffer can hold. */
bool onnx_save(const char *path, const Graph *g, const Params *p,
               const int *root, const char *const *name, int roots,
               const OnnxOptions *options, OnnxFacts *facts);

/* Has the row a form in ONNX? Rows that are the identity in evaluation have.
 * Losses and counts have none: they are no part of a prediction. */
bool onnx_has(Op op);
#endif
