#include "analyze/gil_holds.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tailspan::analyze {
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

// When each thread was off the CPU, for whatever reason.
class OffCpu {
 public:
  explicit OffCpu(const std::vector<const model::ThreadInterval*>& intervals) {
    for (const model::ThreadInterval* one : intervals) {
      if (one->wait_end_mono_ns > one->wait_start_mono_ns)
        waits_[one->tid].emplace_back(one->wait_start_mono_ns, one->wait_end_mono_ns);
    }
    for (auto& [tid, waits] : waits_) std::sort(waits.begin(), waits.end());
  }

  // The end of the wait that the thread was in at that time; the time itself if it was in none.
  int64_t BackOnCpu(int32_t tid, int64_t at_mono_ns) const {
    const auto thread = waits_.find(tid);
    if (thread == waits_.end()) return at_mono_ns;
    const auto& waits = thread->second;
    auto after = std::upper_bound(waits.begin(), waits.end(), std::pair{at_mono_ns, INT64_MAX});
    if (after == waits.begin()) return at_mono_ns;
    return std::max(at_mono_ns, std::prev(after)->second);
  }

 private:
  std::map<int32_t, std::vector<std::pair<int64_t, int64_t>>> waits_;  // by thread: start and end, in order
};

}  // namespace

GilHolds::GilHolds(const std::vector<const model::ThreadInterval*>& intervals) {
  const OffCpu off_cpu(intervals);
  std::map<int32_t, int64_t> last_wait_end;  // for the GIL
  int64_t known_until = INT64_MIN;           // a release or a sample: who holds it later holds it since then at most
  int32_t holder = 0;                        // who held it at known_until; 0 it was just released
  for (const Fact& fact : FactsIn(intervals)) {
    if (fact.kind == Kind::kWaitEnd) {
      last_wait_end[fact.tid] = fact.at_mono_ns;
      continue;
    }
    int64_t start = known_until;
    if (holder != fact.tid && known_until != INT64_MIN) {
      // Another held it then, so this thread took it later: not while it was off the CPU or still waiting for it.
      start = off_cpu.BackOnCpu(fact.tid, known_until);
      if (const auto ended = last_wait_end.find(fact.tid); ended != last_wait_end.end())
        start = std::max(start, ended->second);
      // The former holder let go unseen, but not while it was off the CPU itself.
      if (holder != 0) Add(known_until, std::min(off_cpu.BackOnCpu(holder, known_until), start), holder);
    }
    Add(start, fact.at_mono_ns, fact.tid);
    known_until = fact.at_mono_ns;
    holder = fact.kind == Kind::kSample ? fact.tid : 0;
  }
}

void GilHolds::Add(int64_t start_mono_ns, int64_t end_mono_ns, int32_t tid) {
  if (!holds_.empty()) {
    start_mono_ns = std::max(start_mono_ns, holds_.back().end_mono_ns);
    if (holds_.back().tid == tid && holds_.back().end_mono_ns == start_mono_ns) {
      holds_.back().end_mono_ns = std::max(holds_.back().end_mono_ns, end_mono_ns);
      return;
    }
  }
  if (end_mono_ns > start_mono_ns) holds_.push_back({start_mono_ns, end_mono_ns, tid});
}

std::vector<GilHold> GilHolds::HoldsBetween(int64_t from_mono_ns, int64_t to_mono_ns) const {
  std::vector<GilHold> found;
  auto hold = std::upper_bound(holds_.begin(), holds_.end(), from_mono_ns,
                               [](int64_t at, const GilHold& one) { return at < one.end_mono_ns; });
  for (; hold != holds_.end() && hold->start_mono_ns < to_mono_ns; ++hold) {
    found.push_back({std::max(hold->start_mono_ns, from_mono_ns), std::min(hold->end_mono_ns, to_mono_ns), hold->tid});
  }
  return found;
}

}  // namespace tailspan::analyze
