/* A recorder below a process: notes what the process does to the files below one folder, in the order in which it is done.
 *
 * Compiled and preloaded (LD_PRELOAD) by recorder.rs; read by journal.rs. The environment says what to do:
 *   GUIRA_RECORDER_FOLDER    the folder, as the process will name it: absolute
 *   GUIRA_RECORDER_JOURNAL   where it is noted: a file outside the folder, appended to
 *   GUIRA_RECORDER_FAULT     a file that may appear at any time, with "OPERATION ERRNO SUFFIX": the next sync, or write, of a file
 *                            whose path ends so fails, and the file is removed
 *   GUIRA_RECORDER_CLOCK_S   seconds that the wall clock is set forward, or back
 *
 * Always true: an operation is in the journal when its caller goes on, and two that do not overlap stand in the order in which they
 * were called; a sync stands there twice, before and after. A sync is not carried out: what it promises is for the reader
 * to say. It takes a while, so that others come meanwhile, as they do while a disk works.
 *
 * A record: kind u32 | file descriptor i32 | two numbers i64 | length u32 | bytes; of this machine's byte order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { BEGIN, OPEN, CLOSE, WRITE, SET_LEN, ALLOCATE, RENAME, LINK, REMOVE, MAKE_FOLDER, SYNC_BEGINS, SYNCED, SYNC_FAILED };

#define DESCRIPTORS_MAX 65536
#define SYNC_TAKES_NS 200000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Whose files lie below the folder. */
static unsigned char recorded[DESCRIPTORS_MAX];
static const char *folder, *fault;
static size_t folder_len;
static int journal = -1;
static int64_t syncs, clock_s;
static int (*system_clock)(clockid_t, struct timespec *);

static void give_up(const char *why) {
    dprintf(2, "recorder: %s (%s)\n", why, strerror(errno));
    abort();
}

/* The caller holds the lock. */
static void note(uint32_t kind, int fd, int64_t first, int64_t second, const void *bytes, size_t len, const void *more, size_t more_len) {
    struct __attribute__((packed)) { uint32_t kind; int32_t fd; int64_t first, second; uint32_t len; } head = {
        kind, fd, first, second, (uint32_t)(len + more_len) };
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)bytes, len}, {(void *)more, more_len}};
    if (syscall(SYS_writev, journal, parts, 3) != (long)(sizeof head + len + more_len)) give_up("the journal cannot be written");
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("GUIRA_RECORDER_JOURNAL"), *offset = getenv("GUIRA_RECORDER_CLOCK_S");
    system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    clock_s = offset ? atoll(offset) : 0;
    folder = getenv("GUIRA_RECORDER_FOLDER");
    fault = getenv("GUIRA_RECORDER_FAULT");
    if (!folder || !path) { folder = NULL; return; }
    folder_len = strlen(folder);
    journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0) give_up("the journal cannot be opened");
    note(BEGIN, -1, 0, 0, NULL, 0, NULL, 0);
}

/* The absolute path of what is named; whether it is the folder or below it. */
static int is_below(int at, const char *path, char *full) {
    if (!folder) return 0;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX];
        if (at == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t len = readlink(link, base, sizeof base - 1);
            if (len < 0) return 0;
            base[len] = 0;
        }
        if (strlen(base) + strlen(path) + 2 > PATH_MAX) return 0;
        strcpy(full, base);
        strcat(full, "/");
        strcat(full, path);
    }
    return strncmp(full, folder, folder_len) == 0 && (full[folder_len] == '/' || full[folder_len] == 0);
}

static int is_recorded(int fd) {
    return fd >= 0 && fd < DESCRIPTORS_MAX && __atomic_load_n(&recorded[fd], __ATOMIC_RELAXED);
}

