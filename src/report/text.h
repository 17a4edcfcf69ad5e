// The explanation for a person who was just paged: the verdict first, then the ledger from typical to tail, then what
// speaks for and against each finding, then what limits the answer.
#pragma once

#include <string>

#include "model/explanation.h"

namespace tailspan::report {

inline constexpr size_t kTextWidthMin = 80;

struct TextStyle {
  bool colour = false;  // ANSI colours; the caller knows whether it writes to a terminal
  size_t width = 100;   // columns, at least kTextWidthMin
};

std::string RenderText(const model::Explanation& explanation, const TextStyle& style = {});

}  // namespace tailspan::report
