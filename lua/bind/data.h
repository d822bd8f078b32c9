/* data.h -- helpers that the bindings of data sets share. */
#ifndef SEG_BIND_DATA_H
#define SEG_BIND_DATA_H
#include "data/dataset/dataset.h"
#include "data/image/image.h"
#include "data/label.h"
#include "lua/bind/bind.h"

/* The name of each FieldKind in Lua. */
extern const char *const field_kinds[];

/* labels, resample_mask and skip_unmatched of the table at `arg`: the options
 * of all sources. */
DatasetOptions read_dataset_options(lua_State *L, int arg);

/* The index in `names` of the text in field `key`. The list is in the order of
 * an enum and ends with NULL; its first name is the default. */
int read_choice(lua_State *L, int arg, const char *key,
                const char *const *names);

/* The strings of the list (or the one string) in field `key`, at most `most`;
 * they live as long as the table does. Their number. */
int read_names(lua_State *L, int arg, const char *key, const char **name,
               int most);

/* Push the label values as a list, or nothing when there were too many to be
 * labels; the number of results. */
int push_values(lua_State *L, const UndeclaredValues *found);

/* Push { {key=, patient=}, ... }, the name and the patient of each case;
 * neither may leave the machine. Returns 1. */
int push_cases(lua_State *L, const Dataset *ds);

/* Push the files that were left out, { {kind=, path=, why=}, ... }. */
void push_left_out(lua_State *L, const DicomLeftOut *list, int count);

/* The option form of NIfTI files. */
NiftiForm read_form(lua_State *L, int arg);

/* The option contour_tolerance of a structure set, in mm. */
double read_contour_tolerance(lua_State *L, int arg);

/* The option position_tolerance of DICOM; 0: not given. */
double read_tolerance(lua_State *L, int arg);

/* The options alpha, trailing, exif and page of photographs. */
ImageOptions read_image_options(lua_State *L, int arg);
#endif
