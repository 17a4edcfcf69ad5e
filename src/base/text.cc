#include "base/text.h"

#include <fmt/format.h>

#include <cmath>

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

}  // namespace tailspan::base
