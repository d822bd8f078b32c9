/* command.h -- runs a shell command of the user and passes it a text.
 *
 * The command gets the text on its standard input. Its output goes to the
 * standard error of this program, as standard output is for results: the first
 * MiB, as a log must not fill the disk. The command may be slow, fail, or not
 * read its input: none of that stops the caller. */
#ifndef SEG_COMMAND_H
#define SEG_COMMAND_H
#include <stdbool.h>
#include <stddef.h>

/* Run `command` by /bin/sh with these bytes on its standard input. Wait for at
 * most `seconds`, or until a signal stops this program; then end the command
 * with all processes of its group: SIGTERM, and SIGKILL 2 s later. A process
 * that the command leaves in the background when it ends keeps running, but its
 * output is lost. False with a reason when the command cannot be started, ends
 * with a code other than 0, or is ended. May be called from any thread. */
bool command_tell(const char *command, const char *text, size_t bytes,
                  double seconds);
#endif
