// Flags: -O1 -fstack-protector-all
#include <string.h>

__attribute__((noinline)) void fill(char *to, int n) { for (int i = 0; i < n; ++i) to[i] = 'A'; }
__attribute__((noinline)) void stack_smash(int n) { char a[16]; fill(a, n); }
