// Flags: -O0
// A filter of system calls, as a sandbox or a container sets one: getppid() ends the process.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void forbid(unsigned what) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, what),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

void forbidden_call(void) {
  forbid(SECCOMP_RET_KILL_PROCESS);
  getppid();
}

static void *ends_alone(void *unused) {
  forbid(SECCOMP_RET_KILL_THREAD);
  getppid();
  return unused;
}

// A thread that a filter ends alone is no death of the process, which dies of something else then.
void null_read_after_a_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, ends_alone, NULL);
  pthread_join(thread, NULL);
  *(volatile int *)0;
}
