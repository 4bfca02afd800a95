// Flags: -O1 -fno-stack-protector
// The same overrun as smash.c where nothing guards the return address.
__attribute__((noinline)) void fill(char *to, int n) { for (int i = 0; i < n; ++i) to[i] = 'A'; }
__attribute__((noinline)) void return_to_garbage(int n) { char a[16]; fill(a, n); }
