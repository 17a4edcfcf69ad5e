// Who held each Python process's GIL: the holds of gil_holds.h for all processes of a recording, with the gaps between
// them given to somebody where something speaks for it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analyze/gil_holds.h"
#include "analyze/timeline.h"

namespace tailspan::analyze {

struct GilShare {
  int64_t start_ns = 0, end_ns = 0;
  int thread = -1;     // index into Timeline::threads(); -1 not known
  bool known = false;  // from releases and sightings; else by what the threads were doing
};

// Immutable after construction; thread-safe. The Timeline must outlive it.
class GilTimeline {
 public:
  explicit GilTimeline(const Timeline& timeline);

  // Splits a wait of `waiter` over [from, to) by who held the GIL; covers it without gap, in order. A stretch that
  // would blame the waiter itself has thread == waiter (it was let go and not yet running).
  std::vector<GilShare> Holders(int waiter, int64_t from_ns, int64_t to_ns) const;

 private:
  struct Process {
    GilHolds holds;
    std::vector<int> threads;
  };

  int BusiestThread(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const;

  const Timeline& timeline_;
  std::unordered_map<int32_t, Process> processes_;
};

}  // namespace tailspan::analyze
