/* Loaded into a PostgreSQL server (LD_PRELOAD): each flush takes longer, as on a disk behind a network.
   A benchmark on a machine whose disk lies about flushes, or is very good at them, does not show what waits for one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_disk(void)
{
    const char *microseconds = getenv("SLOW_DISK_FLUSH_US");
    if (microseconds)
        usleep(atoi(microseconds));
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk();
    return real(fd);
}
