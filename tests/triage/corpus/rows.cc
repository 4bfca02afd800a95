// Bugs that were looked at while the grouping was written, first library. n is 3 or 4 at every call.
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"

namespace rows {

static double dot(const double* a, const double* b, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// One helper, called with a null pointer by two others: two bugs.
__attribute__((noinline)) double score_rows(long n) {
  std::vector<double> weights(n, 0.5);
  const double* missing = n > 100 ? weights.data() : nullptr;
  return dot(weights.data(), missing, n) + 1;
}

__attribute__((noinline)) double norm_of(long n) {
  std::vector<double> values(n, 2.0);
  const double* absent = n > 200 ? values.data() : nullptr;
  double sum = dot(values.data(), values.data(), n);
  return sum / dot(absent, values.data(), n);
}

long bucket_of(long value, long buckets) {
  volatile long width = buckets / 10;
  return value / width;
}

// Four bugs in one function: two ends, and two texts.
__attribute__((noinline)) long summarise(long n, int mode) {
  std::vector<long> counts(n, 1);
  if (mode == 0) {
    long* missing = n > 100 ? counts.data() : nullptr;
    return *missing;
  }
  if (mode == 1) {
    volatile long empty = n > 100 ? 1 : 0;
    return counts[0] / empty;
  }
  if (mode == 2) CHECK_OP(counts.size(), >, 100u);
  if (mode == 3) CHECK_OP(counts[0], ==, 7);
  return 0;
}

// Two bugs at two lines of one function, with one signal: the hardest pair.
__attribute__((noinline)) long merge_columns(long n, bool left) {
  std::vector<int> column(n, 1);
  long total = 0;
  if (left) {
    volatile int* keys = n > 100 ? column.data() : nullptr;
    total += keys[1];
  }
  for (int value : column) total += value;
  if (total > 1000) total = 1000;
  std::sort(column.begin(), column.end());
  for (int value : column) total -= value;
  volatile int* values = n > 100 ? column.data() : nullptr;
  total += values[2];
  return total;
}

long histogram(long n) {
  std::vector<int> bins(8);
  long far = n * 100000000L;
  bins.data()[far] += 1;
  return bins[0];
}

struct Cache {
  char* pages;
  Cache() : pages(static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  void evict() { munmap(pages, 4096); }
  __attribute__((noinline)) long get(long key) const { return pages[key]; }
};

long cached(long n) {
  Cache cache;
  cache.pages[0] = 1;
  cache.evict();
  return cache.get(n);
}

struct Value;
struct List {
  std::vector<Value> items;
};
struct Value {
  List* list = nullptr;
};
static long depth_of(const List& list);
static long depth_of_value(const Value& value) {
  volatile char scratch[160];
  scratch[0] = 1;
  return value.list ? scratch[0] + depth_of(*value.list) : 0;
}
static long depth_of(const List& list) {
  long deepest = 0;
  for (const Value& value : list.items) deepest = std::max(deepest, 1 + depth_of_value(value));
  return deepest;
}
long nested(long n) {
  List list;
  list.items.resize(n);
  list.items[1].list = &list;
  return depth_of(list);
}

struct Node {
  std::unique_ptr<Node> next;
  long values[4];
};
static std::unique_ptr<Node> long_chain(long length) {
  std::unique_ptr<Node> head;
  for (long i = 0; i < length; ++i) {
    auto node = std::make_unique<Node>();
    node->next = std::move(head);
    head = std::move(node);
  }
  return head;
}
__attribute__((noinline)) long chained(long n) {
  auto chain = long_chain(n * 400000);
  long first = chain->values[0];
  chain.reset();
  return first & 1;
}

// One CHECK that two functions run into: two bugs.
struct Shape {
  long dims[8];
  __attribute__((noinline)) void set_dim(long d, long size) {
    CHECK_OP(size, >=, 0);
    dims[d] = size;
  }
};
__attribute__((noinline)) long reshape(long n) {
  Shape shape;
  shape.set_dim(0, n);
  shape.set_dim(1, n - 100);
  return shape.dims[0];
}
__attribute__((noinline)) long expand(long n) {
  Shape shape;
  for (long d = 0; d < 3; ++d) shape.set_dim(d, 2 - n * d);
  return shape.dims[1];
}

struct Queue {
  std::vector<long> items;
  long pop_front() {
    assert(!items.empty() && "queue is empty");
    long front = items.front();
    items.erase(items.begin());
    return front;
  }
};
__attribute__((noinline)) long drain(long n) {
  Queue queue;
  for (long i = 0; i < n; ++i) queue.items.push_back(i);
  long total = 0;
  for (long i = 0; i <= n; ++i) total += queue.pop_front();
  return total;
}

long lookup_row(long n) {
  std::vector<long> table(2);
  return table.at(n);
}

// Two bugs in one function, of one exception type, with different words.
__attribute__((noinline)) long parse_header(const std::string& text) {
  if (text.size() < 4) throw std::runtime_error("header is too short: " + std::to_string(text.size()) + " bytes");
  if (text[0] != '#') throw std::runtime_error("header has no marker");
  return text.size();
}

__attribute__((noinline)) long for_each_row(long n, const std::function<long(const long*)>& visit) {
  long total = 0;
  std::vector<long> row(n);
  for (long i = 0; i < n; ++i) total += visit(i == 2 ? nullptr : row.data());
  return total;
}
__attribute__((noinline)) long total_of(long n) {
  return for_each_row(n, [n](const long* row) { return row[0] + n; });
}

struct Plugin {
  long (*start)(long);
};
__attribute__((noinline)) long start_plugin(long n) {
  static Plugin plugin;
  long (*volatile start)(long) = plugin.start;
  return start(n) + 1;
}

__attribute__((noinline)) long release_rows(long n) {
  char* block = static_cast<char*>(std::malloc(2000 + n));
  char* volatile kept = block;
  std::free(block);
  std::free(kept);
  return 0;
}

struct Item {
  const long* key;
};
__attribute__((noinline)) long sorted_items(long n) {
  long keys[4] = {4, 3, 2, 1};
  std::vector<Item> items(n);
  for (long i = 0; i < n - 1; ++i) items[i].key = &keys[i];
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return *a.key < *b.key; });
  return *items[0].key;
}

__attribute__((noinline)) long wide_window(long n) {
  volatile char window[16 * 1024 * 1024];
  for (long i = 0; i < n; ++i) window[i * 4096] = 1;
  return window[0];
}

struct Reader {
  virtual long read(long n) = 0;
  virtual ~Reader() = default;
};
__attribute__((noinline)) Reader* open_reader(long n) { return n > 100 ? reinterpret_cast<Reader*>(n) : nullptr; }
long read_all(long n) { return open_reader(n)->read(n) + 1; }

}  // namespace rows

