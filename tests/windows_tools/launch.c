/* launch.exe RESULT MILLISECONDS COMMAND LINE: run it, and write its whole exit code to the file RESULT.

   Outside of wine only the low byte of an exit code is seen; GetExitCodeProcess gives all 32 bits. Past the time limit
   the whole job is ended, and RESULT says "timeout". */
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

/* Behind the next word of a command line, by the rules of CommandLineToArgvW. */
static wchar_t *past_a_word(wchar_t *at) {
    int quoted = 0;
    for (; *at && (quoted || (*at != L' ' && *at != L'\t')); at++)
        if (*at == L'"') quoted = !quoted;
    while (*at == L' ' || *at == L'\t') at++;
    return at;
}

static int told(const wchar_t *path, const char *text, unsigned long number) {
    FILE *file = _wfopen(path, L"wb");
    if (!file) return 120;
    fprintf(file, text, number);
    return fclose(file) ? 120 : 0;
}

int wmain(int count, wchar_t **words) {
    if (count < 4) return 121;
    wchar_t *line = GetCommandLineW();
    for (int i = 0; i < 3; i++) line = past_a_word(line);
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    PROCESS_INFORMATION made;
    HANDLE job = CreateJobObjectW(NULL, NULL);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start, &made))
        return told(words[1], "error %lu", GetLastError());
    AssignProcessToJobObject(job, made.hProcess);
    ResumeThread(made.hThread);
    if (WaitForSingleObject(made.hProcess, wcstoul(words[2], NULL, 10)) != WAIT_OBJECT_0) {
        TerminateJobObject(job, 1);
        TerminateProcess(made.hProcess, 1);
        return told(words[1], "timeout", 0);
    }
    DWORD code = 0;
    GetExitCodeProcess(made.hProcess, &code);
    return told(words[1], "%lu", code);
}
