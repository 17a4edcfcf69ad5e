#include "store/duckdb/columns.h"

namespace tailspan::store::duckdb {
namespace {

constexpr int64_t kSameStartNs = 20'000'000;  // /proc/PID/stat counts in ticks of 10 ms

}  // namespace

void ProcessStarts::Add(int32_t pid, int64_t start_mono_ns) {
  std::vector<int64_t>& starts = by_pid_[pid];
  auto at = std::lower_bound(starts.begin(), starts.end(), start_mono_ns - kSameStartNs);
  if (at != starts.end() && *at <= start_mono_ns + kSameStartNs) return;
  starts.insert(at, start_mono_ns);
}

std::optional<int64_t> ProcessStarts::Find(int32_t pid, int64_t at_mono_ns) const {
  auto found = by_pid_.find(pid);
  if (found == by_pid_.end()) return std::nullopt;
  const std::vector<int64_t>& starts = found->second;
  // A record can be older than the start that was rounded to a tick, or than the first one known.
  auto after = std::upper_bound(starts.begin(), starts.end(), at_mono_ns);
  return after == starts.begin() ? *after : *(after - 1);
}

}  // namespace tailspan::store::duckdb
