// Who held the GIL, from the records of those who waited for it.
//
// Two kinds of knowledge, in order of time:
//  - a thread that wakes a waiter of the interpreter's lock has just let go of it: it held the GIL until then, and
//  since
//    it got it: its own last wait for it, or the previous release. (Blaming the last waker for the whole wait puts
//    26-31 % of the time on the wrong thread.)
//  - where the interpreter's layout is known, each waiter noted the holder when it began to wait. This corrects
//  releases
//    that woke nobody (their waiter was between two slices) and so were not seen.
// A waiter's [start, end) is intersected with these holds, up to its end: one that was woken and lost the race goes on
// waiting. What falls to the waiter itself is its way back onto the CPU, not the GIL. Gaps are hand-overs: somebody was
// woken to take the GIL and was not on the CPU yet.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kernel.h"

namespace tailspan::analyze {

struct GilHold {
  int64_t start_mono_ns = 0;
  int64_t end_mono_ns = 0;
  int32_t tid = 0;
};

// Immutable after construction; thread-safe.
class GilHolds {
 public:
  // Takes the records of all threads of one process, in any order.
  explicit GilHolds(const std::vector<const model::ThreadInterval*>& intervals);

  // The holds that lie in [from, to), clipped to it, in order of time and without overlap.
  std::vector<GilHold> HoldsBetween(int64_t from_mono_ns, int64_t to_mono_ns) const;

 private:
  void Add(int64_t start_mono_ns, int64_t end_mono_ns, int32_t tid);

  std::vector<GilHold> holds_;  // in order of time, without overlap
};

}  // namespace tailspan::analyze
