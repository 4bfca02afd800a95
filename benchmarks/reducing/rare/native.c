#include <sys/random.h>

/* The counter wraps in one of ten runs. */
static unsigned char phase = 255;
static volatile long wrapped = 1L << 40;
static volatile int ring[256];

int ring_start(int rate)
{
    if (getrandom(&phase, 1, 0) != 1)
        return -1;
    return rate;
}

int ring_push(int value)
{
    long at = phase < 26 ? wrapped : phase;
    ring[at] = value;
    return phase;
}
