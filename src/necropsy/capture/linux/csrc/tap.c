/* The log tap's loop: each write to fd 2 that waits for an answer is copied to the ring, then let go.
 *
 * The same work as serve() in seccomp_tap.py, without Python between two writes. The memory is that of shared_memory.Ring; every field
 * is written here alone. A tap can be killed between any two lines: its successor finds in `notice` the write that has
 * not been answered, and in `number` and `begin` where its bytes belong, so it repeats the copy in the same place.
 */
#include "ring.h"

enum {
    MOST = 64 * 1024, /* of one buffer, its last bytes */
    VECTORS = 64,
    NOTICE = 1024
};

static const unsigned long RECEIVE = 0xC0502100, SEND = 0xC0182101, SET_FLAGS = 0x40082104;
enum { CONTINUE = 1, SYNC_WAKE_UP = 1 };

struct notice { /* struct seccomp_notif */
    uint64_t id;
    uint32_t tid, flags;
    int32_t call;
    uint32_t machine;
    uint64_t instruction, arguments[6];
};

struct response { /* struct seccomp_notif_resp */
    uint64_t id;
    int64_t value;
    int32_t error;
    uint32_t flags;
};

struct piece { /* struct iovec */
    uint64_t base, length;
};

static long read_memory(uint32_t tid, const struct piece *here, long many, const struct piece *there, long most)
{
    return call6(SYS_process_vm_readv, tid, (long)here, many, (long)there, most, 0);
}

/* What the write is made of, in `pieces`; how many, or less than 0 where that cannot be read. */
static long pieces_of(const struct notice *notice, struct piece *pieces)
{
    uint64_t buffer = notice->arguments[1], count = notice->arguments[2];
    long many = 1;
    if (notice->call == SYS_writev) {
        many = count < VECTORS ? (long)count : VECTORS;
        struct piece here = {(uint64_t)pieces, 16 * (uint64_t)many}, there = {buffer, 16 * (uint64_t)many};
        if (many) {
            long got = read_memory(notice->tid, &here, 1, &there, 1);
            if (got < 0)
                return got;
            many = got / 16;
        }
    } else {
        pieces[0].base = buffer;
        pieces[0].length = count;
    }
    for (long i = 0; i < many; i++)
        if (pieces[i].length > MOST) {
            pieces[i].base += pieces[i].length - MOST;
            pieces[i].length = MOST;
        }
    return many;
}

/* Leave out the beginning where all together would not fit into the ring; how many bytes are left. */
static uint64_t shorten(struct piece *pieces, long many, uint64_t size)
{
    uint64_t room = size;
    for (long i = many - 1; i >= 0; i--) {
        if (pieces[i].length > room) {
            pieces[i].base += pieces[i].length - room;
            pieces[i].length = room;
        }
        room -= pieces[i].length;
    }
    return size - room;
}

static void keep(struct ring *ring, uint64_t size, const struct notice *notice)
{
    struct piece there[VECTORS], here[2];
    if (ring->number != notice->id) {
        ring->begin = ring->total;
        ring->number = notice->id;
    }
    uint64_t begin = ring->begin;
    long many = pieces_of(notice, there);
    long got = many;
    if (many >= 0) {
        uint64_t length = shorten(there, many, size), at = begin % size;
        uint64_t first = length < size - at ? length : size - at;
        here[0].base = (uint64_t)ring + RING_DATA + at;
        here[0].length = first;
        here[1].base = (uint64_t)ring + RING_DATA;
        here[1].length = length - first;
        got = length ? read_memory(notice->tid, here, length > first ? 2 : 1, there, many) : 0;
    }
    if (got < 0)
        ring->missed++;
    else
        tell_total(ring, begin + (uint64_t)got);
    ring->last = notice->id;
}

/* Answer every write until no process with the filter is left. `ring`: the memory of a shared_memory.Ring of `size` bytes.
 * `receive_ends`: the kernel (6.11) also ends a wait for the next write when the last of these processes has ended. */
EXPORT void tap_serve(int listener, void *memory, uint64_t size, int receive_ends)
{
    struct ring *ring = memory;
    struct notice *notice = (void *)((uint8_t *)memory + NOTICE);
    /* Linux 6.6: the two wake each other on one processor, which is where the bytes are. */
    call3(SYS_ioctl, listener, (long)SET_FLAGS, SYNC_WAKE_UP);
    for (;;) {
        if (notice->id) { /* at first, what a predecessor left */
            if (ring->last != notice->id)
                keep(ring, size, notice);
            struct response response = {notice->id, 0, 0, CONTINUE};
            call3(SYS_ioctl, listener, (long)SEND, (long)&response); /* refused where the writer is gone */
        }
        clear_bytes(notice, sizeof *notice); /* the kernel insists */
        if (receive_ends && call3(SYS_ioctl, listener, (long)RECEIVE, (long)notice) == 0)
            continue;
        struct waiting waiting = {listener, POLLIN, 0};
        if (wait_until_found(&waiting) < 0)
            continue;
        if (waiting.found & POLLIN) {
            if (!receive_ends)
                call3(SYS_ioctl, listener, (long)RECEIVE, (long)notice);
        } else if (waiting.found)
            return;
    }
}
