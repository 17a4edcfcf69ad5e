#include "base/clock.h"

#include <time.h>

#include <algorithm>

namespace tailspan::base {
namespace {

int64_t Now(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Offset between two samples at `x`, where key() picks the clock that x is on.
template <typename Key>
int64_t OffsetAt(const std::vector<ClockPair>& pairs, int64_t x, Key key) {
  auto offset = [](const ClockPair& p) { return p.unix_ns - p.mono_ns; };
  auto after =
      std::lower_bound(pairs.begin(), pairs.end(), x, [&](const ClockPair& p, int64_t v) { return key(p) < v; });
  if (after == pairs.begin()) return offset(pairs.front());
  if (after == pairs.end()) return offset(pairs.back());
  const ClockPair& a = *(after - 1);
  const ClockPair& b = *after;
  int64_t span = key(b) - key(a);
  if (span <= 0) return offset(a);
  auto slope = static_cast<double>(offset(b) - offset(a)) / static_cast<double>(span);
  return offset(a) + static_cast<int64_t>(slope * static_cast<double>(x - key(a)));
}

}  // namespace

int64_t MonoNowNs() { return Now(CLOCK_MONOTONIC); }
int64_t UnixNowNs() { return Now(CLOCK_REALTIME); }

ClockPair SampleClockPair() {
  ClockPair best{0, 0, INT64_MAX};
  for (int i = 0; i < 5; ++i) {
    int64_t before = MonoNowNs();
    int64_t unix_ns = UnixNowNs();
    int64_t after = MonoNowNs();
    int64_t error = (after - before + 1) / 2;
    if (error < best.error_ns) best = {before + (after - before) / 2, unix_ns, error};
  }
  return best;
}

ClockMap::ClockMap(std::vector<ClockPair> pairs) : pairs_(std::move(pairs)) {
  std::sort(pairs_.begin(), pairs_.end(), [](const ClockPair& a, const ClockPair& b) { return a.mono_ns < b.mono_ns; });
  for (const ClockPair& p : pairs_) error_ns_ = std::max(error_ns_, p.error_ns);
}

int64_t ClockMap::MonoFromUnix(int64_t unix_ns) const {
  if (pairs_.empty()) return unix_ns;
  return unix_ns - OffsetAt(pairs_, unix_ns, [](const ClockPair& p) { return p.unix_ns; });
}

int64_t ClockMap::UnixFromMono(int64_t mono_ns) const {
  if (pairs_.empty()) return mono_ns;
  return mono_ns + OffsetAt(pairs_, mono_ns, [](const ClockPair& p) { return p.mono_ns; });
}

}  // namespace tailspan::base
