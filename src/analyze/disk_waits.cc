#include "analyze/disk_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace tailspan::analyze {
namespace {

using base::DurationText;
using model::BlockRequest;
using model::Cause;

constexpr double kDeviceBusy = 0.5;  // of the waited time with a request at the device: then the device is slow

struct Device {
  std::vector<const BlockRequest*> requests;
  int64_t covered_ns = 0;  // of the waits
};

std::string DeviceName(uint32_t device) {  // the kernel's own encoding of a device number
  return fmt::format("{}:{}", device >> 20, device & 0xFFFFF);
}

int64_t MedianTookNs(const std::vector<const BlockRequest*>& requests) {
  std::vector<int64_t> took_ns;
  for (const BlockRequest* one : requests) took_ns.push_back(one->complete_mono_ns - one->issue_mono_ns);
  auto middle = took_ns.begin() + static_cast<std::ptrdiff_t>((took_ns.size() - 1) / 2);
  std::nth_element(took_ns.begin(), middle, took_ns.end());
  return *middle;
}

}  // namespace

bool IsDiskCause(Cause cause) {
  return cause == Cause::kPageFault || cause == Cause::kDiskRead || cause == Cause::kDiskWrite;
}

DiskWaits::DiskWaits(const std::vector<BlockRequest>& requests, base::ClockMap clock) : clock_(std::move(clock)) {
  for (const BlockRequest& one : requests) by_issue_.push_back(&one);
  std::sort(by_issue_.begin(), by_issue_.end(),
            [](const BlockRequest* a, const BlockRequest* b) { return a->issue_mono_ns < b->issue_mono_ns; });
  int64_t latest_ns = INT64_MIN;
  for (const BlockRequest* one : by_issue_) {
    latest_ns = std::max(latest_ns, one->complete_mono_ns);
    latest_complete_ns_.push_back(latest_ns);
  }
}

std::string DiskWaits::Describe(const std::vector<DiskWait>& waits, Cause cause) const {
  if (by_issue_.empty() || waits.empty()) return "";
  const bool writes = cause == Cause::kDiskWrite;
  std::map<uint32_t, Device> devices;
  int64_t waited_ns = 0;
  for (const DiskWait& wait : waits) {
    const int64_t root_ns = clock_.MonoFromUnix(wait.root_start_unix_ns);
    const int64_t start_ns = root_ns + wait.start_ns, end_ns = root_ns + wait.end_ns;
    waited_ns += end_ns - start_ns;
    std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> at_device;
    auto after = std::lower_bound(by_issue_.begin(), by_issue_.end(), end_ns,
                                  [](const BlockRequest* one, int64_t value) { return one->issue_mono_ns < value; });
    for (auto i = static_cast<size_t>(after - by_issue_.begin()); i > 0 && latest_complete_ns_[i - 1] > start_ns; --i) {
      const BlockRequest& one = *by_issue_[i - 1];
      if (one.complete_mono_ns <= start_ns || one.write != writes) continue;
      devices[one.device].requests.push_back(&one);
      at_device[one.device].emplace_back(std::max(one.issue_mono_ns, start_ns), std::min(one.complete_mono_ns, end_ns));
    }
    for (auto& [device, times] : at_device) {
      std::sort(times.begin(), times.end());
      int64_t at_ns = start_ns;
      for (const auto& [from_ns, to_ns] : times) {
        devices[device].covered_ns += std::max<int64_t>(0, to_ns - std::max(from_ns, at_ns));
        at_ns = std::max(at_ns, to_ns);
      }
    }
  }
  const char* kind = writes ? "write" : "read";
  if (devices.empty()) {
    return fmt::format("no {} of a followed thread was at a block device in these waits: throttled or queued before it",
                       kind);
  }
  auto& [number, device] = *std::max_element(devices.begin(), devices.end(), [](const auto& a, const auto& b) {
    return a.second.covered_ns < b.second.covered_ns;
  });
  std::sort(device.requests.begin(), device.requests.end());
  device.requests.erase(std::unique(device.requests.begin(), device.requests.end()), device.requests.end());
  const double busy = waited_ns > 0 ? static_cast<double>(device.covered_ns) / static_cast<double>(waited_ns) : 0;
  return fmt::format(
      "device {}: {} {}{} in these waits, median {} from issue to completion, at the device for {:.0f} % "
      "of the waited time: {}",
      DeviceName(number), device.requests.size(), kind, device.requests.size() == 1 ? "" : "s",
      DurationText(static_cast<double>(MedianTookNs(device.requests))), busy * 100,
      busy >= kDeviceBusy ? "it is the device that takes the time" : "the rest went by before a request was issued");
}

}  // namespace tailspan::analyze
