// What sanitizers find: leaks.cc ok|leak|overflow|wait|abort|children
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static void *volatile place;

int main(int, char **words) {
    const char *way = words[1];
    std::thread([] { place = std::malloc(5); }).join();
    std::free(place);
    if (!std::strcmp(way, "leak")) place = std::malloc(77);
    place = nullptr;
    if (!std::strcmp(way, "overflow")) {
        char *volatile block = static_cast<char *>(std::malloc(7));
        block[9] = 1;
        std::free(block);
    }
    if (!std::strcmp(way, "wait")) std::getchar();
    if (!std::strcmp(way, "abort")) std::abort();
    if (!std::strcmp(way, "children")) {
        for (int each = 0; each < 3; each++)
            if (fork() == 0) std::exit(0);
        for (int status; wait(&status) > 0;)
            if (status) return 9;
    }
    std::puts("done");
    return 0;
}
