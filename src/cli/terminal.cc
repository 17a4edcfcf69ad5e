#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace tailspan::cli {
namespace {

constexpr size_t kTextWidthMax = 160;

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

report::TextStyle StyleOfStdout() {
  report::TextStyle style;
  if (!isatty(STDOUT_FILENO)) return style;
  style.colour = Variable("NO_COLOR").empty() && Variable("TERM") != "dumb";
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = std::clamp<size_t>(size.ws_col, report::kTextWidthMin, kTextWidthMax);
  }
  return style;
}

}  // namespace tailspan::cli
