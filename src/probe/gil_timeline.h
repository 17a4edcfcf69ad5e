// Who held the GIL, from the records of those who waited for it.
//
// A thread that wakes a waiter of the interpreter's lock has just let go of it; so it held the GIL since the previous
// such release in its process, or since it got it itself. A waiter's [start, end) is intersected with these holds. The
// whole wait counts, up to its end: a waiter that was woken and lost the race goes on waiting. What falls to the waiter
// itself is its way back onto the CPU (run queue), not the GIL.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/kernel.h"

namespace tailspan::probe {

struct GilHold {
  int64_t start_mono_ns = 0;
  int64_t end_mono_ns = 0;
  int32_t tid = 0;
};

class GilTimeline {
 public:
  // Takes the records of all threads of one process, in any order.
  explicit GilTimeline(const std::vector<const model::ThreadInterval*>& intervals);

  // The holds that lie in [from, to), clipped to it, in order of time and without overlap. Gaps are unknown.
  std::vector<GilHold> HoldsBetween(int64_t from_mono_ns, int64_t to_mono_ns) const;

 private:
  std::vector<GilHold> holds_;  // by end, consecutive
};

}  // namespace tailspan::probe
