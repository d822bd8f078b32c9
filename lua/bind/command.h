/* command.h -- a command of the user's that is told something.
 *
 * It runs in a shell, gets a text on its standard input, and what it prints
 * goes to ours of errors, as standard output is for results: the first MiB of
 * it, as a log must not fill the disk. It may be slow, fail, or not read: none
 * of that stops who told it. */
#ifndef SEG_COMMAND_H
#define SEG_COMMAND_H
#include <stdbool.h>
#include <stddef.h>

/* Run `command` by /bin/sh with these bytes on its standard input and wait for
 * it for at most `seconds`, or until this program is told to stop; what takes
 * longer is ended, with all processes of its group: SIGTERM, and SIGKILL 2 s
 * later. What it leaves in the background and ends before goes on, but can
 * print no more. False with a reason when it cannot be started, ends with
 * another code than 0, or is ended. May be called from any thread. */
bool command_tell(const char *command, const char *text, size_t bytes,
                  double seconds);
#endif
