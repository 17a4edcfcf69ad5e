// What the block devices did during waits for a disk: whether a request was at the device all the while (the device is
// slow), or the time went by without one (throttled, or queued ahead of it).
//
// Built once from a recording's block requests, which are those that followed threads issued. Immutable; the requests
// must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/cause.h"
#include "model/kernel.h"

namespace tailspan::analyze {

// A piece of a ledger: [start, end) ns from its root's start.
struct DiskWait {
  int64_t root_start_unix_ns = 0;
  int64_t start_ns = 0, end_ns = 0;
};

// Whether a block device is what this cause waits for.
bool IsDiskCause(model::Cause cause);

class DiskWaits {
 public:
  DiskWaits(const std::vector<model::BlockRequest>& requests, base::ClockMap clock);

  // One sentence about the requests that overlap the waits (writes for disk_write, else reads), of the device that was
  // at work longest in them. Empty when no request at all was recorded.
  std::string Describe(const std::vector<DiskWait>& waits, model::Cause cause) const;

 private:
  std::vector<const model::BlockRequest*> by_issue_;
  std::vector<int64_t> latest_complete_ns_;  // of the requests up to this one
  base::ClockMap clock_;
};

}  // namespace tailspan::analyze
