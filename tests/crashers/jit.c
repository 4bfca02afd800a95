// Flags: -O0
#include <string.h>
#include <sys/mman.h>

// Machine code that lies in no file, as a just-in-time compiler makes it: push rbp; mov rbp, rsp; mov eax, [0]; ...
void generated_code(void) {
#ifdef __aarch64__
  // stp x29, x30, [sp, -16]!; mov x29, sp; mov x0, 0; ldr w0, [x0]; ldp x29, x30, [sp], 16; ret
  static const unsigned code[] = {0xa9bf7bfd, 0x910003fd, 0xd2800000, 0xb9400000, 0xa8c17bfd, 0xd65f03c0};
#else
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x5d, 0xc3};
#endif
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  __builtin___clear_cache(page, (char *)page + sizeof code);
  ((void (*)(void))page)();
}

// A recursion in such code, with no frame pointer and no unwind table: sub rsp, 24; call itself; add rsp, 24; ret
void generated_recursion(void) {
#ifdef __aarch64__
  // str x30, [sp, -32]!; call itself; ldr x30, [sp], 32; ret
  static const unsigned code[] = {0xf81e0ffe, 0x97ffffff, 0xf84207fe, 0xd65f03c0};
#else
  static const unsigned char code[] = {0x48, 0x83, 0xec, 24, 0xe8, 0xf7, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4, 24, 0xc3};
#endif
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  __builtin___clear_cache(page, (char *)page + sizeof code);
  ((void (*)(void))page)();
}
