#include "crash.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct ShapeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Base {
  Base() { hello(); }
  void hello() { twist(); }
  virtual void twist() = 0;
};
struct Derived : Base {
  void twist() override {}
};

void throw_runtime_error(long number) { throw std::runtime_error("bad shape [" + std::to_string(number) + "]"); }
void throw_own_error(long) { throw ShapeError("rank 3 is not 2"); }
void throw_int(long number) { throw static_cast<int>(number); }
void vector_at(long) {
  std::vector<int> numbers(3);
  (void)numbers.at(10);
}
void throw_in_thread(long number) { on_a_thread(throw_runtime_error, number, 0); }
void throw_in_noexcept(long number) { [number]() noexcept { throw_runtime_error(number); }(); }
void throw_at_exit(long) {
  std::atexit([] { throw std::logic_error("after main"); });
}
void pure_virtual(long) { Derived derived; }
void empty_function(long) {
  std::function<void()> nothing;
  nothing();
}
void out_of_memory(long) { delete new std::vector<char>(1ull << 60); }
void just_terminate(long) { std::terminate(); }

// What Microsoft's compiler emits for `throw std::runtime_error(...)` (ehdata.h): offsets are from the image's base.
__asm__(R"(
  .data
  .balign 8
type_runtime_error: .quad 0, 0
  .asciz ".?AVruntime_error@std@@"
  .balign 8
type_exception: .quad 0, 0
  .asciz ".?AVexception@std@@"
  .section .rdata,"dr"
  .balign 8
catch_runtime_error: .long 0
  .rva type_runtime_error
  .long 0, -1, 0, 24, 0
catch_exception: .long 0
  .rva type_exception
  .long 0, -1, 0, 24, 0
catch_as: .long 2
  .rva catch_runtime_error, catch_exception
thrown_as: .long 0, 0, 0
  .rva catch_as
  .text
)");
extern "C" const char thrown_as[];
extern "C" IMAGE_DOS_HEADER __ImageBase;

struct RuntimeError {
  const void *table;
  const char *what;
  bool owned;
};

void throw_as_msvc(long) {
  RuntimeError object = {nullptr, "bad shape [7]", false};
  ULONG_PTR parameters[4] = {0x19930520, reinterpret_cast<ULONG_PTR>(&object), reinterpret_cast<ULONG_PTR>(thrown_as),
                             reinterpret_cast<ULONG_PTR>(&__ImageBase)};
  RaiseException(0xE06D7363, EXCEPTION_NONCONTINUABLE, 4, parameters);
}

// The exception passes a first time, and then the runtime ends the process: what std::terminate does there.
LONG CALLBACK give_up(EXCEPTION_POINTERS *exception) {
  if (exception->ExceptionRecord->ExceptionCode == 0xE06D7363) __asm__ volatile("int $0x29" : : "c"(7ull));
  return EXCEPTION_CONTINUE_SEARCH;
}
void terminate_as_msvc(long number) {
  AddVectoredExceptionHandler(1, give_up);
  throw_as_msvc(number);
}

}  // namespace

extern "C" const Verb EXCEPTIONS[] = {{"throw_runtime_error", throw_runtime_error},
                                      {"throw_own_error", throw_own_error},
                                      {"throw_int", throw_int},
                                      {"vector_at", vector_at},
                                      {"throw_in_thread", throw_in_thread},
                                      {"throw_in_noexcept", throw_in_noexcept},
                                      {"throw_at_exit", throw_at_exit},
                                      {"pure_virtual", pure_virtual},
                                      {"empty_function", empty_function},
                                      {"out_of_memory", out_of_memory},
                                      {"just_terminate", just_terminate},
                                      {"throw_as_msvc", throw_as_msvc},
                                      {"terminate_as_msvc", terminate_as_msvc},
                                      {nullptr, nullptr}};
