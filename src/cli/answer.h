// From a recording to the answer: read, build ledgers (stored back for the next time), explain, render.
#pragma once

#include <string>

#include "analyze/explain.h"
#include "base/result.h"
#include "report/text.h"
#include "store/store.h"

namespace tailspan::cli {

struct AnswerOptions {
  std::string file;
  std::string baseline_file;  // "" none
  store::TimeWindow window;
  analyze::ExplainOptions explain;
  std::string trace;  // id of a trace or of a LangSmith run, or with a root's "ID/ROOT": one request's ledger instead
  std::string format = "text";
  report::TextStyle style;
};

struct Answer {
  std::string text;
  bool insufficient = false;
};

// kNotFound: no such file, operation or trace. kInvalidArgument: an option's value makes no sense. A recording without
// a request is no error: the answer is that it is not enough.
base::Result<Answer> Explain(const AnswerOptions& options);

}  // namespace tailspan::cli
