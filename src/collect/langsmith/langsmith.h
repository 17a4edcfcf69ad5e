// LangSmith's ingest API: GET /info, POST /runs/multipart, POST /runs/batch, POST /runs, PATCH /runs/{id}.
//
// Never answers 429 or 503: the Python client drops a multipart batch for either. What cannot be used is counted and
// the rest of the body kept. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/loss.h"
#include "collect/http/message.h"
#include "collect/langsmith/run.h"
#include "collect/langsmith/run_table.h"
#include "collect/limits.h"
#include "model/span.h"

namespace tailspan::collect::langsmith {

class Api {
 public:
  Api(const Limits& limits, bool keep_content, const std::string& version, base::LossCounters& loss);

  // Is this path (already without an /api/v1 prefix) one of this API's?
  static bool Serves(std::string_view path);
  // Answers a request and appends the spans that it has completed. A run that does not say which process it is from is
  // from `sender_pid`, the one that sent it; 0 unknown.
  http::Response Handle(const http::Request& request, std::string_view path, int32_t sender_pid, int64_t now_mono_ns,
                        std::vector<model::Span>* spans);

  // See RunTable.
  void TakeOpen(int64_t now_mono_ns, std::vector<model::Span>* spans) { table_.TakeOpen(now_mono_ns, spans); }
  void Sweep(int64_t now_mono_ns, std::vector<model::Span>* spans) { table_.Sweep(now_mono_ns, spans); }
  void Flush(std::vector<model::Span>* spans) { table_.Flush(spans); }

 private:
  http::Response Info() const;
  http::Response MultipartRuns(const http::Request& request);
  http::Response BatchRuns(const http::Request& request);
  http::Response OneRun(const http::Request& request, bool post, std::string_view id);
  bool TakePart(std::string_view name, std::string_view data, std::vector<Run>* updates);
  bool TakeObject(Json json, bool post, model::Uuid id);
  void Apply(Run&& run);

  Limits limits_;
  std::string version_;
  base::LossCounters& loss_;
  RunReader reader_;
  RunTable table_;
  int64_t now_mono_ns_ = 0;  // of the request being answered, and who sent it
  int32_t sender_pid_ = 0;
};

}  // namespace tailspan::collect::langsmith
