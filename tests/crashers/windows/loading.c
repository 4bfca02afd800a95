#include "crash.h"

#include <delayimp.h>
#include <stdio.h>

static void raise(long code) { RaiseException(code ? (DWORD)code : 0xE0000001, 0, 0, NULL); }

/* What the delay-load helper of Microsoft's linker (delayimp.h) raises where a DLL, or a function in it, is not found. */
static void __attribute__((noinline)) __delayLoadHelper2(DWORD code, const char *dll, const char *procedure, DWORD error) {
  DelayLoadInfo information = {0};
  ULONG_PTR parameter = (ULONG_PTR)&information;
  information.cb = sizeof information;
  information.szDll = dll;
  information.dlp.fImportByName = TRUE;
  information.dlp.szProcName = procedure;
  information.dwLastError = error;
  RaiseException(code, 0, 1, &parameter);
}
static void delayed_module(long number) {
  (void)number;
  __delayLoadHelper2(0xC06D007E, "cudnn_ops_infer64_8.dll", "cudnnCreate", ERROR_MOD_NOT_FOUND);
}
static void delayed_procedure(long number) {
  (void)number;
  __delayLoadHelper2(0xC06D007F, "cublas64_11.dll", "cublasLtMatmulAlgoGetHeuristic", ERROR_PROC_NOT_FOUND);
}
static void delayed_own_module(long number) {
  (void)number;
  __delayLoadHelper2(0xC06D007E, "ops_helper.dll", "fill", ERROR_MOD_NOT_FOUND);
}

const Verb LOADING[] = {{"raise", raise},
                        {"delayed_module", delayed_module},
                        {"delayed_procedure", delayed_procedure},
                        {"delayed_own_module", delayed_own_module},
                        {0, 0}};
