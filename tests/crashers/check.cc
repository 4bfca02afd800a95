// Flags: -O0 -std=c++17
// A CHECK as glog builds it: the message is put together in an object, written, and still there at abort().
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace google {
class LogMessageFatal {
 public:
  LogMessageFatal(const char* file, int line, const std::string& check) {
    text_ << "F20261121 00:00:00.123456  4711 " << file << ":" << line << "] Check failed: " << check << " ";
  }
  ~LogMessageFatal() {
    const std::string line = text_.str() + "\n";
    fputs(line.c_str(), stderr);
    abort();
  }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};
}  // namespace google

extern "C" void failed_check(int a, int b) {
  if (a == b) return;
  google::LogMessageFatal("tensor_shape.cc", 356, "a == b (" + std::to_string(a) + " vs. " + std::to_string(b) + ")").stream() << "ranks differ";
}
