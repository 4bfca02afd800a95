// Flags: -O0
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void double_free_tcache(void) { char *p = malloc(40); free(p); free(p); }

void double_free_fasttop(void) {
  char *p[9];
  for (int i = 0; i < 1000; ++i) *(char *)malloc(40) = 1;  // a hole that is a little larger would give a larger block
  for (int i = 0; i < 9; ++i) p[i] = malloc(40);
  for (int i = 0; i < 7; ++i) free(p[i]);  // fills the tcache, so that the next ones go to the fast bin
  free(p[8]);
  free(p[8]);
}

// In front of each stands a size that no block has: what lay there by chance was once taken for one, or for a thread's.
void free_of_local(void) { long local[8] = {0}; free(local + 2); }
void free_inside(void) { char *p = calloc(1, 4000); free(p + 8); }

// Three blocks, each right behind the other: where there are holes in the heap, the next ones may lie anywhere.
static void neighbours(char *blocks[3], const size_t sizes[3]) {
  do {
    for (int i = 0; i < 3; ++i) blocks[i] = malloc(sizes[i]);
  } while (blocks[0] + malloc_usable_size(blocks[0]) + 8 != blocks[1] || blocks[1] + malloc_usable_size(blocks[1]) + 8 != blocks[2]);
}
// Writes over the size of the block behind, then frees the one in front: not of the tcache's sizes.
void overflow_next_size(void) {
  char *blocks[3], *a, *b, *c;
  neighbours(blocks, (size_t[]){2000, 2000, 2000});
  a = blocks[0], b = blocks[1], c = blocks[2];
  memset(a, 'A', 2024);
  free(a);
  free(b);
  free(c);
}

void overflow_into_freed(void) {
  char *blocks[3], *a, *b, *c;
  neighbours(blocks, (size_t[]){2008, 3000, 2000});
  a = blocks[0], b = blocks[1], c = blocks[2];
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
  for (int i = 0; i < 200; ++i) *(char *)malloc(120000) = 1;
}

void write_after_free(void) {
  for (int i = 0; i < 1000; ++i) *(char *)malloc(40) = 1;  // what was freed before is used up: the tcache has room for two
  char *a = malloc(40), *b = malloc(40);
  free(a);
  free(b);
  b[0] ^= 8;  // the tcache's next pointer lies there: no block begins at such an address, however it is hidden
  b = malloc(40);
  a = malloc(40);
  *a = 1;
}
