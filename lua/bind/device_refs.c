/* device_refs.c -- a list in which each knows who points to it, so that any may
 * leave without a search. */
#include "lua/bind/device_refs.h"
#include <stddef.h>

void guest_enter(Guest *g, Guest **list)
{
    g->next = *list, g->at = list;
    if (g->next) g->next->at = &g->next;
    *list = g;
}

void guest_leave(Guest *g)
{
    if (!g->at) return;
    *g->at = g->next;
    if (g->next) g->next->at = g->at;
    g->next = NULL, g->at = NULL;
}

void guests_close(Guest **list)
{
    while (*list) {
        Guest *g = *list;
        guest_leave(g);
        g->close(g);
    }
}
