/* lines N: N lines of 80 bytes to stderr, one write(2) each. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char line[80];
    if (argc != 2)
        return 2;
    memset(line, '.', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int left = atoi(argv[1]); left > 0; left--)
        for (size_t done = 0; done < sizeof line;) {
            ssize_t written = write(2, line + done, sizeof line - done);
            if (written < 0)
                return 1;
            done += written;
        }
    return 0;
}
