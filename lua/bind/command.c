/* command.c -- a shell command with two pipes and a time limit.
 *
 * Both pipes are non-blocking. A command that stops reading is no error:
 * SIGPIPE is suppressed. The command starts with the system's default signal
 * actions, whatever the training program does with its own. It is a process
 * group of its own, so that it can be ended with all processes that it
 * started. */
#include "lua/bind/command.h"
#include "engine/base/clock.h"
#include "engine/base/err.h"
#include "lua/bind/bind.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const double STEP_S = 0.01;           // between two polls of the child
static const double GRACE_S = 2;             // from SIGTERM to SIGKILL
enum { BLOCK = 1 << 16, PRINTED = 1 << 20 }; // bytes: at once, in all

static void pause_s(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* Starts /bin/sh -c command in a process group of its own, with `in` as its
 * standard input and `out` as its standard output and error. 0, or an errno. */
static int start(const char *command, int in, int out, pid_t *child)
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
        if (!e) e = posix_spawn_file_actions_adddup2(&files, out, 1);
        if (!e) e = posix_spawn_file_actions_adddup2(&files, out, 2);
        if (!e) e = posix_spawnattr_setsigdefault(&attr, &all);
        if (!e) e = posix_spawnattr_setsigmask(&attr, &none);
        if (!e) e = posix_spawnattr_setpgroup(&attr, 0);
        if (!e)
            e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETPGROUP);
        if (!e) e = posix_spawn(child, "/bin/sh", &files, &attr, argv, environ);
        posix_spawnattr_destroy(&attr);
    }

    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* A running command: its pipes and the progress of both. */
typedef struct Talk {
    pid_t child;
    bool ended; // reaped, with `status`
    int status;
    int in, out;      // this program's ends; in: -1 once closed
    const char *text; // the part that is not written yet
    size_t bytes, printed, left_out;
} Talk;

/* Write as much of the text as the pipe accepts. */
static void feed(Talk *t)
{
    sigset_t pipe_signal, before, waiting;
    if (t->in < 0) return;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t n = t->bytes ? write(t->in, t->text, t->bytes) : 0;
    const int error = errno;
    if (n > 0) t->text += n, t->bytes -= (size_t)n;

    // a SIGPIPE of this write is consumed before the mask is restored
    sigpending(&waiting);
    if (sigismember(&waiting, SIGPIPE) && !sigismember(&before, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (t->bytes && (n >= 0 || error == EAGAIN || error == EINTR)) return;
    close(t->in); // all is written, or the command no longer reads
    t->in = -1;
}

/* Copy the new output to standard error, up to PRINTED bytes in all: a log must
 * not fill a disk. The rest is read and dropped, as a full pipe would block the
 * command. */
static void print_output(Talk *t)
{
    static const int MOST = 64; // blocks a call: the caller has other work
    char block[BLOCK];

    for (int i = 0; i < MOST; i++) {
        ssize_t n = read(t->out, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        size_t room = PRINTED - t->printed, take = (size_t)n;
        if (take > room) take = room;
        t->left_out += (size_t)n - take;
        t->printed += take;
        for (char *p = block; take;) {
            ssize_t wrote = write(2, p, take);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) break; // standard error is closed
            p += wrote, take -= (size_t)wrote;
        }
    }
}

/* Serve both pipes until the command ends, until the time `until`, or, with
 * `stop`, until it is set. */
static void attend(Talk *t, double until, const atomic_bool *stop)
{
    while (!t->ended && clock_s() < until && !(stop && atomic_load(stop))) {
        feed(t);
        print_output(t);
        const pid_t got = waitpid(t->child, &t->status, WNOHANG);
        if (got == t->child) t->ended = true;
        if (got < 0 && errno != EINTR) t->ended = true, t->status = -1;
        if (!t->ended) pause_s(STEP_S);
    }
    print_output(t);
}

/* Ends the command and all processes of its group. */
static void end(Talk *t)
{
    const double until = clock_s() + GRACE_S;
    kill(-t->child, SIGTERM);
    attend(t, until, NULL);
    // the shell may end before its children
    while (clock_s() < until && !kill(-t->child, 0)) {
        print_output(t);
        pause_s(STEP_S);
    }
    kill(-t->child, SIGKILL);
    attend(t, clock_s() + GRACE_S, NULL);
}

/* Turns the exit status of a command that was not ended here into an error. */
static bool judge(const Talk *t)
{
    if (t->status == -1) return fail("is lost");
    if (WIFSIGNALED(t->status))
        return fail("ended by signal %d", WTERMSIG(t->status));
    return WEXITSTATUS(t->status) == 0 ||
           fail("ended with code %d", WEXITSTATUS(t->status));
}

bool command_tell(const char *command, const char *text, size_t bytes,
                  double seconds)
{
    int in[2], out[2];
    Talk t = {.text = text, .bytes = bytes};
    const atomic_bool *stop = signal_stopping();

    if (atomic_load(stop)) stop = NULL; // the command is about that very signal
    const double until = clock_s() + seconds;
    if (pipe(in)) return fail("no pipe: %s", strerror(errno));
    if (pipe(out)) {
        const int error = errno;
        close(in[0]), close(in[1]);
        return fail("no pipe: %s", strerror(error));
    }

    // neither the child nor processes started meanwhile inherit these ends
    for (int i = 0; i < 2; i++) {
        fcntl(in[i], F_SETFD, FD_CLOEXEC);
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    t.in = in[1], t.out = out[0];
    const int e = start(command, in[0], out[1], &t.child);
    close(in[0]), close(out[1]);
    if (!e) attend(&t, until, stop);
    const bool over = t.ended;
    if (!e && !over) end(&t);
    if (t.in >= 0) close(t.in);
    close(t.out);
    if (t.left_out)
        fprintf(stderr,
                "\nsegengine: %zu more bytes of the output of this command are "
                "left out\n",
                t.left_out);

    if (e) return fail("cannot start a shell: %s", strerror(e));
    if (over) return judge(&t);
    if (stop && atomic_load(stop))
        return fail("was ended, because this program has to stop");
    return fail("took more than %.0f s and was ended, with its child processes",
                seconds);
}
