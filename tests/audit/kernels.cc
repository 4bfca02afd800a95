// Kernels in TensorFlow's form, without its headers: what each takes of the stack is measured, not only read.
#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C"
#include <pthread.h>
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tensorflow {
struct OpKernelContext {
  float* data;
  int size;
};
struct OpKernel {
  virtual void Compute(OpKernelContext* context) = 0;
  virtual ~OpKernel() {}
};
}  // namespace tensorflow
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;

#define APART __attribute__((noinline))
#define KERNEL(NAME) \
  struct NAME : OpKernel { \
    void Compute(OpKernelContext* context) override; \
  }; \
  void NAME::Compute(OpKernelContext* context)

APART int Recurse(int levels, volatile int* sink) {
  volatile char local[100];
  local[0] = static_cast<char>(levels);
  return levels <= 0 ? local[0] : Recurse(levels - 1, sink) + sink[0];
}

int Odd(int levels, volatile int* sink);
APART int Even(int levels, volatile int* sink) {
  volatile int local[20];
  local[levels & 15] = levels;
  return levels == 0 ? 1 : Odd(levels - 1, sink) + local[0];
}
APART int Odd(int levels, volatile int* sink) {
  volatile int local[10];
  local[levels & 7] = levels;
  return levels == 0 ? 0 : Even(levels - 1, sink) + local[0];
}

struct Node {
  std::unique_ptr<Node> next;
};

APART float Leaf(float* data, int size) {
  volatile float local[3000];
  for (int at = 0; at < 3000; ++at) local[at] = data[0];
  return local[size];
}
APART float Middle(float* data, int size) {
  volatile float local[30000];
  for (int at = 0; at < 30000; ++at) local[at] = data[0];
  return local[size] + Leaf(data, size);
}

KERNEL(Empty) { context->data[0] = 1; }
KERNEL(Direct) {
  volatile int sink = 0;
  context->data[0] = static_cast<float>(Recurse(context->size, &sink));
}
KERNEL(Mutual) {
  volatile int sink = 0;
  context->data[0] = static_cast<float>(Even(context->size, &sink));
}
KERNEL(Nested) { context->data[0] = Middle(context->data, context->size); }
KERNEL(Huge) {
  volatile float local[10000000];
  local[context->size] = 1;
  context->data[0] = local[context->size];
}
KERNEL(List) {
  Node first;
  for (int at = 0; at < context->size; ++at) {
    auto node = std::make_unique<Node>();
    node->next = std::move(first.next);
    first.next = std::move(node);
  }
}
KERNEL(Standard) {
  std::map<int, int> table;
  for (int at = 0; at < context->size; ++at) table[at] = at;
  std::vector<float> values(context->data, context->data + context->size);
  std::sort(values.begin(), values.end());
  context->data[0] = values[0] + static_cast<float>(table[0]);
}
KERNEL(Indirect) {
  std::function<int(int)> sum = [&](int number) { return number <= 0 ? 0 : sum(number - 1) + number; };
  context->data[0] = static_cast<float>(sum(context->size));
}

#ifndef _WIN32
struct Run {
  OpKernel* kernel;
  OpKernelContext context;
};

static void* Start(void* given) {
  Run* run = static_cast<Run*>(given);
  run->kernel->Compute(&run->context);
  return nullptr;
}

static long Used(OpKernel* kernel) {
  const size_t size = 16 << 20;
  char* stack = static_cast<char*>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
  memset(stack, 0x5a, size);
  float data[64] = {1};
  Run run{kernel, {data, 8}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, size);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, Start, &run) != 0) return -1;
  pthread_join(thread, nullptr);
  size_t untouched = 0;
  while (untouched < size && stack[untouched] == 0x5a) ++untouched;
  munmap(stack, size);
  return static_cast<long>(size - untouched);
}

// How many bytes more of its stack a thread uses for the kernel Nested than for the empty one.
EXPORT long MeasureNested() {
  Empty empty;
  Nested nested;
  return Used(&nested) - Used(&empty);
}
#endif

EXPORT OpKernel* Make(int number) {
  switch (number) {
    case 0: return new Direct;
    case 1: return new Mutual;
    case 2: return new Huge;
    case 3: return new List;
    case 4: return new Standard;
    default: return new Indirect;
  }
}
