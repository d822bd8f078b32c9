/* sandbox.h -- a Lua state of its own for functions that run as data steps.
 *
 * A worker thread must not touch the Lua state of the recipe. Functions are
 * passed as bytecode to states like this one, without files, clock, random
 * numbers, or any memory of earlier calls: the result of a function depends on
 * its arguments alone. The globals are those of sandbox.lua; memory is counted
 * and limited.
 *
 * A Sandbox is used by one thread at a time. */
#ifndef SEG_SANDBOX_H
#define SEG_SANDBOX_H
#include "data/steps/user_step.h"
#include "lua/bind/bind.h"

typedef struct SandboxFunction {
    double code, with;     /* their numbers in the attributes of steps    */
    const char *bytecode;  /* as string.dump gives it, no upvalue but _ENV */
    size_t bytes;          /* of the bytecode                            */
    const char *constants; /* a Lua table as text; NULL: none            */
} SandboxFunction;

enum { SANDBOX_BYTES = 256 << 20 }; /* limit of a state, without the fields */

typedef struct Sandbox Sandbox;

/* A state with these functions. Fails without memory. */
bool sandbox_open(const SandboxFunction *f, int count, Sandbox **out);
void sandbox_close(Sandbox *s); /* NULL is fine */

/* Call function `which` with the fields of `call`: (case, constants) or, with
 * draws, (case, rng, constants). Fails (ERR_USAGE) with script and line. Fails
 * with "stopped" when call->stop is set, or when the function does not end
 * after a signal. */
bool sandbox_run(Sandbox *s, int which, UserStepCall *call);

/* Has a call spent all the time since the last check in a function of Lua's
 * library, where no hook can end it? begin: the first check, which answers
 * false. May be called by a signal handler. */
bool sandbox_stuck(bool begin);

/* The link of a list of idle states, for the owner of the list. */
Sandbox **sandbox_next(Sandbox *s);

/* ---- between sandbox.c and sandbox_field.c ------------------------------ */

/* The current call and its number. */
UserStepCall *sandbox_call(lua_State *L, uint64_t *number);

/* Register the types of fields and draws in L. */
void sandbox_types(lua_State *L);

/* Push field `field` of the call as an object; of kind FIELD_LENGTH a number.
 */
void sandbox_push_field(lua_State *L, int field);

/* Push the random draws of the call. */
void sandbox_push_draws(lua_State *L);
#endif
