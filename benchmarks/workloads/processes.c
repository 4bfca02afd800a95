/* processes fork N: N children that end at once. processes spawn N: posix_spawn of /bin/true, N times. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int spawn = !strcmp(argv[1], "spawn");
    char *command[] = {"/bin/true", NULL};
    for (int left = atoi(argv[2]); left > 0; left--) {
        pid_t child;
        int status;
        if (spawn) {
            if (posix_spawn(&child, command[0], NULL, NULL, command, environ))
                return 1;
        } else if (!(child = fork()))
            _exit(0);
        if (waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "a child ended with %d\n", status);
            return 1;
        }
    }
    return 0;
}
