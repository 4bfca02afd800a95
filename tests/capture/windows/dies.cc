// Ways to die whose stacks are of every kind. `dies.exe WAY`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define ALONE extern "C" __attribute__((noinline, noipa))

volatile int sink;
int *volatile nowhere;

ALONE int deep(int level) {
    volatile char room[40];
    room[level & 31] = (char)level;
    return deep(level + 1) + room[level & 31];
}
ALONE int pong(int level);
ALONE int ping(int level) {
    volatile char room[200];
    room[0] = (char)level;
    return pong(level + 1) + room[0];
}
ALONE int pong(int level) { return ping(level + 1) + 1; }
ALONE int large(int a) {
    volatile char room[40000000];
    room[a] = (char)a;
    return room[a * 2];
}
ALONE int variable(int a) {
    volatile char room[a];
    room[0] = (char)a;
    return room[a / 2];
}
ALONE int called(void) {
    sink = 1;
    int result = ((int (*)(void))0x1230)();
    return result + sink;
}
ALONE int read_null(int a) { return *nowhere + a; }
ALONE int level_2(int a) {
    volatile char room[300];
    room[a] = 1;
    return read_null(a) + room[a];
}
ALONE int level_1(int a) { return level_2(a + 1) + 1; }
LONG CALLBACK handler(EXCEPTION_POINTERS *about) {
    if (about->ExceptionRecord->ExceptionCode == EXCEPTION_ACCESS_VIOLATION) __asm__("movl $7, %ecx\n\tint $0x29");
    return EXCEPTION_CONTINUE_SEARCH;
}
DWORD WINAPI in_thread(void *) { return (DWORD)(level_1(2) + sink); }
DWORD WINAPI sleeps(void *begun) {
    SetEvent(begun);
    Sleep(INFINITE);
    return 0;
}

int main(int count, char **words) {
    const char *way = count > 1 ? words[1] : "";
    if (!strcmp(way, "deep")) return deep(1) + sink;
    if (!strcmp(way, "ping")) return ping(1) + sink;
    if (!strcmp(way, "large")) return large(5) + sink;
    if (!strcmp(way, "variable")) return variable(atoi("50000000")) + sink;
    if (!strcmp(way, "called")) return called() + sink;
    if (!strcmp(way, "null")) return level_1(2) + sink;
    if (!strcmp(way, "handled")) {
        AddVectoredExceptionHandler(1, handler);
        return level_1(2) + sink;
    }
    if (!strcmp(way, "thread")) {
        HANDLE begun = CreateEventA(NULL, TRUE, FALSE, NULL);
        CreateThread(NULL, 0, sleeps, begun, 0, NULL);
        WaitForSingleObject(begun, INFINITE);
        WaitForSingleObject(CreateThread(NULL, 0, in_thread, NULL, 0, NULL), INFINITE);
    }
    return 0;
}
