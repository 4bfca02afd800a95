/* counting FILE STOP: counts into a file and to stderr, forks now and then, and ends with 9 when STOP is there. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    for (long n = 1;; n++) {
        char line[64];
        int status, size = snprintf(line, sizeof line, "%ld\n", n);
        if (pwrite(file, &n, sizeof n, 0) != sizeof n) return 1;
        if (write(2, line, size) != size) return 2;
        if (n % 16 == 0) {
            pid_t pid = fork();
            if (!pid) _exit(5);
            if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 5) return 3;
        }
        if (access(argv[2], F_OK) == 0) return 9;
        usleep(500);
    }
}
