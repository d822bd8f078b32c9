/* build_id.h -- the build id of the program: a hash that the linker makes of
 * its content.
 *
 * Two programs with the same build id have the same code, on the host and on
 * the GPU, so a result of one holds for the other. In libsegengine.so it is the
 * build id of the library. */
#ifndef SEG_ENGINE_BASE_BUILD_ID_H
#define SEG_ENGINE_BASE_BUILD_ID_H
#include <stdbool.h>

enum { BUILD_ID_TEXT = 129 }; /* up to 128 hex digits and a zero */

/* Writes the build id in hex digits; false with a reason if the linker gave
 * none, as may be in a program that was linked with libsegengine.a. */
bool build_id(char text[BUILD_ID_TEXT]);
#endif
