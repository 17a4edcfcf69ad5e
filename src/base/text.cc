#include "base/text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json_writer.h"

namespace tailspan::base {

std::string DurationText(double ns) {
  const double size = std::abs(ns);
  if (size < 0.5) return "0 ns";  // never "-0 ns"
  if (size >= 9.995e9) return fmt::format("{:.1f} s", ns / 1e9);
  if (size >= 0.9995e9) return fmt::format("{:.2f} s", ns / 1e9);
  if (size >= 9.95e6) return fmt::format("{:.0f} ms", ns / 1e6);
  if (size >= 0.9995e6) return fmt::format("{:.1f} ms", ns / 1e6);
  if (size >= 1e3) return fmt::format("{:.0f} us", ns / 1e3);
  return fmt::format("{:.0f} ns", ns);
}

std::string PercentText(double share) { return fmt::format("{:.0f} %", std::round(share * 100) + 0.0); }

std::string CleanText(const std::string& raw) {
  std::string text = ToUtf8(raw);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) text[i] = ' ';
    // U+0080 to U+009F: terminals take them for control codes as well.
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) text.replace(i, 2, " ");
  }
  return text;
}

}  // namespace tailspan::base
