#include <assert.h>

struct image { int width; int height; int channels; };

long checksum(const struct image *image, const unsigned char *pixels, long size)
{
    assert(image->width % 8 == 0 && "rows must be aligned");
    long sum = 0;
    for (long i = 0; i < size && i < (long)image->width * image->height * image->channels; i++)
        sum = sum * 31 + pixels[i];
    return sum;
}
