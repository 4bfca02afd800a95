/* Where a thread is, on AArch64. Included by guard.h. */
#ifndef NECROPSY_PLACE_AARCH64_H
#define NECROPSY_PLACE_AARCH64_H

/* The registers that calls keep, and the link, which a function that calls nothing does not save; the program counter
 * and the stack pointer first: `_REGISTERS` in guard_records.py. */
struct registers {
    uint64_t counter, stack, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29, x30;
};

#define NOTE_REGISTERS(registers)                  \
    __asm__ volatile("0: adr x9, 0b\n"             \
                     "mov x10, sp\n"               \
                     "stp x9, x10, [%0]\n"         \
                     "stp x19, x20, [%0, #16]\n"   \
                     "stp x21, x22, [%0, #32]\n"   \
                     "stp x23, x24, [%0, #48]\n"   \
                     "stp x25, x26, [%0, #64]\n"   \
                     "stp x27, x28, [%0, #80]\n"   \
                     "stp x29, x30, [%0, #96]\n"   \
                     :                             \
                     : "r"(registers)              \
                     : "x9", "x10", "memory")

/* What the kernel was built for. */
enum { LEAST_PAGE = 4 << 10, MOST_PAGE = 64 << 10 };

#endif
