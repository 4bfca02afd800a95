/* An allocator that lets no access past the end of a block go unseen: preloaded by `necropsy run --guard`.
 *
 * A guarded block has a slot of its own: pages that may be used, and before and after them pages that may not. It ends
 * where the forbidden page begins (or, with the option `begin`, it begins where the first one ends), so that the first
 * access beyond faults. Where an alignment leaves bytes over, they are filled, and checked when the block is freed.
 * A freed block's pages may not be used any more, until all other slots have had their turn.
 *
 * What is not guarded is left to the C library's allocator: see policy.c. The reader of a dead process finds `guard`
 * by the symbol `necropsy_guard` and reads these structures (capture/linux/inspect/guard_records.py): both must agree.
 */
#ifndef NECROPSY_GUARD_H
#define NECROPSY_GUARD_H

#include "../kernel.h"
#ifdef __aarch64__
#include "place_aarch64.h"
#else
#include "place_x86_64.h"
#endif

enum {
    VERSION = 1,
    CLASSES = 5,
    ALLOCATION_STACK = 3072,
    FREE_STACK = 1024,
    LEAST_ALIGNMENT = 16 /* what malloc(3) promises */
};

/* Large blocks are dear if each one gets new pages: the kernel clears them. So freed ones keep theirs; once they are
 * more than this together (in bytes), the one that was freed first is used again. */
#define KEPT (128UL << 20)

enum state { NEVER_USED = 0, LIVE = 1, FREED = 2 };

enum complaint_kind { NO_COMPLAINT = 0, OVERWRITTEN_AFTER = 1, OVERWRITTEN_BEFORE = 2, FREED_TWICE = 3, NOT_A_BLOCK = 4 };

/* Where a thread was: the registers that calls keep, and the innermost bytes of its stack. The frames are found from
 * these by the reader, with the unwind tables of the libraries: no table is read while the program runs. */
struct place {
    struct registers registers;
    uint64_t thread;
    uint64_t size; /* of the piece of the stack, which follows the structure */
};

struct record {
    uint64_t address, size;
    uint32_t alignment, state;
    uint64_t pattern;
    uint64_t kept; /* bytes that a freed block has not given back to the system */
    struct place allocated;
    uint8_t allocated_stack[ALLOCATION_STACK];
    struct place freed;
    uint8_t freed_stack[FREE_STACK];
};

/* Slots of one size, side by side; `records` has one record for each. */
struct class {
    uint64_t low, slot_size, slots;
    struct record *records;
    uint64_t fresh;      /* slots that were used so far; the others come first */
    uint64_t head, tail; /* of the queue of freed slots, which only grow */
    uint32_t *queue;
    uint64_t keeps; /* freed blocks keep their memory: see KEPT */
};

/* Why the allocator ended the program. */
struct complaint {
    uint64_t kind;
    uint64_t thread;
    uint64_t record;  /* its address */
    uint64_t address; /* the first byte that was overwritten, or what was given to free */
    uint64_t bytes;   /* how many bytes were overwritten, the first to the last one */
};

struct guard_state {
    char magic[16];
    uint32_t version, size; /* of this structure, in bytes */
    uint32_t record_size, classes_count;
    uint32_t allocation_stack, free_stack; /* bytes */
    struct class classes[CLASSES];
    struct complaint complaint;
    /* Counted for the reader and for tests. */
    uint64_t guarded;  /* blocks so far */
    uint64_t live;     /* blocks now */
    uint64_t unplaced; /* blocks that should have been guarded and found no slot, no mapping or no memory */
    /* May be set by the process while it runs. */
    uint32_t armed;
    uint32_t begin;      /* blocks begin behind a forbidden page, instead of ending before one */
    uint32_t small;      /* N: one in N blocks of malloc and calloc below LARGE is guarded; 0: none */
    int32_t small_left;  /* how many more of these may be guarded; -1: no limit */
    int32_t fill;        /* the byte that new blocks are filled with; -1: they are all zero */
    uint32_t pattern;    /* the byte that the space around blocks is filled with */
    uint32_t large;      /* N: one in N larger blocks, after the first ones of a caller and size: see policy.c */
    uint32_t unused;
    /* Set when the library is loaded. */
    uint64_t most_live, most_plain;
    uint64_t plain; /* live blocks of malloc and calloc */
    uint64_t kept;  /* bytes that freed blocks have not given back */
};

EXPORT extern struct guard_state guard __asm__("necropsy_guard");

/* policy.c */
int is_wanted(size_t size, size_t alignment, const void *caller);
/* slots.c */
void prepare_slots(void);
struct record *take_slot(size_t size, struct class **of);
void give_slot_back(struct class *of, struct record *record);
struct class *class_of(const void *address);
char *slot_of(const struct class *of, const struct record *record);
struct record *record_of(const void *address, struct class **of);
/* blocks.c */
void *allocate_guarded(size_t size, size_t alignment, int zeroed);
void free_guarded(void *address, struct class *of, struct record *record);
/* snapshot.c */
void note_place(struct place *place, uint8_t *stack, size_t size);
/* complaint.c */
__attribute__((noreturn)) void complain(enum complaint_kind kind, const struct record *record, const void *address,
                                        size_t bytes);

enum { NO_ACCESS = 0, READ_WRITE = 3, PRIVATE_ANONYMOUS_NORESERVE = 0x4022, FIXED = 0x10 };

static inline int failed(long result)
{
    return result < 0 && result > -4096;
}

/* 0 as long as it is not known. */
SHARED uint64_t known_page;

/* Bytes of a page: the kernel refuses an address between two of them, even to change nothing there. */
static inline uint64_t page_size(void)
{
    uint64_t size = LEAST_PAGE == MOST_PAGE ? LEAST_PAGE : __atomic_load_n(&known_page, __ATOMIC_RELAXED);
    if (size)
        return size;
    for (size = LEAST_PAGE; size < MOST_PAGE && failed(call3(SYS_mprotect, (long)size, 0, NO_ACCESS));)
        size *= 2;
    __atomic_store_n(&known_page, size, __ATOMIC_RELAXED);
    return size;
}

/* Where the page of an address begins. */
static inline uint64_t page_of(uint64_t address)
{
    return address & ~(page_size() - 1);
}

static inline size_t pages_of(size_t size)
{
    return page_of(size + page_size() - 1);
}

#endif
