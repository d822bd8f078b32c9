/* user_step.h -- functions of a recipe for the steps of a pipeline. */
#ifndef SEG_LUA_BIND_USER_STEP_H
#define SEG_LUA_BIND_USER_STEP_H
#include "data/steps/step.h"
#include "lua/bind/bind.h"

/* The steps in the text at `arg`, with a hook for the functions in field
 * "functions" of the options at `options`: a list of { code =, with =, bytecode
 * =, constants = }, which must contain each function that a step names. Pushes
 * the owner of the hook; steps without functions have none. Raises errors of
 * the steps and of the list. */
void read_steps(lua_State *L, int arg, int options, Steps *out);

/* Release the hook on top of the stack, and pop it: the owner of the steps
 * holds its own reference by then. */
void drop_steps(lua_State *L);

void bind_function(lua_State *L);
#endif
