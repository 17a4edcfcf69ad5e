// The explanation as JSON, schema tailspan.explanation/1 (the contract that users script against).
#pragma once

#include <string>

#include "model/explanation.h"

namespace tailspan::report {

// One line of JSON without a newline. All nanoseconds are integers; typical_ns, tail_ns and excess_ns of the findings
// and `rest` add up to those of latency_ns exactly.
std::string RenderJson(const model::Explanation& explanation);

}  // namespace tailspan::report
