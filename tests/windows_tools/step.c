/* step.exe FILE COMMAND LINE: run it instruction by instruction between two breakpoints that it has itself, and write
   what was seen before each instruction to FILE: rip, the 16 registers in the order of their numbers, how many bytes of
   the stack follow, those bytes from the stack pointer on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

static DWORD64 top; /* where the stack stood at the first breakpoint, and a little more */
static unsigned char bytes[1 << 20];

static void write_down(FILE *out, HANDLE process, const CONTEXT *at) {
    DWORD64 head[18] = {at->Rip};
    memcpy(head + 1, &at->Rax, 16 * sizeof(DWORD64));
    SIZE_T size = at->Rsp < top ? top - at->Rsp : 0;
    if (size > sizeof bytes) size = sizeof bytes;
    if (!ReadProcessMemory(process, (void *)at->Rsp, bytes, size, &size)) size = 0;
    head[17] = size;
    fwrite(head, sizeof head, 1, out);
    fwrite(bytes, 1, size, out);
}

int main(int count, char **words) {
    if (count < 3) return 121;
    FILE *out = fopen(words[1], "wb");
    STARTUPINFOA start = {.cb = sizeof start};
    PROCESS_INFORMATION made;
    char line[4096] = "";
    for (int i = 2; i < count; i++) {
        strcat(line, words[i]);
        strcat(line, " ");
    }
    if (!out || !CreateProcessA(NULL, line, NULL, NULL, TRUE, DEBUG_ONLY_THIS_PROCESS, NULL, NULL, &start, &made))
        return 122;
    static CONTEXT at __attribute__((aligned(16)));
    int loaded = 0, stepping = 0;
    for (DEBUG_EVENT event;;) {
        if (!WaitForDebugEvent(&event, INFINITE)) return 123;
        DWORD answer = DBG_CONTINUE;
        if (event.dwDebugEventCode == LOAD_DLL_DEBUG_EVENT && event.u.LoadDll.hFile)
            CloseHandle(event.u.LoadDll.hFile);
        if (event.dwDebugEventCode == EXCEPTION_DEBUG_EVENT) {
            DWORD code = event.u.Exception.ExceptionRecord.ExceptionCode;
            at.ContextFlags = CONTEXT_FULL;
            GetThreadContext(made.hThread, &at);
            if (code == EXCEPTION_BREAKPOINT && !loaded) {
                loaded = 1;
            } else if (code == EXCEPTION_BREAKPOINT) {
                stepping = !stepping;
                top = at.Rsp + 512;
            } else if (code != EXCEPTION_SINGLE_STEP) {
                answer = DBG_EXCEPTION_NOT_HANDLED;
                stepping = 0;
            }
            if (stepping) {
                write_down(out, made.hProcess, &at);
                at.EFlags |= 0x100;
                SetThreadContext(made.hThread, &at);
            }
        }
        if (event.dwDebugEventCode == EXIT_PROCESS_DEBUG_EVENT) {
            fclose(out);
            return (int)event.u.ExitProcess.dwExitCode;
        }
        ContinueDebugEvent(event.dwProcessId, event.dwThreadId, answer);
    }
}
