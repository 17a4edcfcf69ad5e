// Puts the steps that loop rings tell of into an order that can have been.
//
// A process writes its own ring, so it may say anything: steps of one thread that overlap without the one lying within
// the other, that were ready after they began, that end before they begin. A step may lie within another (an eager
// task, a loop inside a job); of two that cross, the later begins when the earlier has ended, and the time that both
// claimed is disputed: nobody's. Each step is moved at most once; n log n in the steps.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "model/loop.h"

namespace tailspan::analyze {

// Time of a thread about which its own records contradict each other. CLOCK_MONOTONIC ns.
struct Dispute {
  int32_t pid = 0, tid = 0;
  int64_t start_ns = 0, end_ns = 0;
};

struct StepOrder {
  // By start; at one instant those without length first, then the outer before the inner. ready <= start <= end, and
  // any two of one thread lie apart or the one within the other. They point into the records, or into `mended`.
  std::vector<const model::LoopStep*> steps;
  std::deque<model::LoopStep> mended;
  std::vector<Dispute> disputes;
  uint64_t contradictions = 0;  // records that were mended or dropped
};

// `records` must outlive the result.
StepOrder OrderSteps(const std::vector<model::LoopStep>& records);

}  // namespace tailspan::analyze
