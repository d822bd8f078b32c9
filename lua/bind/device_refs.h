/* device_refs.h -- what lies on a device that it does not own.
 *
 * Lua may close or collect two objects in any order. What has memory on a
 * session's device is a guest of that session: it is told to let go before the
 * device does, and leaves the list when it goes by itself. A guest lies inside
 * of a userdata, which stays where it is; zero is a guest of nobody. */
#ifndef SEG_LUA_BIND_DEVICE_REFS_H
#define SEG_LUA_BIND_DEVICE_REFS_H

typedef struct Guest {
    void (*close)(struct Guest *g); /* lets go; may not fail              */
    struct Guest *next, **at;       /* at: who points here; NULL: nobody */
} Guest;

void guest_enter(Guest *g, Guest **list); /* of nobody until now        */
void guest_leave(Guest *g);               /* also when it is of nobody  */
void guests_close(Guest **list);          /* each leaves, then lets go  */
#endif
