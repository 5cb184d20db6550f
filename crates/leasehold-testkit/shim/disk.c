/* A disk that can be full, for one process.
 *
 * Preloaded into a server. While the file $DISK_FULL_FILE exists, a write that would make a regular
 * file longer fails, as on a full disk. Bytes that a file already has can be overwritten. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full(int fd, off_t end)
{
    const char *path = getenv("DISK_FULL_FILE");
    struct stat file;
    return path && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && end > file.st_size
        && access(path, F_OK) == 0;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    if (!is_full(fd, at + (off_t)size))
        return syscall(SYS_pwrite64, fd, data, size, at);
    errno = ENOSPC;
    return -1;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    off_t end = at;
    for (int i = 0; i < count; i++)
        end += (off_t)parts[i].iov_len;
    if (!is_full(fd, end))
        return syscall(SYS_pwritev, fd, parts, (long)count, at, 0L);
    errno = ENOSPC;
    return -1;
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    if (is_full(fd, at + size))
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, size) == 0 ? 0 : errno;
}
