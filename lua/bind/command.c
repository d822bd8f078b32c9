/* command.c -- a shell, a pipe, and a limit to patience.
 *
 * The pipe is written without waiting and a reader that has gone away is no
 * signal: what the command does with the text is its own affair. Its signals
 * are the system's defaults, whatever the training program does with its own.
 */
#include "bind/command.h"
#include "clock.h"
#include "err.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const double STEP_S = 0.01; // between two looks at the child

static void pause_s(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* /bin/sh -c command with `in` as its standard input. 0, or an errno. */
static int start(const char *command, int in, pid_t *child)
{
    static char shell[] = "sh", option[] = "-c";
    char *argv[] = {shell, option, (char *)command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int e = posix_spawn_file_actions_init(&files);
    if (e) return e;
    e = posix_spawnattr_init(&attr);
    if (!e) {
        e = posix_spawn_file_actions_adddup2(&files, in, 0);
        if (!e) e = posix_spawn_file_actions_adddup2(&files, 2, 1);
        if (!e) e = posix_spawnattr_setsigdefault(&attr, &all);
        if (!e) e = posix_spawnattr_setsigmask(&attr, &none);
        if (!e)
            e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETSIGMASK);
        if (!e) e = posix_spawn(child, "/bin/sh", &files, &attr, argv, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* The text into the pipe, as far as it is read until then. */
static void feed(int out, const char *text, size_t bytes, double until)
{
    sigset_t pipe_signal, before, waiting;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    while (bytes && clock_s() < until) {
        ssize_t n = write(out, text, bytes);
        if (n > 0) {
            text += n, bytes -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            pause_s(STEP_S);
        } else if (errno != EINTR) {
            break; // it has read enough
        }
    }
    // one that came meanwhile is ours; it must not come when it is let through
    sigpending(&waiting);
    if (sigismember(&waiting, SIGPIPE) && !sigismember(&before, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool command_tell(const char *command, const char *text, size_t bytes,
                  double seconds)
{
    int end[2], status = 0;
    pid_t child, got = 0;
    const double until = clock_s() + seconds;
    if (pipe(end)) return fail("no pipe: %s", strerror(errno));
    // neither the child nor others that start meanwhile hold our end
    for (int i = 0; i < 2; i++) fcntl(end[i], F_SETFD, FD_CLOEXEC);
    fcntl(end[1], F_SETFL, O_NONBLOCK);
    int e = start(command, end[0], &child);
    close(end[0]);
    if (!e) feed(end[1], text, bytes, until);
    close(end[1]);
    if (e) return fail("cannot start a shell: %s", strerror(e));
    while (!got && clock_s() < until) {
        got = waitpid(child, &status, WNOHANG);
        if (got < 0 && errno == EINTR) got = 0;
        if (!got) pause_s(STEP_S);
    }
    if (!got) return fail("still runs after %.0f s, and goes on", seconds);
    if (got < 0) return fail("is lost: %s", strerror(errno));
    if (WIFSIGNALED(status))
        return fail("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ||
           fail("ended with code %d", WEXITSTATUS(status));
}
