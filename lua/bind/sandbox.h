/* sandbox.h -- a Lua state of its own for functions that run as data steps.
 *
 * A worker thread must not touch the state of the recipe, so functions travel
 * as bytecode into states like this one: without files, clock, random numbers,
 * or anything that could remember what it was called with before. What a
 * function does is thereby a function of its arguments. Its globals are those
 * of sandbox.lua; its memory is counted and bounded.
 *
 * A Sandbox is used by one thread at a time. */
#ifndef SEG_SANDBOX_H
#define SEG_SANDBOX_H
#include "data/steps/user_step.h"
#include "lua/bind/bind.h"

typedef struct SandboxFunction {
    double code, with;     /* what steps call it                         */
    const char *bytecode;  /* as string.dump gives it, no upvalue but _ENV */
    size_t bytes;          /* of it                                      */
    const char *constants; /* a table of Lua as text; NULL: none         */
} SandboxFunction;

enum { SANDBOX_BYTES = 256 << 20 }; /* that a state may use, beside fields */

typedef struct Sandbox Sandbox;

/* A state that has these functions. Fails without memory. */
bool sandbox_open(const SandboxFunction *f, int count, Sandbox **out);
void sandbox_close(Sandbox *s); /* NULL is fine */

/* Call function `which` with the fields of `call`: (case, constants) or, with
 * draws, (case, rng, constants). Fails (ERR_USAGE) with script and line, and
 * with "stopped" when call->stop is raised or a signal came and the function
 * does not end. */
bool sandbox_run(Sandbox *s, int which, UserStepCall *call);

/* Does a call hang in a function of Lua's library, where no hook ends it, since
 * the last look? The first look begins. May be called by a signal handler. */
bool sandbox_stuck(bool begin);

/* A chain for those who keep states that nobody uses. */
Sandbox **sandbox_next(Sandbox *s);

/* ---- between sandbox.c and sandbox_field.c ------------------------------ */

/* What is called now. */
UserStepCall *sandbox_call(lua_State *L, uint64_t *number);

/* Make the types of fields and draws known to L. */
void sandbox_types(lua_State *L);

/* Field `field` of the call as an object; of kind FIELD_LENGTH its number. */
void sandbox_push_field(lua_State *L, int field);

/* The draws of the call. */
void sandbox_push_draws(lua_State *L);
#endif
