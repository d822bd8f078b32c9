/* device_refs.h -- what lies on a device that it does not own.
 *
 * Lua may close or collect two objects in any order. What has memory on a
 * session's device is a guest of that session: it is told to let go before the
 * device does, and leaves the list when it goes by itself. A guest lies inside
 * of a userdata, which stays where it is; zero is a guest of nobody. */
#ifndef SEG_LUA_BIND_DEVICE_REFS_H
#define SEG_LUA_BIND_DEVICE_REFS_H

typedef struct DeviceRef {
    void (*close)(struct DeviceRef *g); /* lets go; may not fail              */
    struct DeviceRef *next, **at;       /* at: who points here; NULL: nobody */
} DeviceRef;

void device_ref_enter(DeviceRef *g, DeviceRef **list); /* of nobody until now */
void device_ref_leave(DeviceRef *g);      /* also when it is of nobody  */
void device_refs_close(DeviceRef **list); /* each leaves, then lets go  */
#endif
