/* device_refs.h -- objects that hold memory on the device of a session.
 *
 * Lua may close or collect two objects in any order. An object with memory on
 * a session's device is in a list of that session: the session has it release
 * the memory before the device closes, and it leaves the list when it is closed
 * earlier. The DeviceRef is part of a userdata, which does not move; a zeroed
 * one is in no list. */
#ifndef SEG_LUA_BIND_DEVICE_REFS_H
#define SEG_LUA_BIND_DEVICE_REFS_H

typedef struct DeviceRef {
    void (*close)(struct DeviceRef *g); /* releases the memory; cannot fail */
    struct DeviceRef *next, **at;       /* at: the pointer to this; or NULL */
} DeviceRef;

void device_ref_enter(DeviceRef *g, DeviceRef **list); /* g is in no list */
void device_ref_leave(DeviceRef *g);      /* does nothing when in no list */
void device_refs_close(DeviceRef **list); /* each leaves, then closes     */
#endif
