#include "analyze/gil_timeline.h"

#include <algorithm>

namespace tailspan::analyze {

using model::ThreadInterval;
using model::WaitClass;

GilTimeline::GilTimeline(const Timeline& timeline) : timeline_(timeline) {
  for (size_t i = 0; i < timeline.threads().size(); ++i) {
    const ThreadLine& line = timeline.threads()[i];
    Process& process = processes_[line.key.pid];
    process.threads.push_back(static_cast<int>(i));
    for (const ThreadInterval* interval : line.intervals) {
      if (interval->wait_class != WaitClass::kGil) continue;
      const model::Waker& waker = interval->waker;
      if (interval->wake_mono_ns && waker.kind == model::WakerKind::kThread && waker.pid == line.key.pid) {
        int thread = timeline.FindThread({waker.pid, waker.tid});
        if (thread >= 0) process.releases.push_back({interval->wake_mono_ns, thread});
      }
      if (interval->gil_holder_tid) {
        int thread = timeline.FindThread({line.key.pid, interval->gil_holder_tid});
        if (thread >= 0) process.sightings.push_back({interval->wait_start_mono_ns, thread});
      }
    }
  }
  for (auto& [pid, process] : processes_) {
    auto by_time = [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; };
    std::sort(process.releases.begin(), process.releases.end(), by_time);
    std::sort(process.sightings.begin(), process.sightings.end(), by_time);
  }
}

std::vector<GilHold> GilTimeline::Holders(int waiter, int64_t from_ns, int64_t to_ns) const {
  std::vector<GilHold> out;
  if (to_ns <= from_ns) return out;
  auto found = processes_.find(timeline_.thread(waiter).key.pid);
  if (found == processes_.end()) return {{from_ns, to_ns, -1, false}};
  const Process& process = found->second;
  auto it = std::upper_bound(process.releases.begin(), process.releases.end(), from_ns,
                             [](int64_t value, const Release& release) { return value < release.at_ns; });
  int64_t at_ns = from_ns;
  for (; it != process.releases.end() && at_ns < to_ns && it->at_ns <= to_ns; ++it) {
    if (it->at_ns > at_ns) out.push_back({at_ns, it->at_ns, it->thread, true});
    at_ns = std::max(at_ns, it->at_ns);
  }
  if (at_ns < to_ns) {
    // No release ends this stretch. Who was seen holding it, else who releases next, else who had the CPU.
    int thread = HolderBySighting(process, waiter, at_ns, to_ns);
    constexpr int64_t kNextReleaseMaxNs = 20'000'000;  // four switch intervals of the interpreter (5 ms each)
    if (thread < 0 && it != process.releases.end() && it->at_ns - to_ns < kNextReleaseMaxNs && it->thread != waiter) {
      thread = it->thread;
    }
    if (thread < 0) thread = BusiestThread(process, waiter, at_ns, to_ns);
    out.push_back({at_ns, to_ns, thread, false});
  }
  return out;
}

int GilTimeline::HolderBySighting(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const {
  auto it = std::lower_bound(process.sightings.begin(), process.sightings.end(), from_ns,
                             [](const Sighting& sighting, int64_t value) { return sighting.at_ns < value; });
  for (; it != process.sightings.end() && it->at_ns < to_ns; ++it) {
    if (it->thread != waiter) return it->thread;
  }
  return -1;
}

int GilTimeline::BusiestThread(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const {
  int best = -1;
  int64_t best_ns = (to_ns - from_ns) / 2;  // less than half of the wait is no evidence
  for (int thread : process.threads) {
    if (thread == waiter) continue;
    int64_t ns = 0;
    for (const Slice& slice : timeline_.Slices(thread, from_ns, to_ns)) {
      if (slice.kind == Slice::Kind::kOnCpu || slice.kind == Slice::Kind::kRunnable)
        ns += slice.end_ns - slice.start_ns;
    }
    if (ns > best_ns) {
      best_ns = ns;
      best = thread;
    }
  }
  return best;
}

}  // namespace tailspan::analyze
