/* The relay of `--log pty`: what the command writes to our pseudoterminal or pipe is kept in the ring and passed on to fd 2.
 *
 * The same work as serve() in pty_relay.py. The bytes are read into the ring and written from there, so they are copied once.
 */
#include "ring.h"

enum {
    BATCH = 64 * 1024,
    NAP_NS = 200 * 1000,
    F_GETFL = 3,
    F_SETFL = 4,
    O_NONBLOCK = 04000,
    TARGET_GONE = 3 /* nobody reads the real stderr any more */
};

static void wait_for(int descriptor, int16_t what)
{
    struct waiting waiting = {descriptor, what, 0};
    wait_until_found(&waiting);
}

static int pass_on(const uint8_t *data, uint64_t size)
{
    while (size) {
        long done = call3(SYS_write, 2, (long)data, (long)size);
        if (done == -EAGAIN) { /* the user's terminal may be non-blocking */
            wait_for(2, POLLOUT);
        } else if (done != -EINTR) {
            if (done < 0)
                return 0;
            data += done;
            size -= (uint64_t)done;
        }
    }
    return 1;
}

/* Everything that is there. 1; 0 where the command's end is closed everywhere; -1 where the target is gone. */
static int pass_all(int ours, struct ring *ring, uint64_t size)
{
    for (;;) {
        uint64_t at = ring->total % size, room = size - at < BATCH ? size - at : BATCH;
        uint8_t *data = (uint8_t *)ring + RING_DATA + at;
        long got = call3(SYS_read, ours, (long)data, (long)room);
        if (got == -EAGAIN)
            return 1;
        if (got <= 0)
            return got == -EINTR ? 1 : 0; /* EIO: no process has the other end of the pseudoterminal */
        tell_total(ring, ring->total + (uint64_t)got);
        if (!pass_on(data, (uint64_t)got))
            return -1;
    }
}

/* Pass everything on until the command's end is closed everywhere; the exit status of the relay's process.
 * `memory`: of a shared_memory.Ring of `size` bytes. */
EXPORT int relay_serve(int ours, void *memory, uint64_t size)
{
    struct ring *ring = memory;
    const struct timespec nap = {0, NAP_NS};
    /* Our end is nobody else's: what the command has of it stays as it is. */
    call3(SYS_fcntl, ours, F_SETFL, call3(SYS_fcntl, ours, F_GETFL, 0) | O_NONBLOCK);
    for (;;) {
        wait_for(ours, POLLIN);
        ring->busy = 1;
        int more = pass_all(ours, ring, size);
        if (more < 0)
            return TARGET_GONE;
        ring->busy = 0;
        if (!more)
            return 0;
        /* Whoever writes line after line would wake us for each. What comes meanwhile is passed on in one piece. */
        call4(SYS_clock_nanosleep, 1, 0, (long)&nap, 0);
    }
}
