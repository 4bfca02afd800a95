#include "crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 3 };

/* Wine does not start one of many hundred programs (ERROR_INTERNAL_ERROR), and starts it the next time. */
static BOOL started(char *line, STARTUPINFOA *how, PROCESS_INFORMATION *made) {
  for (int left = ATTEMPTS; left; --left) {
    if (CreateProcessA(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, how, made)) return TRUE;
    if (GetLastError() != ERROR_INTERNAL_ERROR) break;
  }
  return FALSE;
}

/* Each verb in a process of its own, one after the other, without stderr; prints `VERB PID CODE` for each. */
static int each(int count, char **verbs) {
  char path[MAX_PATH], line[2 * MAX_PATH];
  SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
  HANDLE nowhere = CreateFileA("NUL", GENERIC_WRITE, 3, &inherited, OPEN_EXISTING, 0, NULL);
  GetModuleFileNameA(NULL, path, sizeof path);
  for (int at = 0; at < count; ++at) {
    snprintf(line, sizeof line, "\"%s\" %s", path, verbs[at]);
    STARTUPINFOA start = {sizeof start};
    PROCESS_INFORMATION made;
    DWORD code = 0;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdOutput = start.hStdError = nowhere;
    if (!started(line, &start, &made)) {
      fprintf(stderr, "%s was not started: error %lu\n", verbs[at], GetLastError());
      return 97;
    }
    WaitForSingleObject(made.hProcess, INFINITE);
    GetExitCodeProcess(made.hProcess, &code);
    printf("%s %lu %08lX\n", verbs[at], made.dwProcessId, code);
    fflush(stdout);
    CloseHandle(made.hProcess);
    CloseHandle(made.hThread);
  }
  return 0;
}

int main(int count, char **words) {
  if (count < 2) return 2;
  if (!strcmp(words[1], "each")) return each(count - 2, words + 2);
  int end = crash_now(words[1], count > 2 ? strtol(words[2], NULL, 0) : 0);
  fprintf(stderr, "%s\n", end ? "there is no such verb" : "it came back");
  return end;
}
