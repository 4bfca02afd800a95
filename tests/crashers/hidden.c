// Flags: -O1 -s
// The function that does it is static and the library is stripped: nothing on disk knows its name.
static __attribute__((noinline)) int nameless(volatile int *p) { *p = 1; return *p; }
int visible(long address) { return nameless((volatile int *)address) + 1; }
