// Flags: -O0 -std=c++17
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Link { std::unique_ptr<Link> next; };
struct ShapeError : std::runtime_error { using std::runtime_error::runtime_error; };

struct Base {
  Base() { hello(); }
  void hello() { twist(); }
  virtual void twist() = 0;
};
struct Derived : Base { void twist() override {} };

extern "C" {
void throw_runtime_error(int n) { throw std::runtime_error("bad shape [" + std::to_string(n) + "]"); }
void throw_own_error() { throw ShapeError("rank 3 is not 2"); }
void throw_int() { throw 42; }
void vector_at() { std::vector<int> v(3); (void)v.at(10); }
void throw_in_thread() { std::thread([] { throw std::runtime_error("on a worker"); }).join(); }
void throw_in_noexcept() { []() noexcept { throw std::runtime_error("out of a noexcept"); }(); }
void forgotten_join() { std::thread thread([] {}); }
void out_of_memory() { std::vector<char>* v = new std::vector<char>(1ull << 60); delete v; }
void pure_virtual() { Derived derived; }
void empty_function() { std::function<void()> f; f(); }
void long_list(int n) {
  auto head = std::make_unique<Link>();
  for (int i = 0; i < n; ++i) { auto link = std::make_unique<Link>(); link->next = std::move(head); head = std::move(link); }
}
}

extern "C" {
void throw_at_exit() { std::atexit([] { throw std::logic_error("after main"); }); }
}

extern "C" void rethrow_nothing() { throw; }

static void trap_on_terminate() { __builtin_trap(); }
extern "C" void throw_into_a_trap() {
  std::set_terminate(trap_on_terminate);
  throw std::runtime_error("no way on");
}
