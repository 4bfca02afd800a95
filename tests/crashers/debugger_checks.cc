// Checks that fail, in the way of doctest and Catch2: they stop in a debugger if there is one, and go on if not.
//
// is_debugger_active() does what isDebuggerActive() of doctest (doctest/doctest.h, MIT License, Viktor Kirilov) and
// Catch::isDebuggerActive() (catch2/internal/catch_debugger.cpp, Boost Software License) do on Linux; the two ways to
// stop are theirs (DOCTEST_BREAK_INTO_DEBUGGER, CATCH_TRAP).
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

#ifdef ASKS
static bool is_debugger_active() {
    std::ifstream in("/proc/self/status");
    const std::string prefix = "TracerPid:\t";
    for (std::string line; std::getline(in, line);) {
        if (line.compare(0, prefix.size(), prefix) == 0) return line.length() > prefix.size() && line[prefix.size()] != '0';
    }
    return false;
}
#else
static bool is_debugger_active() { return std::getenv("NOBODY_SETS_THIS") == nullptr; }
#endif

static int failed;

static void check(bool holds, bool by_instruction) {
    if (holds) return;
    failed++;
    std::printf("check %d failed\n", failed);
    std::fflush(stdout);
    if (!is_debugger_active()) return;
    if (by_instruction)
        __asm__("int $3\n" : :);
    else
        raise(SIGTRAP);
}

int main(int, char **arguments) {
    std::string way = arguments[1];
    if (way == "handled") std::signal(SIGTRAP, [](int) { std::_Exit(9); });
    if (way == "from outside") {
        std::string send = "kill -TRAP " + std::to_string(getpid());
        return std::system(send.c_str());
    }
    for (int test_case = 0; test_case < 3; test_case++) check(test_case == 1, way != "raise");
    std::thread([&] { check(false, way != "raise"); }).join();
    std::printf("%d of 4 failed\n", failed);
    return failed;
}
