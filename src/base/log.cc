#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "base/text.h"

namespace tailspan::base {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

const char* Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

void LogLine(LogLevel level, const std::string& line) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  // One write, so that lines of threads and of the recorded command do not mix.
  std::string out = std::string("tailspan: ") + Prefix(level) + CleanText(line) + "\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, out.data(), out.size());
}

}  // namespace tailspan::base
