/* user_step.h -- functions of a recipe for the steps of a pipeline. */
#ifndef SEG_LUA_BIND_USER_STEP_H
#define SEG_LUA_BIND_USER_STEP_H
#include "data/steps/step.h"
#include "lua/bind/bind.h"

/* The steps in the text at `arg`, with a hook for the functions in field
 * "functions" of the options at `options`: a list of { code =, with =, bytecode
 * =, constants = }, in which each that a step names must be. Pushes what owns
 * the hook; steps without functions have none. Raises what is wrong. */
void read_steps(lua_State *L, int arg, int options, Steps *out);

/* Give the hook on top of the stack back, and pop it: who holds the steps has
 * held it by now. */
void drop_steps(lua_State *L);

void bind_function(lua_State *L);
#endif
