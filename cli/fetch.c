/* fetch.c - tools/fetch_model.py, carried along as bytes, handed to python3 on its standard input. */
#include "fetch.h"

#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const unsigned char script[] = {
#include "fetch_script.inc"
};

static bool write_all(int file, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(file, bytes, n);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return true;
}

/* python3 with the pipe as its standard input and its output on our standard error. 0, or errno. */
static int start(const char *name, const char *folder, const int ends[2], pid_t *child)
{
    char *const arguments[] = {"python3", "-", (char *)name, (char *)folder, NULL};
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed)
        return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    failed = failed ? failed : posix_spawn_file_actions_addclose(&actions, ends[0]);
    failed = failed ? failed : posix_spawn_file_actions_addclose(&actions, ends[1]);
    failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    failed = failed ? failed : posix_spawnp(child, "python3", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

bool cli_fetch_model(const char *command, const char *name, const char *folder)
{
    const char *offline = getenv("ATTN_OFFLINE");
    void (*before)(int);
    int ends[2], failed, status = 0;
    pid_t child;
    bool written;
    if (offline && *offline)
        return false;
    if (pipe(ends) != 0) {
        cli_error(command, "cannot fetch the model: %s", strerror(errno));
        return false;
    }
    failed = start(name, folder, ends, &child);
    close(ends[0]);
    if (failed) {
        close(ends[1]);
        cli_error(command, "cannot fetch the model: python3: %s", strerror(failed));
        return false;
    }
    before = signal(SIGPIPE, SIG_IGN); /* python3 may end before it has read everything */
    written = write_all(ends[1], script, sizeof script);
    close(ends[1]);
    signal(SIGPIPE, before);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return written && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
