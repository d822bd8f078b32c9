/* watch.c -- commands of the user that are run on events of a training, also
 * when it hangs.
 *
 * A watch is a thread that sleeps. While beat() comes in time it does nothing.
 * When beats stop, because a disk, a server or a device hangs, the thread runs
 * the command once: Lua itself cannot, as the thread of Lua is blocked. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include "lua/bind/bind.h"
#include "lua/bind/command.h"
#include <stdio.h>
#include <string.h>

static const double PATIENCE_S = 60; // time limit of the command

typedef struct Watch {
    bool open;      /* the thread runs                       */
    bool closing;   /* ... and must end                      */
    bool fired;     /* the command was started               */
    bool told;      /* ... and fired() has returned it       */
    double seconds; /* without a beat before it fires        */
    double last;    /* clock_s() of the last beat; 0: asleep */
    double idle;    /* seconds without a beat when it fired  */
    char *command;  /* owned                                 */
    char *text;     /* owned; the command's standard input   */
    size_t bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Watch;

/* A copy of n bytes with a 0 appended; NULL with a reason. */
static char *copy_text(const char *text, size_t n)
{
    char *out = mem_alloc(n + 1);
    if (out) memcpy(out, text, n);
    return out;
}

/* Runs the command without holding the lock, as it may take long. */
static void fire(Watch *w)
{
    size_t bytes = w->bytes;
    char *text = copy_text(w->text, bytes);
    w->fired = true;
    w->idle = clock_s() - w->last;
    pthread_mutex_unlock(&w->lock);
    fprintf(stderr, "segengine: no step for %.0f s\n", w->idle);
    if (!text || !command_tell(w->command, text, bytes, PATIENCE_S))
        fprintf(stderr, "segengine: on_stall: the command %s\n", err_text());
    mem_free(text);
    pthread_mutex_lock(&w->lock);
}

static void *watch_run(void *arg)
{
    Watch *w = arg;
    pthread_mutex_lock(&w->lock);

    while (!w->closing) {
        double left = w->last + w->seconds - clock_s();
        if (w->fired || w->last == 0)
            clock_wait(&w->wake, &w->lock, 3600);
        else if (left > 0)
            clock_wait(&w->wake, &w->lock, left);
        else
            fire(w);
    }

    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Also w:close(): waits for a running command. */
static int watch_gc(lua_State *L)
{
    Watch *w = luaL_checkudata(L, 1, "seg.watch");
    if (w->open) {
        pthread_mutex_lock(&w->lock);
        w->closing = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->wake);
    }

    mem_free(w->command);
    mem_free(w->text);
    *w = (Watch){0};
    return 0;
}

static Watch *check_watch(lua_State *L)
{
    Watch *w = luaL_checkudata(L, 1, "seg.watch");
    if (!w->open) raise_usage(L, "this watch is closed");
    return w;
}

/* 0, or an errno. */
static int start_thread(Watch *w)
{
    pthread_mutex_init(&w->lock, NULL);
    clock_cond(&w->wake);
    int e = thread_start(&w->thread, watch_run, w);
    if (e) pthread_mutex_destroy(&w->lock), pthread_cond_destroy(&w->wake);
    return e;
}

/* core.watch(seconds, command) -> a watch that sleeps until the first beat */
static int l_watch(lua_State *L)
{
    size_t n;
    double seconds = check_number(L, 1, "seconds");
    const char *command = luaL_checklstring(L, 2, &n);
    Watch *w = new_object(L, "seg.watch", sizeof *w);

    w->seconds = seconds;
    w->command = copy_text(command, n);
    w->text = copy_text("", 0);
    if (!w->command || !w->text) return raise_error(L);
    int e = start_thread(w);
    w->open = !e;
    if (e) {
        fail("cannot start a thread: %s", strerror(e));
        return raise_error(L);
    }
    return 1;
}

/* w:beat(text = the one before): training makes progress; `text` is the
 * command's input if no beat follows in time */
static int l_beat(lua_State *L)
{
    Watch *w = check_watch(L);
    size_t n = 0;
    char *text = NULL;

    if (!lua_isnoneornil(L, 2)) {
        const char *given = luaL_checklstring(L, 2, &n);
        text = copy_text(given, n);
        if (!text) return raise_error(L);
    }

    pthread_mutex_lock(&w->lock);
    bool asleep = w->last == 0;
    w->last = clock_s();

    if (text) {
        char *old = w->text;
        w->text = text;
        w->bytes = n;
        text = old;
    }

    if (asleep) pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    mem_free(text);
    return 0;
}

/* w:rest(): no beat is due until the next one */
static int l_rest(lua_State *L)
{
    Watch *w = check_watch(L);
    pthread_mutex_lock(&w->lock);
    w->last = 0;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

/* w:fired() -> seconds without a beat, once after the command was run; else nil
 */
static int l_fired(lua_State *L)
{
    Watch *w = check_watch(L);
    pthread_mutex_lock(&w->lock);
    bool say = w->fired && !w->told;
    double idle = w->idle;
    w->told = w->told || say;
    pthread_mutex_unlock(&w->lock);
    if (!say) return 0;
    lua_pushnumber(L, idle);
    return 1;
}

/* core.tell(command, text, seconds) -> true, or false and the reason: see
 * command.h */
static int l_tell(lua_State *L)
{
    size_t n;
    const char *command = luaL_checkstring(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    bool ok = command_tell(command, text, n, check_number(L, 3, "seconds"));
    lua_pushboolean(L, ok);
    if (ok) return 1;
    lua_pushstring(L, err_text());
    return 2;
}

void bind_watch(lua_State *L)
{
    static const luaL_Reg methods[] = {{"beat", l_beat},
                                       {"rest", l_rest},
                                       {"fired", l_fired},
                                       {"close", watch_gc},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {
        {"watch", l_watch}, {"tell", l_tell}, {NULL, NULL}};
    new_type(L, "seg.watch", methods, watch_gc);
    luaL_setfuncs(L, functions, 0);
}
