/* segengine_inside.h -- shared by the files of the C API: a model, and the
 * contents of a bundle apart from its network. */
#ifndef SEG_ENGINE_API_SEGENGINE_INSIDE_H
#define SEG_ENGINE_API_SEGENGINE_INSIDE_H
#include "data/dataset/dataset.h"
#include "data/metrics/components.h"
#include "data/steps/step.h"
#include "engine/api/segengine.h"
#include "engine/session/session.h"

// no network trained by this program has more of either
enum { MAX_OUTPUTS = 64, MAX_INPUTS = 16 };
enum { MAX_SEGMENTS = 255, BUNDLE_VERSION = 1 };

/* Postprocessing of the voxels of one class. */
typedef struct BundleTidy {
    Tidy how;      /* except `least` */
    double min_ml; /* 0: none        */
} BundleTidy;

/* The entries of a bundle (docs/export.md), checked. Strings live in the
 * model. */
typedef struct Bundle {
    const char *input[MAX_INPUTS]; /* the image first */
    int inputs;
    const char *output;
    bool from_dicom; /* training read DICOM, else NIfTI */
    DatasetDicom dicom;
    DatasetNifti nifti;
    Steps steps; /* for prediction */
    const char *segment[MAX_SEGMENTS];
    int segments; /* 0: the output has no segment names */
    double threshold;
    int32_t label[MAX_LABELS]; /* values of the classes in files */
    int labels;
    BundleTidy tidy[MAX_SEGMENTS]; /* of class i + 1 */
    int tidies;
    int batch;
    Precision precision;
    bool no_winograd;   /* trained with this SessionSpec.no_winograd         */
    const char *cannot; /* why seg_predict_file does not support it, or NULL */
} Bundle;

struct seg_model {
    Arena mem; /* names of outputs, metadata, bundle */
    Graph graph;
    Session *session;
    int input[MAX_INPUTS], inputs;    /* nodes, in the order of the graph */
    int output[MAX_OUTPUTS], outputs; /* nodes, in the order of the names */
    const char *output_name[MAX_OUTPUTS];
    Bundle *bundle; /* NULL: weights and a network only */
};

/* Parses the text of metadata `bundle` into `mem`; its reasons begin with
 * "bundle:". ERR_DATA for another version, for unknown entries, steps and
 * options, and for missing ones. */
bool bundle_read(const char *text, Arena *mem, Bundle **out);
#endif
