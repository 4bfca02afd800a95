#include "crash.h"

/* A page of a mapped file that cannot be read: as Windows raises it where a disk or a network is gone. */
static void in_page_error(long number) {
  ULONG_PTR parameters[3] = {0, 0x7FF600001000ull + (ULONG_PTR)number, 0xC000020C};
  RaiseException(EXCEPTION_IN_PAGE_ERROR, 0, 3, parameters);
}

const Verb FILES[] = {{"in_page_error", in_page_error}, {0, 0}};
