#include "probe/gil_timeline.h"

#include <algorithm>
#include <map>

namespace tailspan::probe {
namespace {

// What is known of one instant. At equal times what ends comes before what begins.
enum class Kind { kRelease, kWaitEnd, kSample };

struct Fact {
  int64_t at_mono_ns;
  Kind kind;
  int32_t tid;  // who released, who ended its wait, who was seen to hold
};

bool Before(const Fact& left, const Fact& right) {
  return left.at_mono_ns != right.at_mono_ns ? left.at_mono_ns < right.at_mono_ns : left.kind < right.kind;
}

std::vector<Fact> FactsIn(const std::vector<const model::ThreadInterval*>& intervals) {
  std::vector<Fact> facts;
  for (const model::ThreadInterval* one : intervals) {
    if (one->wait_class != model::WaitClass::kGil) continue;
    facts.push_back({one->wait_end_mono_ns, Kind::kWaitEnd, one->tid});
    if (one->gil_holder_tid != 0) facts.push_back({one->wait_start_mono_ns, Kind::kSample, one->gil_holder_tid});
    if (one->wake_mono_ns != 0 && one->waker.kind == model::WakerKind::kThread && one->waker.pid == one->pid &&
        one->waker.futex_address != 0)
      facts.push_back({one->wake_mono_ns, Kind::kRelease, one->waker.tid});
  }
  std::sort(facts.begin(), facts.end(), Before);
  return facts;
}

}  // namespace

GilTimeline::GilTimeline(const std::vector<const model::ThreadInterval*>& intervals) {
  std::map<int32_t, int64_t> last_wait_end;
  int64_t known_until = INT64_MIN;  // end of the last hold that is certain
  int32_t holder = 0;               // seen to hold since `holder_since`, not yet seen to release; 0 none
  int64_t holder_since = 0;
  for (const Fact& fact : FactsIn(intervals)) {
    if (fact.kind == Kind::kWaitEnd) {
      last_wait_end[fact.tid] = fact.at_mono_ns;
      continue;
    }
    const auto ended = last_wait_end.find(fact.tid);
    int64_t start = known_until;
    if (ended != last_wait_end.end()) start = std::max(start, ended->second);
    if (holder == fact.tid) {
      start = std::min(std::max(known_until, holder_since), start);
    } else if (holder != 0) {
      // Somebody else held it at its last sample and let go unseen: not after the new holder had it.
      start = std::max(start, holder_since);
    }
    if (fact.kind == Kind::kRelease) {
      Add(start, fact.at_mono_ns, fact.tid);
      known_until = fact.at_mono_ns;
      holder = 0;
    } else {
      Add(start, fact.at_mono_ns, fact.tid);
      known_until = std::max(known_until, fact.at_mono_ns);
      holder = fact.tid;
      holder_since = fact.at_mono_ns;
    }
  }
}

void GilTimeline::Add(int64_t start_mono_ns, int64_t end_mono_ns, int32_t tid) {
  if (!holds_.empty()) {
    start_mono_ns = std::max(start_mono_ns, holds_.back().end_mono_ns);
    if (holds_.back().tid == tid && holds_.back().end_mono_ns == start_mono_ns) {
      holds_.back().end_mono_ns = std::max(holds_.back().end_mono_ns, end_mono_ns);
      return;
    }
  }
  if (end_mono_ns > start_mono_ns) holds_.push_back({start_mono_ns, end_mono_ns, tid});
}

std::vector<GilHold> GilTimeline::HoldsBetween(int64_t from_mono_ns, int64_t to_mono_ns) const {
  std::vector<GilHold> found;
  auto hold = std::upper_bound(holds_.begin(), holds_.end(), from_mono_ns,
                               [](int64_t at, const GilHold& one) { return at < one.end_mono_ns; });
  for (; hold != holds_.end() && hold->start_mono_ns < to_mono_ns; ++hold) {
    found.push_back({std::max(hold->start_mono_ns, from_mono_ns), std::min(hold->end_mono_ns, to_mono_ns), hold->tid});
  }
  return found;
}

}  // namespace tailspan::probe
