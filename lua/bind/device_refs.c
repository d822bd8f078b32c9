/* device_refs.c -- a doubly linked list: each element knows the pointer to
 * itself and leaves without a search. */
#include "lua/bind/device_refs.h"
#include <stddef.h>

void device_ref_enter(DeviceRef *g, DeviceRef **list)
{
    g->next = *list, g->at = list;
    if (g->next) g->next->at = &g->next;
    *list = g;
}

void device_ref_leave(DeviceRef *g)
{
    if (!g->at) return;
    *g->at = g->next;
    if (g->next) g->next->at = g->at;
    g->next = NULL, g->at = NULL;
}

void device_refs_close(DeviceRef **list)
{
    while (*list) {
        DeviceRef *g = *list;
        device_ref_leave(g);
        g->close(g);
    }
}
