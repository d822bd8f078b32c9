/* data.h -- what the bindings of data sets share. */
#ifndef SEG_BIND_DATA_H
#define SEG_BIND_DATA_H
#include "data/dataset/dataset.h"
#include "data/image/image.h"
#include "data/label.h"
#include "lua/bind/bind.h"

/* What each FieldKind is called in Lua. */
extern const char *const field_kinds[];

/* labels, resample_mask and skip_unmatched of the table at `arg`, which all
 * sources have. */
DatasetOptions read_dataset_options(lua_State *L, int arg);

/* The text in field `key` as its place in a list of names, which are in the
 * order of an enum and end with NULL; the first one is the default. */
int read_choice(lua_State *L, int arg, const char *key,
                const char *const *names);

/* Strings of the list (or the one string) in field `key`, at most so many; they
 * live as long as the table does. Their number. */
int read_names(lua_State *L, int arg, const char *key, const char **name,
               int most);

/* The values as a list, or nothing when there were too many to be labels; how
 * many results were pushed. */
int push_values(lua_State *L, const Strangers *found);

/* Push { {key=, patient=}, ... }: what a case is called, and whose it is;
 * neither may leave the machine. Returns 1. */
int push_cases(lua_State *L, const Dataset *ds);

/* Push what was left out, { {kind=, path=, why=}, ... }. */
void push_left_out(lua_State *L, const DicomLeftOut *list, int count);

/* form, of NIfTI files. */
NiftiForm read_form(lua_State *L, int arg);

/* The option contour_tolerance of a structure set, in mm. */
double read_contour_tolerance(lua_State *L, int arg);

/* The option position_tolerance of DICOM; 0: not given. */
double read_tolerance(lua_State *L, int arg);

/* alpha, trailing, exif and page, of photographs. */
ImageOptions read_image_options(lua_State *L, int arg);
#endif
