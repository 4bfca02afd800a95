// Flags: -O0
#include <stdlib.h>
#include <string.h>

void double_free_tcache(void) { char *p = malloc(40); free(p); free(p); }

void double_free_fasttop(void) {
  char *p[9];
  for (int i = 0; i < 9; ++i) p[i] = malloc(40);
  for (int i = 0; i < 7; ++i) free(p[i]);  // fills the tcache, so that the next ones go to the fast bin
  free(p[8]);
  free(p[8]);
}

void free_of_local(void) { long local[8]; free(local + 2); }
void free_inside(void) { char *p = malloc(4000); free(p + 8); }

// Writes over the size of the block behind, then frees the one in front: not of the tcache's sizes.
void overflow_next_size(void) {
  char *a = malloc(2000), *b = malloc(2000), *c = malloc(2000);
  memset(a, 'A', 2024);
  free(a);
  free(b);
  free(c);
}

void overflow_into_freed(void) {
  char *a = malloc(2008), *b = malloc(3000), *c = malloc(2000);
  free(b);
  memset(a, 'A', 2016);
  char *d = malloc(3000);
  free(d);
  free(c);
}

// A fresh arena of a thread would do as well; here the top of the main one is found by a request that moves it.
void overflow_top(void) {
  char *p = malloc(140000 - 64);
  for (int i = 0; i < 200; ++i) p = malloc(100000);
  memset(p + 100000, 'A', 24);
  p = malloc(120000);
  *p = 1;
}

void write_after_free(void) {
  char *a = malloc(40), *b = malloc(40);
  free(a);
  free(b);
  memset(b, 'A', 8);  // the tcache's next pointer lies there
  b = malloc(40);
  a = malloc(40);
  *a = 1;
}