ROUTES(score_rows, (long)rows::score_rows(n))
ROUTES(norm_of, (long)rows::norm_of(n))
ROUTES(bucket_of, rows::bucket_of(n * 7, n))
ROUTES(summarise_null, rows::summarise(n, 0))
ROUTES(summarise_zero, rows::summarise(n, 1))
ROUTES(summarise_count, rows::summarise(n, 2))
ROUTES(summarise_first, rows::summarise(n, 3))
ROUTES(merge_left, rows::merge_columns(n, true))
ROUTES(merge_right, rows::merge_columns(n, false))
ROUTES(histogram, rows::histogram(n))
ROUTES(cached, rows::cached(n))
ROUTES(nested, rows::nested(n))
ROUTES(chained, rows::chained(n))
ROUTES(reshape, rows::reshape(n))
ROUTES(expand, rows::expand(n))
ROUTES(drain, rows::drain(n))
ROUTES(lookup_row, rows::lookup_row(n))
ROUTES(short_header, rows::parse_header("#"))
ROUTES(no_marker, rows::parse_header("12345678"))
ROUTES(total_of, rows::total_of(n))
ROUTES(start_plugin, rows::start_plugin(n))
ROUTES(release_rows, rows::release_rows(n))
ROUTES(sorted_items, rows::sorted_items(n))
ROUTES(wide_window, rows::wide_window(n))
ROUTES(read_all, rows::read_all(n))
