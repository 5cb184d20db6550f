/* Shifts the wall clock of one process, and slows it down.
 *
 * Preloaded into a server. The test writes three 8-byte numbers into $CLOCK_OFFSET_FILE: the shift of CLOCK_REALTIME
 * in milliseconds, the factor by which it is slowed (0: not at all), and the time in nanoseconds from which it is slow.
 *
 * It asks the kernel directly: looking the real functions up would allocate, and the allocator of
 * the server reads the clock before it can. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *numbers;

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("CLOCK_OFFSET_FILE");
    if (!path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *page = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        numbers = page;
}

static int64_t read_ns(clockid_t clock, int *failed)
{
    struct timespec now = {0, 0};
    *failed = (int)syscall(SYS_clock_gettime, clock, &now);
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (wall && numbers) {
        if (numbers[1])
            ns = numbers[2] + (ns - numbers[2]) / numbers[1];
        ns += numbers[0] * 1000000;
    }
    return ns < 0 ? 0 : ns;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed;
    int64_t ns = read_ns(clock, &failed);
    if (failed)
        return failed;
    out->tv_sec = ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    (void)zone;
    int failed;
    int64_t ns = read_ns(CLOCK_REALTIME, &failed);
    if (failed)
        return failed;
    out->tv_sec = ns / 1000000000;
    out->tv_usec = ns % 1000000000 / 1000;
    return 0;
}

time_t time(time_t *out)
{
    int failed;
    time_t seconds = (time_t)(read_ns(CLOCK_REALTIME, &failed) / 1000000000);
    if (out)
        *out = seconds;
    return seconds;
}
