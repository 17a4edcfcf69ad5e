// Who held a Python process's GIL, from its release timeline.
//
// A thread that gives the GIL up while others wait wakes one of them from FUTEX_WAKE on the interpreter's condition. So
// each such wake by X at t says: X held the GIL since the previous such wake. Blaming the last waker alone puts 26-31 %
// of the time on the wrong thread, the release timeline 1-5 % (measured, facts on kernel signals). Releases while
// nobody sleeps are not seen; where the interpreter's own holder field was read at a waiter's switch-out, it fills that
// in.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analyze/timeline.h"

namespace tailspan::analyze {

struct GilHold {
  int64_t start_ns = 0, end_ns = 0;
  int thread = -1;  // index into Timeline::threads(); -1 not known
  bool from_release = false;
};

class GilTimeline {
 public:
  explicit GilTimeline(const Timeline& timeline);

  // Splits a wait of `waiter` over [from, to) by who held the GIL; covers it without gap. A stretch that would blame
  // the waiter itself has thread == waiter (the caller books it as run_queue: it was let go and not yet running).
  std::vector<GilHold> Holders(int waiter, int64_t from_ns, int64_t to_ns) const;

 private:
  struct Release {
    int64_t at_ns;
    int thread;
  };
  struct Sighting {  // the holder field, read when a waiter went to sleep
    int64_t at_ns;
    int thread;
  };
  struct Process {
    std::vector<Release> releases;
    std::vector<Sighting> sightings;
    std::vector<int> threads;
  };

  int HolderBySighting(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const;
  int BusiestThread(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const;

  const Timeline& timeline_;
  std::unordered_map<int32_t, Process> processes_;
};

}  // namespace tailspan::analyze
