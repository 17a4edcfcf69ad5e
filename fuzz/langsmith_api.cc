// LangSmith's ingest calls: the first line picks one, the rest is the body. Spans that come out are whole.
#include "base/json_writer.h"
#include "base/result.h"
#include "collect/langsmith/langsmith.h"
#include "collect/text.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  size_t end = input.find('\n');
  if (end == std::string_view::npos) return;
  std::string_view line = input.substr(0, end);
  size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return;
  collect::http::Request request;
  request.method = std::string(line.substr(0, blank));
  request.path = std::string(line.substr(blank + 1));
  request.content_type = request.path == "/runs/multipart" ? "multipart/form-data; boundary=b" : "application/json";
  request.body = std::string(input.substr(end + 1));
  base::LossCounters loss;
  collect::Limits limits;
  limits.open_runs = 4;
  limits.finished_runs = 4;
  collect::langsmith::Api api(limits, true, "fuzz", loss);
  std::vector<model::Span> spans;
  // Twice: what is known of a run meets the same run again.
  for (int64_t now_mono_ns : {int64_t{1}, int64_t{2}}) {
    auto answer = api.Handle(request, request.path, 1, now_mono_ns, &spans);
    TAILSPAN_CHECK(answer.status != 429 && answer.status != 503);
  }
  api.TakeOpen(limits.open_save_ns + 2, &spans);
  api.Sweep(limits.open_run_age_ns, &spans);
  api.Flush(&spans);
  for (const auto& span : spans) {
    TAILSPAN_CHECK(span.trace_id && span.span_id != 0);
    TAILSPAN_CHECK(collect::IsUtf8(span.name) && collect::IsUtf8(span.status_message));
    for (const auto& [key, value] : span.attributes) TAILSPAN_CHECK(collect::IsUtf8(key) && collect::IsUtf8(value));
  }
}
