/* dump.exe FILE TYPE CODES COMMAND LINE: run it under a debug loop, and write a minidump of its death to FILE.

   TYPE is MINIDUMP_TYPE in hexadecimal. The dump is written at the second chance, that is when no handler took the
   exception; at the first chance for the codes in CODES (hexadecimal, with commas between them; "-" for none).
   It ends with the command's own exit code. Written independently of necropsy's supervisor, so that one can be held
   against the other. */
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>
#include <dbghelp.h>

static wchar_t *past_a_word(wchar_t *at) {
    int quoted = 0;
    for (; *at && (quoted || (*at != L' ' && *at != L'\t')); at++)
        if (*at == L'"') quoted = !quoted;
    while (*at == L' ' || *at == L'\t') at++;
    return at;
}

static int is_named(DWORD code, const wchar_t *codes) {
    for (wchar_t *end; *codes && *codes != L'-'; codes = *end ? end + 1 : end)
        if (code == wcstoul(codes, &end, 16)) return 1;
    return 0;
}

static int written(HANDLE process, const DEBUG_EVENT *event, const wchar_t *path, DWORD type) {
    HANDLE thread = OpenThread(THREAD_ALL_ACCESS, FALSE, event->dwThreadId);
    HANDLE file = CreateFileW(path, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    static CONTEXT context __attribute__((aligned(16)));
    context.ContextFlags = CONTEXT_ALL;
    GetThreadContext(thread, &context);
    EXCEPTION_RECORD record = event->u.Exception.ExceptionRecord;
    EXCEPTION_POINTERS pointers = {&record, &context};
    MINIDUMP_EXCEPTION_INFORMATION about = {event->dwThreadId, &pointers, FALSE};
    int done = MiniDumpWriteDump(process, event->dwProcessId, file, type, &about, NULL, NULL);
    CloseHandle(file);
    CloseHandle(thread);
    return done;
}

int wmain(int count, wchar_t **words) {
    if (count < 5) return 121;
    wchar_t *line = GetCommandLineW();
    for (int i = 0; i < 4; i++) line = past_a_word(line);
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION made;
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, DEBUG_ONLY_THIS_PROCESS, NULL, NULL, &start, &made)) return 122;
    int started = 0, done = 0;
    for (DEBUG_EVENT event;;) {
        if (!WaitForDebugEvent(&event, INFINITE)) return 123;
        DWORD answer = DBG_CONTINUE;
        if (event.dwDebugEventCode == LOAD_DLL_DEBUG_EVENT && event.u.LoadDll.hFile)
            CloseHandle(event.u.LoadDll.hFile);
        if (event.dwDebugEventCode == EXCEPTION_DEBUG_EVENT) {
            DWORD code = event.u.Exception.ExceptionRecord.ExceptionCode;
            if (code == EXCEPTION_BREAKPOINT && !started) {
                started = 1; /* the loader's own, once all that the executable imports is there */
            } else {
                answer = DBG_EXCEPTION_NOT_HANDLED;
                if (!done && (!event.u.Exception.dwFirstChance || is_named(code, words[3])))
                    done = written(made.hProcess, &event, words[1], wcstoul(words[2], NULL, 16));
            }
        }
        if (event.dwDebugEventCode == EXIT_PROCESS_DEBUG_EVENT) return (int)event.u.ExitProcess.dwExitCode;
        ContinueDebugEvent(event.dwProcessId, event.dwThreadId, answer);
    }
}
