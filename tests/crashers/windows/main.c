#include "crash.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
  if (count < 2) return 2;
  int end = crash_now(words[1], count > 2 ? strtol(words[2], NULL, 0) : 0);
  fprintf(stderr, "%s\n", end ? "there is no such verb" : "it came back");
  return end;
}