/* Whether this operation is to fail now; then errno says how. */
static int fails(const char *operation, int fd) {
    char text[256], name[16], suffix[200] = "", link[64], path[PATH_MAX];
    int code = 0;
    if (!fault) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, fault, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return 0;
    ssize_t len = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (len <= 0) return 0;
    text[len] = 0;
    if (sscanf(text, "%15s %d %199s", name, &code, suffix) < 2 || strcmp(name, operation) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    len = readlink(link, path, sizeof path - 1);
    if (len < (ssize_t)strlen(suffix)) return 0;
    path[len] = 0;
    if (strcmp(path + len - strlen(suffix), suffix) != 0) return 0;
    /* Only one: whoever removes it. */
    if (syscall(SYS_unlinkat, AT_FDCWD, fault, 0) != 0) return 0;
    errno = code;
    return 1;
}

static int open_at(int at, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    if (!is_below(at, path, full)) return syscall(SYS_openat, at, path, flags, mode);
    if (flags & (O_DSYNC | O_DIRECT)) give_up("O_SYNC, O_DSYNC and O_DIRECT are not modelled");
    pthread_mutex_lock(&lock);
    int fd = syscall(SYS_openat, at, path, flags, mode);
    int error = errno;
    if (fd >= DESCRIPTORS_MAX) give_up("too many files");
    if (fd >= 0) {
        int64_t does = (flags & O_CREAT ? 1 : 0) | (flags & O_TRUNC ? 2 : 0);
        note(OPEN, fd, does, 0, full, strlen(full), NULL, 0);
        __atomic_store_n(&recorded[fd], 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

static mode_t mode_in(int flags, va_list arguments) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define OPENS(name)                                     \
    int name(const char *path, int flags, ...) {        \
        va_list arguments;                              \
        va_start(arguments, flags);                     \
        mode_t mode = mode_in(flags, arguments);        \
        va_end(arguments);                              \
        return open_at(AT_FDCWD, path, flags, mode);    \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name)                                      \
    int name(int at, const char *path, int flags, ...) {    \
        va_list arguments;                                  \
        va_start(arguments, flags);                         \
        mode_t mode = mode_in(flags, arguments);            \
        va_end(arguments);                                  \
        return open_at(at, path, flags, mode);              \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    if (!is_recorded(fd)) return syscall(SYS_close, fd);
    pthread_mutex_lock(&lock);
    __atomic_store_n(&recorded[fd], 0, __ATOMIC_RELAXED);
    int closed = syscall(SYS_close, fd);
    int error = errno;
    note(CLOSE, fd, 0, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return closed;
}

/* Carries out a write and notes what was written: `at` is -1 where the file's own position says where. */
static ssize_t write_at(int fd, const struct iovec *parts, int count, off_t at) {
    if (fails("write", fd)) return -1;
    pthread_mutex_lock(&lock);
    ssize_t written = at < 0 ? syscall(SYS_writev, fd, parts, count)
                             : syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
    int error = errno;
    off_t end = at < 0 ? syscall(SYS_lseek, fd, 0L, SEEK_CUR) : at + written;
    size_t left = written < 0 ? 0 : written;
    off_t to = end - written;
    for (int part = 0; part < count && left > 0; part++) {
        size_t len = parts[part].iov_len < left ? parts[part].iov_len : left;
        if (len > 0) note(WRITE, fd, to, 0, parts[part].iov_base, len, NULL, 0);
        to += len;
        left -= len;
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    if (!is_recorded(fd)) return syscall(SYS_write, fd, bytes, len);
    struct iovec part = {(void *)bytes, len};
    return write_at(fd, &part, 1, -1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_recorded(fd) ? write_at(fd, parts, count, -1) : syscall(SYS_writev, fd, parts, count);
}

static ssize_t pwrite_at(int fd, const void *bytes, size_t len, off_t at) {
    if (!is_recorded(fd)) return syscall(SYS_pwrite64, fd, bytes, len, at);
    struct iovec part = {(void *)bytes, len};
    return write_at(fd, &part, 1, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) { return pwrite_at(fd, bytes, len, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) { return pwrite_at(fd, bytes, len, at); }

static ssize_t pwritev_at(int fd, const struct iovec *parts, int count, off_t at) {
    return is_recorded(fd) ? write_at(fd, parts, count, at) : syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev_at(fd, parts, count, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return pwritev_at(fd, parts, count, at); }

/* Without these, who copies reads and writes. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags) {
    if (!is_recorded(to)) return syscall(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
    errno = EXDEV;
    return -1;
}

static ssize_t send_file(int to, int from, off_t *at, size_t len) {
    if (!is_recorded(to)) return syscall(SYS_sendfile, to, from, at, len);
    errno = EINVAL;
    return -1;
}
ssize_t sendfile(int to, int from, off_t *at, size_t len) { return send_file(to, from, at, len); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t len) { return send_file(to, from, at, len); }

ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags) {
    if (!is_recorded(to)) return syscall(SYS_splice, from, from_at, to, to_at, len, flags);
    errno = EINVAL;
    return -1;
}

static int set_len(int fd, off_t len) {
    if (!is_recorded(fd)) return syscall(SYS_ftruncate, fd, len);
    pthread_mutex_lock(&lock);
    int set = syscall(SYS_ftruncate, fd, len);
    int error = errno;
    if (set == 0) note(SET_LEN, fd, len, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return set;
}
int ftruncate(int fd, off_t len) { return set_len(fd, len); }
int ftruncate64(int fd, off64_t len) { return set_len(fd, len); }

static int allocate(int fd, int mode, off_t at, off_t len) {
    if (!is_recorded(fd)) return syscall(SYS_fallocate, fd, mode, at, len);
    if (mode & ~FALLOC_FL_KEEP_SIZE) give_up("such a fallocate is not modelled");
    pthread_mutex_lock(&lock);
    int allocated = syscall(SYS_fallocate, fd, mode, at, len);
    int error = errno;
    if (allocated == 0 && !(mode & FALLOC_FL_KEEP_SIZE)) note(ALLOCATE, fd, at + len, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return allocated;
}
int fallocate(int fd, int mode, off_t at, off_t len) { return allocate(fd, mode, at, len); }
int fallocate64(int fd, int mode, off64_t at, off64_t len) { return allocate(fd, mode, at, len); }
int posix_fallocate(int fd, off_t at, off_t len) { return allocate(fd, 0, at, len) == 0 ? 0 : errno; }
int posix_fallocate64(int fd, off64_t at, off64_t len) { return allocate(fd, 0, at, len) == 0 ? 0 : errno; }

static int sync_file(int fd, long number) {
    if (!is_recorded(fd)) return syscall(number, fd);
    pthread_mutex_lock(&lock);
    int64_t sync = syncs++;
    note(SYNC_BEGINS, fd, sync, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    struct timespec takes = {0, SYNC_TAKES_NS};
    nanosleep(&takes, NULL);
    int failed = fails("sync", fd), error = errno;
    pthread_mutex_lock(&lock);
    note(failed ? SYNC_FAILED : SYNCED, fd, sync, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return failed ? -1 : 0;
}
int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
/* Promises nothing, not even that the disk has it. */
int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags) {
    return is_recorded(fd) ? 0 : syscall(SYS_sync_file_range, fd, at, len, flags);
}

/* Two names, of which both lie below the folder or none. */
static int both(uint32_t kind, int from_at, const char *from, int to_at, const char *to, int flags) {
    char from_full[PATH_MAX], to_full[PATH_MAX];
    int from_below = is_below(from_at, from, from_full), to_below = is_below(to_at, to, to_full);
    long number = kind == RENAME ? SYS_renameat2 : SYS_linkat;
    if (!from_below && !to_below) return syscall(number, from_at, from, to_at, to, flags);
    if (from_below != to_below || (kind == RENAME && flags & ~RENAME_NOREPLACE)) give_up("such a rename or link is not modelled");
    pthread_mutex_lock(&lock);
    int done = syscall(number, from_at, from, to_at, to, flags);
    int error = errno;
    if (done == 0) note(kind, -1, strlen(from_full), 0, from_full, strlen(from_full), to_full, strlen(to_full));
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int rename(const char *from, const char *to) { return both(RENAME, AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return both(RENAME, from_at, from, to_at, to, 0); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    return both(RENAME, from_at, from, to_at, to, flags);
}
int link(const char *from, const char *to) { return both(LINK, AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    return both(LINK, from_at, from, to_at, to, flags);
}

static int remove_at(int at, const char *path, int flags) {
    char full[PATH_MAX];
    if (!is_below(at, path, full)) return syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&lock);
    int removed = syscall(SYS_unlinkat, at, path, flags);
    int error = errno;
    if (removed == 0) note(REMOVE, -1, 0, 0, full, strlen(full), NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return removed;
}
int unlink(const char *path) { return remove_at(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return remove_at(at, path, flags); }
int rmdir(const char *path) { return remove_at(AT_FDCWD, path, AT_REMOVEDIR); }

static int make_folder(int at, const char *path, mode_t mode) {
    char full[PATH_MAX];
    if (!is_below(at, path, full)) return syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&lock);
    int made = syscall(SYS_mkdirat, at, path, mode);
    int error = errno;
    if (made == 0) note(MAKE_FOLDER, -1, 0, 0, full, strlen(full), NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return made;
}
int mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return make_folder(at, path, mode); }

/* The wall clock, as it was set. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int told = system_clock ? system_clock(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (told == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += clock_s;
    return told;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
