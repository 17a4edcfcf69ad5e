// From a recording to the answer: read, build ledgers (stored back for the next time), explain, render.
#pragma once

#include <string>

#include "analyze/explain.h"
#include "base/result.h"
#include "model/explanation.h"
#include "store/store.h"

namespace tailspan::cli {

struct AnswerOptions {
  std::string file;
  std::string baseline_file;  // "" none
  store::TimeWindow window;
  analyze::ExplainOptions explain;
  std::string trace;  // hex id, or with a root's "TRACE/ROOT": one request's ledger instead
  std::string format = "text";
  bool colour = false;
  size_t width = 100;  // columns of text
};

struct Answer {
  std::string text;
  bool insufficient = false;
};

// kNotFound: no such file, operation or trace. kInvalidArgument: an option's value makes no sense.
base::Result<Answer> Explain(const AnswerOptions& options);

}  // namespace tailspan::cli
