/* segengine_inside.h -- what the files of the embedding face share: a model,
 * and what a bundle says beside its network. */
#ifndef SEG_ENGINE_API_SEGENGINE_INSIDE_H
#define SEG_ENGINE_API_SEGENGINE_INSIDE_H
#include "data/dataset/dataset.h"
#include "data/metrics/components.h"
#include "data/steps/step.h"
#include "engine/api/segengine.h"
#include "engine/session/session.h"

// more of either than this is no network that was ever trained here
enum { MAX_OUTPUTS = 64, MAX_INPUTS = 16 };
enum { MAX_SEGMENTS = 255, BUNDLE_VERSION = 1 };

/* What is done to the voxels of one class behind the network. */
typedef struct BundleTidy {
    Tidy how;      /* but for `least` */
    double min_ml; /* 0: none         */
} BundleTidy;

/* The rows of a bundle (docs/export.md), checked. Texts live in the model. */
typedef struct Bundle {
    const char *input[MAX_INPUTS]; /* the image first */
    int inputs;
    const char *output;
    bool from_dicom; /* training read DICOM, else NIfTI */
    DatasetDicom dicom;
    DatasetNifti nifti;
    Steps steps; /* as prediction runs them */
    const char *segment[MAX_SEGMENTS];
    int segments; /* 0: called after the output */
    double threshold;
    int32_t label[MAX_LABELS]; /* files' own values of the classes */
    int labels;
    BundleTidy tidy[MAX_SEGMENTS]; /* of class i + 1 */
    int tidies;
    int batch;
    Precision precision;
    bool no_winograd;   /* trained so: SessionSpec.no_winograd */
    const char *cannot; /* why seg_predict_file does not run it, or NULL */
} Bundle;

struct seg_model {
    Arena mem; /* names of outputs, metadata, bundle */
    Graph graph;
    Session *session;
    int input[MAX_INPUTS], inputs;    /* nodes, in the order of the graph */
    int output[MAX_OUTPUTS], outputs; /* nodes, in the order of the names */
    const char *output_name[MAX_OUTPUTS];
    Bundle *bundle; /* NULL: weights and a network alone */
};

/* The text of metadata `bundle`, in `mem`; its reasons begin with "bundle:".
 * ERR_DATA for another version, for entries, steps and options that are not
 * known, and for what is missing. */
bool bundle_read(const char *text, Arena *mem, Bundle **out);
#endif
