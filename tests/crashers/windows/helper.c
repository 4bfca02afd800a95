/* helper.dll, of which needs.exe wants the function `help`. */
#include <windows.h>

#ifndef FIRST
#define FIRST TRUE
#endif

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved) {
  (void)self;
  (void)reserved;
  return reason == DLL_PROCESS_ATTACH ? FIRST : TRUE;
}

#ifdef WITHOUT_HELP
__declspec(dllexport) int another(int number) { return number; }
#else
__declspec(dllexport) int help(int number) { return number + 1; }
#endif
