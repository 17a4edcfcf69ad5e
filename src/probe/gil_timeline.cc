#include "probe/gil_timeline.h"

#include <algorithm>

namespace tailspan::probe {

GilTimeline::GilTimeline(const std::vector<const model::ThreadInterval*>& intervals) {
  // A release is told by the wait that it ended.
  struct Release {
    int64_t at_mono_ns;
    int32_t tid;
  };
  std::vector<Release> releases;
  for (const model::ThreadInterval* interval : intervals) {
    if (interval->wait_class != model::WaitClass::kGil || interval->wake_mono_ns == 0) continue;
    if (interval->waker.kind != model::WakerKind::kThread || interval->waker.pid != interval->pid) continue;
    if (interval->waker.futex_address == 0) continue;
    releases.push_back({interval->wake_mono_ns, interval->waker.tid});
  }
  std::sort(releases.begin(), releases.end(),
            [](const Release& left, const Release& right) { return left.at_mono_ns < right.at_mono_ns; });
  for (const Release& release : releases) {
    const int64_t start = holds_.empty() ? INT64_MIN : holds_.back().end_mono_ns;
    if (release.at_mono_ns > start) holds_.push_back({start, release.at_mono_ns, release.tid});
  }
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
