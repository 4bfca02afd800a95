// Held-out bugs: nobody looked at how they are grouped before the grouping was finished. n is 3 or 4 at every call.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "check.h"

namespace graph {
namespace {

struct Edge {
  int to;
  double weight;
};
struct Vertex {
  std::vector<Edge> edges;
  long label = 0;
  const char* name = nullptr;
};

class Graph {
 public:
  explicit Graph(long n) : vertices_(n) {
    for (long i = 0; i < n; ++i) vertices_[i].edges.push_back({static_cast<int>((i + 1) % n), 1.0});
  }
  Vertex* find(long id) { return id < static_cast<long>(vertices_.size()) ? &vertices_[id] : nullptr; }
  long degree(long id) { return find(id)->edges.size(); }
  std::vector<Vertex> vertices_;
};

// A helper that two algorithms give a vertex which does not exist.
double weight_of(const Vertex* vertex) {
  double total = 0;
  for (const Edge& edge : vertex->edges) total += edge.weight;
  return total;
}

long visit_all(Graph& graph) {
  std::function<long(long)> visit = [&](long id) -> long {
    long seen = 1;
    for (const Edge& edge : graph.find(id)->edges) seen += visit(edge.to);
    return seen;
  };
  return visit(0);
}

struct Parser {
  const char* text;
  long at = 0;
  long expression() {
    long value = term();
    while (text[at] == '+') ++at, value += term();
    return value;
  }
  long term() {
    long value = factor();
    while (text[at] == '*') ++at, value *= factor();
    return value;
  }
  long factor() {
    if (text[at] == '(' || text[at] == '+') return expression() + 1;
    return text[at++] - '0';
  }
};

}  // namespace

__attribute__((noinline)) double shortest_path(long n) {
  Graph graph(n);
  double best = 1e9;
  for (long id = 0; id <= n; ++id) best = std::min(best, weight_of(graph.find(id * 2)));
  return best;
}

__attribute__((noinline)) double spanning_tree(long n) {
  Graph graph(n);
  double total = weight_of(graph.find(0));
  Vertex* last = graph.find(n + 40);
  return total + weight_of(last) * 2;
}

__attribute__((noinline)) long reachable(long n) {
  Graph graph(n);
  return visit_all(graph);
}

__attribute__((noinline)) long evaluate(long n) {
  Parser parser{n > 100 ? "1+2" : "(2*3)"};
  return parser.expression();
}

__attribute__((noinline)) long degree_of(long n) {
  Graph graph(n);
  return graph.degree(n * 10);
}

// Two CHECKs and a division in one function.
__attribute__((noinline)) long order_of(long n, int mode) {
  Graph graph(n);
  long edges = 0;
  for (auto& vertex : graph.vertices_) edges += vertex.edges.size();
  volatile long roots = n > 100 ? 1 : 0;
  if (mode == 0) CHECK_OP(edges, <, n);
  if (mode == 1) CHECK_OP(roots, >, 0);
  return edges / roots;
}

__attribute__((noinline)) long label_of(long n) {
  std::map<std::string, long> labels{{"root", 1}, {"leaf", 2}};
  return labels.at("branch" + std::to_string(n));
}

__attribute__((noinline)) long parent_of(long n) {
  std::optional<long> parent = n > 100 ? std::optional<long>(1) : std::nullopt;
  return parent.value();
}

__attribute__((noinline)) long attribute_of(long n) {
  std::variant<long, std::string> attribute = n > 100 ? std::variant<long, std::string>(n) : "colour";
  return std::get<long>(attribute);
}

__attribute__((noinline)) long parse_weight(long n) { return std::stoi(n > 100 ? "1" : "heavy"); }

struct Heap {
  std::vector<long> items;
  long pop() {
    assert(items.size() > 0);
    long top = items.back();
    items.pop_back();
    return top;
  }
};
__attribute__((noinline)) long merge_heaps(long n) {
  Heap heap;
  long total = 0;
  for (long i = 0; i < n; ++i) heap.items.push_back(i);
  while (true) total += heap.pop();
}

struct Layout {
  virtual ~Layout() = default;
  virtual long place(long n) { return n; }
};
__attribute__((noinline)) Layout* layout_for(long n) { return n > 100 ? new Layout : nullptr; }
__attribute__((noinline)) long draw(long n) { return layout_for(n)->place(n) + 1; }

__attribute__((noinline)) long drop_edges(long n) {
  long* block = static_cast<long*>(std::malloc(800 + n));
  long* volatile inside = block + 8;
  std::free(inside);
  return 0;
}

__attribute__((noinline)) long name_length(long n) {
  Graph graph(n);
  const char* volatile name = graph.find(1)->name;
  return std::strlen(name);
}

}  // namespace graph

