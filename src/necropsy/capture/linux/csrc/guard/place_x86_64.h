/* Where a thread is, on x86-64. Included by guard.h. */
#ifndef NECROPSY_PLACE_X86_64_H
#define NECROPSY_PLACE_X86_64_H

/* The registers that calls keep, the program counter and the stack pointer first: `_REGISTERS` in guard_records.py. */
struct registers {
    uint64_t counter, stack, rbx, rbp, r12, r13, r14, r15;
};

#define NOTE_REGISTERS(registers)                 \
    __asm__ volatile("leaq 0f(%%rip), %%rax\n"    \
                     "0: movq %%rax, 0(%0)\n"     \
                     "movq %%rsp, 8(%0)\n"        \
                     "movq %%rbx, 16(%0)\n"       \
                     "movq %%rbp, 24(%0)\n"       \
                     "movq %%r12, 32(%0)\n"       \
                     "movq %%r13, 40(%0)\n"       \
                     "movq %%r14, 48(%0)\n"       \
                     "movq %%r15, 56(%0)\n"       \
                     :                            \
                     : "r"(registers)             \
                     : "rax", "memory")

enum { LEAST_PAGE = 4096, MOST_PAGE = 4096 };

#endif
