#include "collect/span_merger.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

namespace tailspan::collect {
namespace {

using base::Loss;
using model::Span;

// The client turns its microseconds into a double of seconds and back.
constexpr int64_t kSameTimeNs = 2'000;
constexpr int64_t kBucketNs = 4'000;
constexpr size_t kCandidatesMax = 64;  // of one name and start, or of one first half of an id: looked at for a span

uint64_t StartKey(const std::string& name, int64_t bucket) {
  return std::hash<std::string>()(name) ^ (static_cast<uint64_t>(bucket) * 0x9E3779B97F4A7C15ull);
}

bool SameTime(int64_t a_ns, int64_t b_ns) { return std::llabs(a_ns - b_ns) <= kSameTimeNs; }

// An open run may still contain anything.
int64_t EndOf(const Span& run) { return run.complete ? run.end_unix_ns : INT64_MAX; }

// True when the span added something.
bool TakeOver(const Span& twin, Span* run) {
  bool added = false;
  for (const auto& attribute : twin.attributes) {
    bool there = std::any_of(run->attributes.begin(), run->attributes.end(),
                             [&](const auto& own) { return own.first == attribute.first; });
    if (there) continue;
    run->attributes.push_back(attribute);
    added = true;
  }
  auto take = [&added](auto from, auto none, auto* to) {
    if (*to == none && from != none) {
      *to = from;
      added = true;
    }
  };
  take(twin.pid, 0, &run->pid);
  take(twin.thread_id, uint64_t{0}, &run->thread_id);
  take(twin.input_tokens, int64_t{-1}, &run->input_tokens);
  take(twin.output_tokens, int64_t{-1}, &run->output_tokens);
  take(twin.model, std::string(), &run->model);
  return added;
}

}  // namespace

void SpanMerger::AddRuns(std::vector<Span>&& runs, int64_t now_mono_ns, std::vector<Span>* ready) {
  for (Span& run : runs) {
    Remember(&run);
    ready->push_back(std::move(run));
  }
  if (!runs.empty()) TakeReady(now_mono_ns, ready);
}

void SpanMerger::Remember(Span* update) {
  bool paired = false;
  if (auto known = by_uuid_.find(update->uuid); known != by_uuid_.end()) {
    // A newer version of an open run. What its twin has added stays.
    paired = known->second->paired;
    if (paired) TakeOver(known->second->run, update);
    Forget(known->second);
  }
  const Span& run = *update;
  known_.push_back({run, paired, ApproxBytes(run), {}, {}});
  known_bytes_ += known_.back().bytes;
  KnownIt it = std::prev(known_.end());
  by_uuid_[run.uuid] = it;
  it->at_start = by_start_.emplace(StartKey(run.name, run.start_unix_ns / kBucketNs), it);
  it->at_first_half = by_first_half_.emplace(SpanKey{run.trace_id, run.uuid.hi}, it);
  while (known_.size() > limits_.remembered_runs || known_bytes_ > limits_.remembered_bytes) Forget(known_.begin());
}

void SpanMerger::Forget(KnownIt run) {
  by_start_.erase(run->at_start);
  by_first_half_.erase(run->at_first_half);
  by_uuid_.erase(run->run.uuid);
  known_bytes_ -= run->bytes;
  known_.erase(run);
}

std::vector<SpanMerger::KnownIt> SpanMerger::Twins(const Span& span) {
  std::vector<KnownIt> out;
  if (span.uuid) {
    auto found = by_uuid_.find(span.uuid);
    if (found != by_uuid_.end() && found->second->run.trace_id == span.trace_id) out.push_back(found->second);
    return out;
  }
  if (span.source != "langsmith-otel") return out;
  int64_t bucket = span.start_unix_ns / kBucketNs;
  for (int64_t near : {bucket - 1, bucket, bucket + 1}) {
    auto [first, last] = by_start_.equal_range(StartKey(span.name, near));
    for (size_t seen = 0; first != last && seen < kCandidatesMax; ++first, ++seen) {
      const Known& known = *first->second;
      // Below a span of the app's own OpenTelemetry the twin has that span's trace id: which of the two traces the run
      // belongs to is decided when both are whole (analyze/twin_spans.h).
      bool same = !known.paired && known.run.name == span.name && known.run.trace_id == span.trace_id &&
                  SameTime(known.run.start_unix_ns, span.start_unix_ns);
      if (same) out.push_back(first->second);
    }
  }
  std::sort(out.begin(), out.end(), [](KnownIt a, KnownIt b) { return a->run.start_unix_ns < b->run.start_unix_ns; });
  return out;
}

bool SpanMerger::Pair(const Span& span, std::vector<Span>* ready) {
  std::vector<KnownIt> twins = Twins(span);
  if (twins.empty()) return false;
  auto closest = std::find_if(twins.begin(), twins.end(),
                              [&](KnownIt it) { return SameTime(it->run.end_unix_ns, span.end_unix_ns); });
  KnownIt twin = closest == twins.end() ? twins.front() : *closest;
  loss_.Add(Loss::kSpanRepeated);
  twin->paired = true;
  SpanKey key{span.trace_id, span.span_id};
  if (twin_ids_.emplace(key, twin->run.span_id).second) twin_order_.push_back(key);
  while (twin_order_.size() > limits_.remembered_runs) {
    twin_ids_.erase(twin_order_.front());
    twin_order_.pop_front();
  }
  if (twins.size() > 1) {
    loss_.Add(Loss::kSpanIdCollision);
  } else if (TakeOver(span, &twin->run)) {
    known_bytes_ -= std::exchange(twin->bytes, ApproxBytes(twin->run));
    known_bytes_ += twin->bytes;
    ready->push_back(twin->run);
  }
  return true;
}

void SpanMerger::AddSpans(std::vector<Span>&& spans, int64_t now_mono_ns, std::vector<Span>* ready) {
  if (!active_) {
    std::move(spans.begin(), spans.end(), std::back_inserter(*ready));
    return;
  }
  for (Span& span : spans) {
    if (Pair(span, ready)) continue;
    size_t bytes = ApproxBytes(span);
    held_.push_back({std::move(span), now_mono_ns, bytes});
    held_bytes_ += bytes;
  }
  while (held_.size() > limits_.held_spans || held_bytes_ > limits_.held_bytes) ReleaseOldest(ready);
}

// Gives a child of a run, or of a run's twin, the run as its parent.
void SpanMerger::Rehang(Span* span) {
  if (span->parent_id == 0) return;
  SpanKey key{span->trace_id, span->parent_id};
  auto twin = twin_ids_.find(key);
  if (twin != twin_ids_.end()) {
    span->parent_id = twin->second;
    return;
  }
  const Span* best = nullptr;
  size_t candidates = 0;
  auto [first, last] = by_first_half_.equal_range(key);
  for (; first != last && candidates < kCandidatesMax; ++first) {
    const Span& run = first->second->run;
    ++candidates;
    bool contains = run.start_unix_ns <= span->start_unix_ns && span->end_unix_ns <= EndOf(run);
    bool tighter = !best || EndOf(run) - run.start_unix_ns < EndOf(*best) - best->start_unix_ns;
    if (contains && tighter) best = &run;
  }
  if (candidates > 1) loss_.Add(Loss::kSpanIdCollision);
  if (!best && candidates == 1) best = &by_first_half_.find(key)->second->run;
  if (!best) return;
  span->parent_id = best->span_id;
  span->parent_uuid = best->uuid;
}

void SpanMerger::Release(Span&& span, std::vector<Span>* ready) {
  if (Pair(span, ready)) return;
  Rehang(&span);
  ready->push_back(std::move(span));
}

void SpanMerger::TakeReady(int64_t now_mono_ns, std::vector<Span>* ready) {
  while (!held_.empty() && now_mono_ns - held_.front().since_mono_ns >= limits_.twin_wait_ns) {
    ReleaseOldest(ready);
  }
}

void SpanMerger::ReleaseOldest(std::vector<Span>* ready) {
  Held held = std::move(held_.front());
  held_.pop_front();
  held_bytes_ -= held.bytes;
  Release(std::move(held.span), ready);
}

void SpanMerger::Flush(std::vector<Span>* ready) {
  while (!held_.empty()) ReleaseOldest(ready);
}

}  // namespace tailspan::collect
