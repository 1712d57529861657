/* A disk that fails: preloaded, it makes fsync, fdatasync and pwrite fail with EIO on the files whose path begins with
 * $FAILING_PATH: always while the file $FAILING_MARK.sync (or .write) exists, once where $FAILING_MARK.sync-once (or
 * .write-once) does, which is then deleted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ours(int fd)
{
    const char *prefix = getenv("FAILING_PATH");
    char link[64], path[4096];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0 || !prefix)
        return 0;
    path[size] = 0;
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

static int fails(int fd, const char *what)
{
    char mark[4096];
    if (!getenv("FAILING_MARK") || !ours(fd))
        return 0;
    snprintf(mark, sizeof mark, "%s.%s", getenv("FAILING_MARK"), what);
    if (access(mark, F_OK) == 0) {
        errno = EIO;
        return 1;
    }
    strcat(mark, "-once");
    if (unlink(mark) == 0) {
        errno = EIO;
        return 1;
    }
    return 0;
}

#define SYNC(name)                                                  \
    int name(int fd)                                                \
    {                                                               \
        static int (*real)(int);                                    \
        if (!real)                                                  \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);           \
        return fails(fd, "sync") ? -1 : real(fd);                   \
    }

#define WRITE(name, offset)                                                              \
    ssize_t name(int fd, const void *data, size_t size, offset at)                       \
    {                                                                                    \
        static ssize_t (*real)(int, const void *, size_t, offset);                       \
        if (!real)                                                                       \
            real = (ssize_t(*)(int, const void *, size_t, offset))dlsym(RTLD_NEXT, #name); \
        return fails(fd, "write") ? -1 : real(fd, data, size, at);                       \
    }

SYNC(fsync)
SYNC(fdatasync)
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)
