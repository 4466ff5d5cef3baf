/* Ends the process at the n-th operation that changes a file, by SIGKILL; of a write the first half is done.
 *
 * For LD_PRELOAD. `fault_at(n)` begins to count (0: never ends), `fault_count()` says how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long count, last;

API void fault_at(long n) {
    count = 0;
    last = n;
}

API long fault_count(void) { return count; }

static int is_last(void) { return atomic_fetch_add(&count, 1) + 1 == last; }

static void step(void) {
    if (is_last()) kill(getpid(), SIGKILL);
}

static int is_file(int fd) {
    struct stat about;
    return !fstat(fd, &about) && S_ISREG(about.st_mode);
}

#define MODE(flags)                                                                                                    \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & O_CREAT) {                                                                                           \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
        step();                                                                                                        \
    }

API int open(const char *path, int flags, ...) {
    MODE(flags)
    return REAL(open)(path, flags, mode);
}

API int open64(const char *path, int flags, ...) {
    MODE(flags)
    return REAL(open64)(path, flags, mode);
}

API int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return REAL(openat)(at, path, flags, mode);
}

API int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return REAL(openat64)(at, path, flags, mode);
}

API ssize_t write(int fd, const void *data, size_t size) {
    if (is_file(fd) && is_last()) {
        REAL(write)(fd, data, size / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(write)(fd, data, size);
}

#define STEP(result, name, parameters, arguments)                                                                      \
    API result name parameters {                                                                                       \
        step();                                                                                                        \
        return REAL(name) arguments;                                                                                   \
    }

STEP(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
STEP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
STEP(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
STEP(int, mkdir, (const char *path, mode_t mode), (path, mode))
STEP(int, rmdir, (const char *path), (path))
STEP(int, unlink, (const char *path), (path))
STEP(int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
STEP(int, rename, (const char *old, const char *new), (old, new))
STEP(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
STEP(int, renameat2, (int from, const char *old, int to, const char *new, unsigned flags), (from, old, to, new, flags))
STEP(int, link, (const char *old, const char *new), (old, new))
STEP(int, linkat, (int from, const char *old, int to, const char *new, int flags), (from, old, to, new, flags))
STEP(int, ftruncate, (int fd, off_t size), (fd, size))
STEP(int, fsync, (int fd), (fd))
STEP(int, fdatasync, (int fd), (fd))
