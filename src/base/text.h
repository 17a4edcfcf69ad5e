// Numbers as people read them.
#pragma once

#include <string>

namespace tailspan::base {

// "40 us", "1.5 ms", "812 ms", "1.24 s", "12.0 s".
std::string DurationText(double ns);

// A share as a whole percentage: "61 %", never "-0 %".
std::string PercentText(double share);

// Valid UTF-8 without control characters, for a terminal: names come from programs that are watched.
std::string CleanText(const std::string& raw);

}  // namespace tailspan::base
