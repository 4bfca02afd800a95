#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char *mapped;
static long size;

long index_map(const char *path)
{
    struct stat found;
    int handle = open(path, O_RDONLY);
    if (handle < 0 || fstat(handle, &found) != 0)
        return -1;
    size = found.st_size;
    mapped = mmap(0, size, PROT_READ, MAP_SHARED, handle, 0);
    close(handle);
    return size;
}

long index_sum(void)
{
    long sum = 0;
    for (long i = 0; i < size; i += 64)
        sum += mapped[i];
    return sum;
}
