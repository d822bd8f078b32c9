/* stall_monitor.c -- see stall_monitor.h. One lock, held only briefly; `tell`
 * is called without it, because a terminal may be slow too. */
#include "data/stall_monitor.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include <pthread.h>
#include <stdio.h>

struct StallMonitor {
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    pthread_t thread;
    bool stop;
    double patience_s;
    StallReport *tell;
    void *context;
    struct {
        const char *name; /* NULL: idle */
        double since;
    } at[MAX_PARALLEL];
};

/* Lists the threads that exceed the patience; false if none does. The caller
 * holds the lock. */
static bool find_slow(const StallMonitor *w, char *text, size_t room)
{
    const double now = clock_s();
    int at = 0;
    for (int i = 0; i < MAX_PARALLEL; i++) {
        const double for_s = now - w->at[i].since;
        if (!w->at[i].name || for_s < w->patience_s) continue;
        if ((size_t)at + 160 > room) continue;
        at += snprintf(text + at, room - (size_t)at, "%s %.100s for %.0f s",
                       at ? "," : "waiting for", w->at[i].name, for_s);
    }
    return at > 0;
}

static void *look(void *context)
{
    StallMonitor *w = context;
    char text[512];
    pthread_mutex_lock(&w->lock);

    while (!w->stop) {
        clock_wait(&w->stopped, &w->lock, w->patience_s);
        if (w->stop || !find_slow(w, text, sizeof text)) continue;
        pthread_mutex_unlock(&w->lock);
        w->tell(w->context, text);
        pthread_mutex_lock(&w->lock);
    }

    pthread_mutex_unlock(&w->lock);
    return NULL;
}

StallMonitor *stall_monitor_start(double patience_s, StallReport *tell,
                                  void *context)
{
    StallMonitor *w = tell ? mem_alloc(sizeof *w) : NULL;
    if (!w) return NULL;
    w->patience_s = patience_s, w->tell = tell, w->context = context;
    pthread_mutex_init(&w->lock, NULL);
    clock_cond(&w->stopped);
    if (!thread_start(&w->thread, look, w)) return w;
    pthread_cond_destroy(&w->stopped);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    return NULL;
}

void stall_monitor_at(StallMonitor *w, int thread, const char *name)
{
    if (!w) return;
    CHECK(thread >= 0 && thread < MAX_PARALLEL);
    pthread_mutex_lock(&w->lock);
    w->at[thread].name = name;
    w->at[thread].since = clock_s();
    pthread_mutex_unlock(&w->lock);
}

void stall_monitor_stop(StallMonitor *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->stopped);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->stopped);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}
