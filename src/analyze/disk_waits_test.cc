#include "analyze/disk_waits.h"

#include <gtest/gtest.h>

namespace tailspan::analyze {
namespace {

using model::Cause;

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kDisk = 254u << 20, kOther = 8u << 20 | 1;

model::BlockRequest Request(int64_t issue_ms, int64_t complete_ms, uint32_t device = kDisk, bool write = false) {
  model::BlockRequest one;
  one.issue_mono_ns = issue_ms * kMs;
  one.complete_mono_ns = complete_ms * kMs;
  one.device = device;
  one.write = write;
  return one;
}

// Unix time is a second ahead of the monotonic clock.
const base::ClockMap kClock({{0, 1000 * kMs, 0}});

DiskWait Wait(int64_t start_ms, int64_t end_ms) { return {1000 * kMs + 100 * kMs, start_ms * kMs, end_ms * kMs}; }

TEST(DiskWaits, ASlowDevice) {
  // Waits [110, 130) and [140, 160) ms; the first two reads overlap each other.
  const std::vector<model::BlockRequest> requests = {Request(111, 122),
                                                     Request(115, 128),
                                                     Request(141, 150),
                                                     Request(111, 112, kOther),
                                                     Request(112, 129, kDisk, true),
                                                     Request(131, 139)};
  EXPECT_EQ(
      DiskWaits(requests, kClock).Describe({Wait(10, 30), Wait(40, 60)}, Cause::kDiskRead),
      "device 254:0: 3 reads in these waits, median 11 ms from issue to completion, at the device for 65 % of the "
      "waited time: it is the device that takes the time");
  EXPECT_EQ(
      DiskWaits(requests, kClock).Describe({Wait(10, 30)}, Cause::kDiskWrite),
      "device 254:0: 1 write in these waits, median 17 ms from issue to completion, at the device for 85 % of the "
      "waited time: it is the device that takes the time");
}

TEST(DiskWaits, AQueueBeforeTheDevice) {
  const std::vector<model::BlockRequest> requests = {Request(0, 105), Request(128, 132), Request(300, 301)};
  EXPECT_EQ(
      DiskWaits(requests, kClock).Describe({Wait(10, 30)}, Cause::kPageFault),
      "device 254:0: 1 read in these waits, median 4.0 ms from issue to completion, at the device for 10 % of the "
      "waited time: the rest went by before a request was issued");
  EXPECT_EQ(DiskWaits(requests, kClock).Describe({Wait(50, 60)}, Cause::kPageFault),
            "no read of a followed thread was at a block device in these waits: throttled or queued before it");
}

TEST(DiskWaits, NothingRecordedIsNothingSaid) {
  EXPECT_EQ(DiskWaits({}, kClock).Describe({Wait(0, 1)}, Cause::kDiskRead), "");
  EXPECT_EQ(DiskWaits({Request(0, 1)}, kClock).Describe({}, Cause::kDiskRead), "");
}

}  // namespace
}  // namespace tailspan::analyze
