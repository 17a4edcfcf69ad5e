// Joins the post and the patches of each run, in whatever order and bodies they come.
//
// A run is ready when its post and its end are known; one whose post never comes is given out after patch_wait_ns.
// Clients were told that it is accepted, so it must not live here alone: what has been open for open_save_ns is given
// out as far as it is known (complete = false while its end is not), again at most so often when more has come, and as
// a whole when it is ready; stores keep the newest. A run that ends sooner goes out once. What is flushed, grows too
// old or overflows the table stays as it was last given out. Anything more about a run that is out is counted:
// span_repeated, or shed_under_load when its end had not come. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <utility>
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
  // Appends the open runs that nobody else knows of yet; call it a few times each open_save_ns.
  void TakeOpen(int64_t now_mono_ns, std::vector<model::Span>* spans);
  // Appends what has waited long enough; looks at each run older than patch_wait_ns, so call it about once a second.
  void Sweep(int64_t now_mono_ns, std::vector<model::Span>* spans);
  // Gives out everything.
  void Flush(std::vector<model::Span>* spans);

  size_t open() const { return open_.size(); }
  size_t open_bytes() const { return open_bytes_; }

 private:
  struct Entry {
    Run run;
    int64_t since_mono_ns = 0;
    size_t bytes = 0;
    bool unsaved = false;  // something has come since it was given out; then it stands in unsaved_
    model::Uuid trace_id;  // as given out: all versions of a run have the same
    std::list<model::Uuid>::iterator age;
  };

  bool Ready(const Entry& entry, int64_t now_mono_ns) const;
  void Grown(Entry* entry);
  void GiveOut(model::Uuid id, std::vector<model::Span>* spans);
  void Remember(model::Uuid id, model::Uuid trace_id, bool ended);
  model::Uuid TraceOf(const Run& run) const;
  void ToSpan(Run&& run, model::Uuid trace_id, Normaliser* normaliser, std::vector<model::Span>* spans);

  Limits limits_;
  base::LossCounters& loss_;
  Normaliser normaliser_;
  base::LossCounters not_counted_;  // what a version that is not the last would count twice
  Normaliser open_normaliser_;
  std::unordered_map<model::Uuid, Entry, model::IdHash> open_;
  size_t open_bytes_ = 0;        // of them, roughly
  std::list<model::Uuid> ages_;  // of open_, the oldest first
  std::vector<model::Uuid> touched_;
  std::deque<std::pair<model::Uuid, int64_t>> unsaved_;  // and since when; also of runs that are gone
  struct Finished {
    model::Uuid trace_id;
    bool ended = false;  // false: the table overflowed first
  };
  std::unordered_map<model::Uuid, Finished, model::IdHash> finished_;
  std::deque<model::Uuid> finished_order_;
};

}  // namespace tailspan::collect::langsmith
