// Keeps an app that sends each LangSmith run a second time as an OTLP span (hybrid mode) from being counted twice.
//
// The run wins: its id is the one that threads publish. Its twin adds attributes and the process, and is left out
// (span_repeated). Twins are found by (trace, UUID attribute); clients whose spans carry no UUID (Python 0.15) by name
// and start, to two microseconds. Equal candidates are paired in order and counted (span_id_collision), nothing of them
// merged. OTLP spans whose parent is a run are hung under it: the wire names the first 8 bytes of its UUID, which runs
// of one millisecond share, so the innermost such run that contains the span is taken.
//
// Passes everything straight through until LangSmith's API has been used. Then OTLP spans wait up to twin_wait_ns.
// Runs never wait: a twin that comes later gives the run out again, enlarged; stores keep the newest. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/loss.h"
#include "collect/limits.h"
#include "model/span.h"

namespace tailspan::collect {

class SpanMerger {
 public:
  SpanMerger(const Limits& limits, base::LossCounters& loss) : limits_(limits), loss_(loss) {}

  void SeenLangsmith() { active_ = true; }
  void AddRuns(std::vector<model::Span>&& runs, int64_t now_mono_ns, std::vector<model::Span>* ready);
  void AddSpans(std::vector<model::Span>&& spans, int64_t now_mono_ns, std::vector<model::Span>* ready);
  // Appends the spans that have waited long enough.
  void TakeReady(int64_t now_mono_ns, std::vector<model::Span>* ready);
  void Flush(std::vector<model::Span>* ready);

 private:
  struct SpanKey {
    model::TraceId trace;
    model::SpanId span = 0;
    auto operator<=>(const SpanKey&) const = default;
  };
  struct Known;
  using KnownIt = std::list<Known>::iterator;
  struct Known {
    model::Span run;
    bool paired = false;
    size_t bytes = 0;
    std::multimap<uint64_t, KnownIt>::iterator at_start = {};
    std::multimap<SpanKey, KnownIt>::iterator at_first_half = {};
  };
  struct Held {
    model::Span span;
    int64_t since_mono_ns = 0;
    size_t bytes = 0;
  };
  struct SpanKeyHash {
    // The id is spread: one that is the trace's second half would cancel out.
    size_t operator()(const SpanKey& key) const {
      return model::IdHash()(key.trace) ^ std::hash<uint64_t>()(key.span * 0x9E3779B97F4A7C15ull);
    }
  };

  void Remember(model::Span* update);
  void Forget(KnownIt run);
  // Pairs the span with its run; true when the span is done with.
  bool Pair(const model::Span& span, std::vector<model::Span>* ready);
  std::vector<KnownIt> Twins(const model::Span& span);
  void Rehang(model::Span* span);
  void ReleaseOldest(std::vector<model::Span>* ready);
  void Release(model::Span&& span, std::vector<model::Span>* ready);

  Limits limits_;
  base::LossCounters& loss_;
  bool active_ = false;
  std::list<Known> known_;  // the oldest first, at most remembered_runs
  size_t known_bytes_ = 0;
  std::unordered_map<model::Uuid, KnownIt, model::IdHash> by_uuid_;
  // Ordered, because an entry is erased by its iterator: any number of runs may have one name and start.
  std::multimap<uint64_t, KnownIt> by_start_;
  std::multimap<SpanKey, KnownIt> by_first_half_;
  std::unordered_map<SpanKey, model::SpanId, SpanKeyHash> twin_ids_;  // an OTLP twin's id to its run's
  std::deque<SpanKey> twin_order_;
  std::deque<Held> held_;
  size_t held_bytes_ = 0;
};

}  // namespace tailspan::collect
