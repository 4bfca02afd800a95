/* What /proc says of a thread. */
#ifndef NECROPSY_PROC_H
#define NECROPSY_PROC_H

#include "kernel.h"

/* Enough for /proc/TID and a short name. */
enum { PROC_PATH = 40, AT_CWD = -100 };
/* More than the text of /proc/TID/status. */
enum { STATUS_TEXT = 4096 };

/* "/proc/TID" and `name` (with its slash) into `path`. */
void proc_path(char *path, int tid, const char *name);
/* A file of /proc/TID; how many bytes were read, 0 where it cannot be. */
long read_proc(int tid, const char *name, char *to, long size);
/* /proc/TID/status into `text` (NUL at its end); its length, 0 where it cannot be read. */
long read_status(int tid, char *text, long size);
/* The number behind `name` (with its colon) at the beginning of a line; -1 where there is no such line. */
long field(const char *text, const char *name, int base);
/* Its memory from `address` on; how many bytes were read. */
long read_stack(int tid, uint64_t address, void *to, long size);
/* It is neither dead nor gone. */
int is_running(int tid);
/* Which signals the process handles and which it ignores; 0 where that cannot be read. */
int dispositions(int tid, uint64_t *caught, uint64_t *ignored);

#endif