namespace image {

struct Image {
  long width, height, channels;
  std::vector<float> pixels;
  Image(long w, long h, long c) : width(w), height(h), channels(c), pixels(w * h * c) {}
  float* row(long y) { return pixels.data() + y * width * channels; }
};

// One CHECK that two operations run into.
__attribute__((noinline)) static void require_channels(const Image& image) { CHECK_OP(image.channels, ==, 3); }
__attribute__((noinline)) long resize(long n) {
  Image image(n, n, n > 100 ? 3 : 4);
  require_channels(image);
  return image.row(1)[0];
}
__attribute__((noinline)) long crop(long n) {
  std::vector<Image> images(2, Image(n, 2, 1));
  for (const Image& image : images) require_channels(image);
  return images.size();
}

__attribute__((noinline)) long fill_rows(long n) {
  Image image(n, n, 3);
  for (long y = 0; y < n; ++y) image.row(y * 40000000)[0] = 1.0f;
  return image.pixels[0];
}

long scale_of(long n) {
  volatile long target = n / 100;
  return n * 7 % target;
}

template <typename T>
struct Convolution {
  const T* kernel;
  __attribute__((noinline)) T at(const std::vector<T>& signal, long i) const {
    T sum = 0;
    for (long k = 0; k < 3; ++k) sum += signal[(i + k) % signal.size()] * kernel[k];
    return sum;
  }
};
template <typename T>
__attribute__((noinline)) long convolve(long n) {
  std::vector<T> signal(n, T(1));
  Convolution<T> convolution{n > 100 ? signal.data() : nullptr};
  return static_cast<long>(convolution.at(signal, 1));
}
__attribute__((noinline)) long blur(long n) { return n % 2 ? convolve<float>(n) : convolve<double>(n); }

__attribute__((noinline)) static void paint(const long* colours, long* out) { out[0] = colours[0]; }
__attribute__((noinline)) long render(long n) {
  long out = n;
  std::thread worker([&out] { paint(nullptr, &out); });
  worker.join();
  return out;
}

__attribute__((noinline)) long mode_of(long n) {
  switch (n) {
    case 100: return 1;
    case 200: return 2;
    default: __builtin_trap();
  }
}

__attribute__((noinline)) long load_tile(long n) {
  char path[] = "/tmp/tile-XXXXXX";
  int file = mkstemp(path);
  unlink(path);
  volatile char* tile = static_cast<char*>(mmap(nullptr, 8192 * n, PROT_READ, MAP_SHARED, file, 0));
  return tile[4096];
}

__attribute__((noinline)) long pack_rows(long n) {
  Image image(n, n, 3);
  std::vector<float> packed(n * 300);
  const void* volatile from = n > 100 ? image.row(0) : nullptr;
  std::memcpy(packed.data(), from, packed.size() * sizeof(float));
  return packed[0];
}

struct Layer {
  std::list<Layer> children;
  Layer* shown = nullptr;
  long opacity(const long* outer) const { return shown ? shown->blended(outer) : *outer; }
  __attribute__((noinline)) long blended(const long* outer) const {
    long mine = *outer + 1;
    return opacity(&mine) + mine;
  }
};
__attribute__((noinline)) long flatten(long n) {
  Layer layer;
  layer.shown = n > 100 ? nullptr : &layer;
  return layer.blended(&n);
}

}  // namespace image

ROUTES(shortest_path, (long)graph::shortest_path(n))
ROUTES(spanning_tree, (long)graph::spanning_tree(n))
ROUTES(reachable, graph::reachable(n))
ROUTES(evaluate, graph::evaluate(n))
ROUTES(degree_of, graph::degree_of(n))
ROUTES(order_edges, graph::order_of(n, 0))
ROUTES(order_roots, graph::order_of(n, 1))
ROUTES(order_ratio, graph::order_of(n, 2))
ROUTES(label_of, graph::label_of(n))
ROUTES(parent_of, graph::parent_of(n))
ROUTES(attribute_of, graph::attribute_of(n))
ROUTES(parse_weight, graph::parse_weight(n))
ROUTES(merge_heaps, graph::merge_heaps(n))
ROUTES(draw, graph::draw(n))
ROUTES(drop_edges, graph::drop_edges(n))
ROUTES(name_length, graph::name_length(n))
ROUTES(resize, image::resize(n))
ROUTES(crop, image::crop(n))
ROUTES(fill_rows, image::fill_rows(n))
ROUTES(scale_of, image::scale_of(n))
ROUTES(blur, image::blur(n))
ROUTES(render, image::render(n))
ROUTES(mode_of, image::mode_of(n))
ROUTES(load_tile, image::load_tile(n))
ROUTES(pack_rows, image::pack_rows(n))
ROUTES(flatten, image::flatten(n))
