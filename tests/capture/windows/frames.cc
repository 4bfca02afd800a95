// Functions whose frames are laid out in every way that compilers know; stepped through by the tests.
#include <stdarg.h>
#include <windows.h>
#include <xmmintrin.h>

#define ALONE extern "C" __attribute__((noinline, noipa))

volatile int sink;

ALONE int leaf(int a) { return a * 3 + sink; }
ALONE int last_call(int a) { return leaf(a + 1); }
ALONE int saves(int a, int b, int c, int d, int e, int f) {
    int one = leaf(a), two = leaf(b), three = leaf(c), four = leaf(d), five = leaf(e), six = leaf(f);
    return one + two * 2 + three * 3 + four * 5 + five * 7 + six * 11 + leaf(one ^ two ^ three ^ four ^ five ^ six);
}
ALONE int page(int a) {
    volatile char room[5000];
    room[a & 1023] = (char)a;
    return leaf(room[a & 1023]);
}
ALONE int large(int a) {
    volatile char room[150000];
    room[a & 1023] = (char)a;
    return leaf(room[a & 1023]);
}
ALONE int dynamic(int a) {
    volatile char *room = (volatile char *)__builtin_alloca((a & 63) * 200 + 16);
    room[a & 15] = (char)a;
    int first = leaf(room[a & 15]);
    volatile char more[(a & 7) * 3000 + 1];
    more[0] = (char)first;
    return leaf(more[0]) + first;
}
ALONE int varied(int count, ...) {
    va_list list;
    va_start(list, count);
    int sum = 0;
    for (int i = 0; i < count; i++) sum += leaf(va_arg(list, int));
    va_end(list);
    return sum;
}
ALONE double floats(double a, double b) {
    volatile double room[8] = {a, b, a * b, a - b};
    double one = room[0], two = room[1], three = room[2], four = room[3];
    sink = leaf((int)a);
    double five = one * two + three * four;
    sink = leaf((int)five);
    return five + one - two + three / (four + 1);
}
ALONE int early(int a) {
    if (__builtin_expect(a < 0, 0)) return -1;
    int sum = 0;
    for (int i = 0; i < (a & 3); i++) sum += saves(i, a, i, a, i, a);
    return sum;
}
ALONE int chooses(int a) {
    switch (a & 7) {
    case 0: return leaf(a);
    case 1: return leaf(a) + page(a);
    case 2: return last_call(a);
    case 3: return saves(a, a, a, a, a, a);
    case 4: return a;
    case 5: return leaf(leaf(a));
    default: return -leaf(a);
    }
}
ALONE int recursive(int a) { return a <= 0 ? leaf(0) : recursive(a - 1) + a; }
struct Guard {
    int kept;
    ~Guard() { sink = leaf(kept); }
};
ALONE int guarded(int a) {
    Guard one{a}, two{a + 1};
    return leaf(one.kept + two.kept);
}
struct Base {
    virtual int call(int a) { return leaf(a); }
    virtual ~Base() {}
};
struct Derived : Base {
    int call(int a) override { return leaf(a) + Base::call(a); }
};
ALONE int by_table(Base *one, int a) { return one->call(a); }

// Written by hand: the frame register in the middle of the frame, registers saved by moves, a pushed pair, a far save.
asm(R"(
    .text
    .globl  by_hand
    .def    by_hand; .scl 2; .type 32; .endef
    .seh_proc by_hand
by_hand:
    pushq   %rbp
    .seh_pushreg %rbp
    pushq   %r12
    .seh_pushreg %r12
    subq    $168, %rsp
    .seh_stackalloc 168
    leaq    128(%rsp), %rbp
    .seh_setframe %rbp, 128
    movq    %rbx, 24(%rbp)
    .seh_savereg %rbx, 152
    movups  %xmm6, 0(%rbp)
    .seh_savexmm %xmm6, 128
    .seh_endprologue
    movl    %ecx, %ebx
    subq    $64, %rsp
    movl    %ebx, %ecx
    call    leaf
    movl    %eax, %r12d
    addl    %ebx, %r12d
    movl    %r12d, %eax
    movups  0(%rbp), %xmm6
    movq    24(%rbp), %rbx
    leaq    40(%rbp), %rsp
    popq    %r12
    popq    %rbp
    ret
    .seh_endproc

    .globl  by_r13
    .def    by_r13; .scl 2; .type 32; .endef
    .seh_proc by_r13
by_r13:
    pushq   %r13
    .seh_pushreg %r13
    pushq   %r14
    .seh_pushreg %r14
    movl    $600000, %eax
    call    ___chkstk_ms
    subq    %rax, %rsp
    .seh_stackalloc 600000
    leaq    64(%rsp), %r13
    .seh_setframe %r13, 64
    movq    %rsi, 524288+16(%rsp)
    .seh_savereg %rsi, 524288+16
    .seh_endprologue
    movl    %ecx, %esi
    subq    $4096, %rsp
    call    leaf
    addl    %esi, %eax
    movq    524288+16-64(%r13), %rsi
    leaq    600000-64(%r13), %rsp
    popq    %r14
    popq    %r13
    jmp     leaf
    .seh_endproc

    .globl  loops_at_its_end
    .def    loops_at_its_end; .scl 2; .type 32; .endef
    .seh_proc loops_at_its_end
loops_at_its_end:
    subq    $40, %rsp
    .seh_stackalloc 40
    .seh_endprologue
    movl    $3, 32(%rsp)
    jmp     2f
1:  movl    32(%rsp), %ecx
    call    leaf
2:  decl    32(%rsp)
    jns     1b
    addq    $40, %rsp
    ret
    .seh_endproc

    .globl  interrupted
    .def    interrupted; .scl 2; .type 32; .endef
    .seh_proc interrupted
interrupted:
    pushq   %rbp
    .seh_pushreg %rbp
    subq    $48, %rsp
    .seh_stackalloc 48
    leaq    48(%rsp), %rbp
    .seh_setframe %rbp, 48
    .seh_endprologue
    movl    $7, %ecx
    movq    %rsp, %rax
    leaq    3f(%rip), %rdx
    movl    %ss, %r8d
    movl    %cs, %r9d
    pushq   %r8
    pushq   %rax
    pushfq
    andl    $0xfffffeff, (%rsp)
    pushq   %r9
    pushq   %rdx
    jmp     handler
3:  nop
    call    leaf
    addq    $48, %rsp
    popq    %rbp
    ret
    .seh_endproc

    .globl  handler
    .def    handler; .scl 2; .type 32; .endef
    .seh_proc handler
handler:
    .seh_pushframe
    pushq   %rbx
    .seh_pushreg %rbx
    subq    $32, %rsp
    .seh_stackalloc 32
    .seh_endprologue
    movl    $5, %ecx
    call    leaf
    movl    %eax, %ebx
    int3
    addq    $32, %rsp
    popq    %rbx
    iretq
    .seh_endproc
)");
extern "C" int by_hand(int);
extern "C" int by_r13(int);
extern "C" int loops_at_its_end(void);
extern "C" int interrupted(void);

int main(int count, char **) {
    Base *one = count ? new Derived : new Base;
    __debugbreak();
    for (int a = 0; a < 6; a++) sink += chooses(a);
    sink += saves(1, 2, 3, 4, 5, 6) + page(3) + large(4) + dynamic(5) + dynamic(200) + varied(4, 1, 2, 3, 4);
    sink += (int)floats(1.5, 2.5) + early(2) + early(-1) + recursive(4) + guarded(3) + by_table(one, 2);
    sink += by_hand(7) + by_r13(8) + loops_at_its_end() + interrupted();
    return 0;
}
