// Turns ledgers into the steps that the replay runs. Which server a span needs is read from the ledgers themselves: a
// span path that ever waited for the loop runs on the loop, one that waited for the GIL or is blamed for holding it
// needs the GIL, and a span name that is blamed for a lock holds that lock while it is at work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyze/replay.h"
#include "model/ledger.h"

namespace tailspan::analyze {

enum class StepKind : uint8_t {
  kDelay,    // time that needs no server
  kWork,     // needs a CPU, and the GIL when `gil`
  kAcquire,  // of `server`
  kRelease,
};

struct Step {
  StepKind kind = StepKind::kDelay;
  bool gil = false;
  uint16_t server = 0;
  uint16_t name = 0;  // of the span at work
  int64_t ns = 0;
};

inline constexpr size_t kReplayNamesMax = 200;

// Servers by number; locks follow.
inline constexpr uint16_t kServerCpu = 0, kServerGil = 1, kServerLoop = 2, kServerExecutor = 3, kServerFirstLock = 4;

struct ReplayPlan {
  bool too_large = false;
  std::vector<std::string> names;  // of spans; the last one stands for all beyond kReplayNamesMax
  std::vector<int> slots;          // of each server
  std::vector<size_t> step_begin;  // ledgers + 1
  std::vector<Step> steps;
};

ReplayPlan PlanReplay(const std::vector<model::TraceLedger>& ledgers, const ReplayOptions& options);

}  // namespace tailspan::analyze
