// Joins the post and the patches of each run, in whatever order and bodies they come, and gives each run out once.
//
// A run is ready when its post and its end are known; one whose post never comes is given out after patch_wait_ns. What
// has not ended when it is flushed, grows too old or overflows the table goes out with complete = false
// (span_incomplete). Anything more about a run that is out is counted as span_repeated. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/loss.h"
#include "collect/langsmith/run.h"
#include "collect/limits.h"
#include "collect/normalise.h"
#include "model/span.h"

namespace tailspan::collect::langsmith {

class RunTable {
 public:
  RunTable(const Limits& limits, bool keep_content, base::LossCounters& loss);

  // REQUIRES: run.id is set.
  void Apply(Run&& run, int64_t now_mono_ns);
  // Appends the runs that have become ready since the last call.
  void TakeReady(int64_t now_mono_ns, std::vector<model::Span>* spans);
  // Appends what has waited long enough; looks at each run older than patch_wait_ns, so call it about once a second.
  void Sweep(int64_t now_mono_ns, std::vector<model::Span>* spans);
  // Gives out everything.
  void Flush(std::vector<model::Span>* spans);

  size_t open() const { return open_.size(); }

 private:
  struct Entry {
    Run run;
    int64_t since_mono_ns = 0;
    std::list<model::Uuid>::iterator age;
  };

  bool Ready(const Entry& entry, int64_t now_mono_ns) const;
  void GiveOut(model::Uuid id, std::vector<model::Span>* spans);
  void Remember(model::Uuid id, model::Uuid trace_id);
  model::Uuid TraceOf(const Run& run) const;
  void ToSpan(Run&& run, model::Uuid trace_id, std::vector<model::Span>* spans);

  Limits limits_;
  base::LossCounters& loss_;
  Normaliser normaliser_;
  std::unordered_map<model::Uuid, Entry, model::IdHash> open_;
  std::list<model::Uuid> ages_;  // of open_, the oldest first
  std::vector<model::Uuid> touched_;
  std::unordered_map<model::Uuid, model::Uuid, model::IdHash> finished_;  // run to its trace
  std::deque<model::Uuid> finished_order_;
};

}  // namespace tailspan::collect::langsmith
